"""How much memory may this process hold, by the machine, its container and its own limits?"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from robaudit.control_groups import LIMITS, USAGE, cached, groups, limit_in

Counted = Literal["VmRSS", "VmSize", "VmData"]
"""What a limit counts, by its name in /proc/self/status: memory in use, address space, or data."""

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PROCESS_LIMITS: tuple[tuple[str, Counted], ...] = (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData"), ("RLIMIT_RSS", "VmRSS"))


class Limit(NamedTuple):
    """The most bytes that this process may hold.

    Attributes:
        bytes: all of them, those it holds already included.
        source: who says so, for messages.
        counts: which bytes are meant.
    """

    bytes: int
    source: str
    counts: Counted = "VmRSS"


def limits(root: Path = Path("/")) -> list[Limit]:
    """Every limit that can be found; none where the system does not tell.

    Args:
        root: where /proc and the cgroups are mounted, for tests.
    """
    status = _text(root / "proc/self/status")
    own = amount(status, "VmRSS") or peak()
    found = [*_process_limits(), *_group_limits(root, (amount(status, "RssAnon") or own) + (amount(status, "RssShmem") or 0))]
    available = amount(_text(root / "proc/meminfo"), "MemAvailable")
    if available is not None:
        found.append(Limit(available + own, "the machine's free memory"))
    elif (total := _physical()) is not None:
        found.append(Limit(total, "the machine's memory"))
    return found


def used(counts: Counted = "VmRSS", root: Path = Path("/")) -> int:
    """Bytes that this process holds now; where the system does not tell, the most that it has held."""
    return amount(_text(root / "proc/self/status"), counts) or peak()


def peak() -> int:
    """The most bytes that this process has held."""
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else 1024 * highest


def extra_peak(work: Callable[[], object]) -> int | None:
    """Bytes that work takes at its peak beyond those held before.

    Linux counts the highest number anew when it is asked to; where that is refused the answer may be too large. Elsewhere it is known
    only if it was the most that the process ever held; None if it was not.
    """
    give_back()
    before, most = amount(_text(_STATUS), "VmRSS"), peak()
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")
    work()
    highest = amount(_text(_STATUS), "VmHWM")
    if before is not None and highest is not None:
        return max(0, highest - before)
    return peak() - most or None


def give_back() -> None:
    """Return freed blocks, which the C library keeps, to the system."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def amount(text: str, key: str) -> int | None:
    """Bytes of a line such as ``VmRSS:   1234 kB`` in a file of /proc."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == f"{key}:" and words[1].isdecimal() and words[2] == "kB":
            return 1024 * int(words[1])
    return None


def _group_limits(root: Path, own: int) -> Iterator[Limit]:
    """The limits of the groups, less what other processes of the group hold."""
    proc = root / "proc/self"
    for group in groups(_text(proc / "cgroup"), _text(proc / "mountinfo")):
        folder = root / group.folder.relative_to("/")
        others = 0
        if (now := limit_in(_text(folder / USAGE[group.version]))) is not None:
            others = max(0, now - cached(_text(folder / "memory.stat")) - own)
        for name in LIMITS[group.version]:
            if (most := limit_in(_text(folder / name))) is not None:
                yield Limit(max(0, most - others), f"the control group's {name}")


def _process_limits() -> Iterator[Limit]:
    for name, counts in _PROCESS_LIMITS:
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            yield Limit(soft, name, counts)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
