"""System limits of this process: cores, memory of its control groups, and malloc's treatment of
freed blocks (standard library only)."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# glibc's malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # glibc accepts no more
_KEEP = 2**31 - 1
# about 50 microseconds; GNU's default is 300,000, and with 0 the embedded network takes a third
# longer on a quiet machine
_SPINS = "2000"


def cores(root: Path = Path("/")) -> int:
    """Cores that this process may use: those it may run on, or fewer if its control groups have a
    CPU quota; at least 1.

    Args:
        root: where /proc and /sys are mounted, for tests.
    """
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for folder in _groups(root):
        quota = text(folder / "cpu.max").split()
        if len(quota) == 2 and quota[0].isdecimal():  # without a quota: max
            allowed = min(allowed, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, allowed)


def group_memory(root: Path = Path("/")) -> float:
    """Bytes that the control groups of this process leave free (file cache counts as free);
    infinite without a limit.

    Args:
        root: where /proc and /sys are mounted, for tests.
    """
    left = math.inf
    for folder in _groups(root):
        held = re.search(r"^anon (\d+)$", text(folder / "memory.stat"), re.MULTILINE)
        for name in ("memory.max", "memory.high"):
            if (most := text(folder / name).strip()).isdecimal():  # without a limit: max
                left = min(left, int(most) - (int(held[1]) if held else 0))
    return left


def text(path: Path) -> str:
    """The content of a small system file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def give_back() -> None:
    """Return the C library's freed blocks to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def share_cores() -> None:
    """Let waiting threads sleep soon, and start no more threads than this process has cores; call
    it before torch is imported.

    OpenMP's threads spin while they wait for each other. Where another process wants the cores, a
    spinning thread keeps the one it waits for from running, and small networks become many times
    slower (docs/research/benchmarks.md, "Busy machines"). GNU's runtime, which comes with torch's
    wheels for Linux, reads how long to spin when it is loaded. OpenMP itself starts one thread for
    each core that this process may run on; a control group's quota may allow fewer (a container
    with two cores' worth of time on a machine of 64). The user's own settings take precedence. The
    Python API leaves its caller's process alone.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    if (most := cores()) < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(most))


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks instead of returning them to the kernel.

    A convolutional network frees and allocates the same megabytes in every pass, and the page
    faults of new blocks take up to half of the time. It affects speed only, and the whole process:
    the Python API leaves its caller's alone.
    """
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
            libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups (version 2) of this process, each before its parents.

    A container may see its own group as the root under any path: folders that do not exist simply
    hold no files.
    """
    tree = root / "sys/fs/cgroup"
    if match := re.search(r"^0::/(.*)$", text(root / "proc/self/cgroup"), re.MULTILINE):
        folder = tree / match[1]
        yield from (group for group in (folder, *folder.parents) if group.is_relative_to(tree))
