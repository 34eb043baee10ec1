"""Which control groups bound the memory of a process, and what do their files say (Linux; texts in, numbers out)?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
"""Files with a group's limits, by version of the interface."""
USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
"""The file with what a group uses."""
_UNLIMITED = 2**60  # version 1 writes the largest number of pages for "no limit"


class Group(NamedTuple):
    """A control group: version of the interface and folder."""

    version: int
    folder: PurePosixPath


def limit_in(text: str) -> int | None:
    """The number of bytes in a limit's file; None for ``max``, for a number that means no limit, and for anything else."""
    word = text.strip()
    return int(word) if word.isdecimal() and len(word) < 20 and int(word) < _UNLIMITED else None


def cached(text: str) -> int:
    """Bytes of a memory.stat that are files' and would be given up: the whole group's, whatever version it is."""
    pairs = (line.split() for line in text.splitlines())
    counts = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
    return sum(counts.get(f"total_{key}", counts.get(key, 0)) for key in ("inactive_file", "active_file"))


def groups(cgroup: str, mountinfo: str) -> list[Group]:
    """The control groups that bound this process's memory: its own, then each parent up to the root that can be seen.

    Args:
        cgroup: text of /proc/self/cgroup: lines ``number:controllers:path``.
        mountinfo: text of /proc/self/mountinfo.
    """
    paths: dict[int, str] = {}
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            paths[1] = path
        elif number == "0" and not controllers:
            paths[2] = path
    found = []
    for version, mount, mounted in _mounts(mountinfo):
        if version in paths:
            # A container sees its own group as the root of the mount, whatever the path says.
            own = PurePosixPath("/") / paths[version]
            known = own.is_relative_to(mounted) and ".." not in own.parts
            folder = mount / own.relative_to(mounted) if known else mount
            found += [Group(version, f) for f in (folder, *folder.parents) if f.is_relative_to(mount)]
    return found


def _mounts(mountinfo: str) -> Iterator[tuple[int, PurePosixPath, PurePosixPath]]:
    """Version, mount point and mounted folder of each place where memory groups are."""
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        fields, kind = head.split(), tail.split()
        if len(fields) >= 5 and fields[4].startswith("/") and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            version = 2 if kind[0] == "cgroup2" else 1
            if version == 2 or "memory" in kind[2].split(","):
                yield version, PurePosixPath(fields[4]), PurePosixPath(fields[3])
