"""Limits that control groups (Linux, versions 1 and 2) set for a process: memory and CPU time (imports only the standard library)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = 2**60  # version 1 writes the largest number of pages for "no limit"


def groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Folders of the groups that this process is in: its own, then each parent up to the visible root.

    A container may see its own group as the root, whatever the path says; folders that do not exist simply hold no files.

    Args:
        controller: ``memory`` or ``cpu``.
        root: where /proc and /sys are mounted, for tests.
    """
    for line in text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        mount = root / "sys/fs/cgroup"
        if controller in names.split(","):
            mount /= controller
        elif number != "0" or names:
            continue
        folder = mount / path.lstrip("/")
        if ".." in folder.parts:
            folder = mount
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(mount))


def memory_limits(own: int, root: Path = Path("/")) -> Iterator[tuple[str, int]]:
    """Name and value (bytes) of each memory limit, less what other processes of its group use.

    Args:
        own: bytes that this process uses, without its file cache.
        root: as in :func:`groups`.
    """
    for folder in groups("memory", root):
        usage = _bytes(folder / "memory.current") or _bytes(folder / "memory.usage_in_bytes")
        others = 0 if usage is None else max(0, usage - _cached(folder / "memory.stat") - own)
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            if (most := _bytes(folder / name)) is not None:
                yield name, max(0, most - others)


def cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy: those it may run on, or fewer if its groups have a CPU quota; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, _quotas(root))]))


def text(path: Path) -> str:
    """The content of a small system file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _quotas(root: Path) -> Iterator[float]:
    """CPU seconds per second that each group allows."""
    for folder in groups("cpu", root):
        numbers = (text(folder / "cpu.max") or f"{text(folder / 'cpu.cfs_quota_us')} {text(folder / 'cpu.cfs_period_us')}").split()
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers) and int(numbers[1]) > 0:
            yield int(numbers[0]) / int(numbers[1])


def _bytes(path: Path) -> int | None:
    """The number in a limit file; None for ``max``, for a number that means no limit, and for anything else."""
    word = text(path).strip()
    return int(word) if word.isdecimal() and len(word) < 20 and int(word) < _UNLIMITED else None


def _cached(path: Path) -> int:
    """Bytes of file cache in a memory.stat, which the kernel would give up; version 1 counts children under ``total_``."""
    pairs = (line.split() for line in text(path).splitlines())
    counts = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
    return sum(counts.get(f"total_{key}", counts.get(key, 0)) for key in ("inactive_file", "active_file"))
