"""System limits of this process: cores, memory of its control groups, and malloc's treatment of
freed blocks (standard library only)."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The parameters of mallopt in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER_TRIM = 2**31 - 1  # bytes: the largest int
# Rounds in which a thread spins, about 50 microseconds. GNU's default is 300,000; with 0 the
# embedded network takes a third longer on a quiet machine.
_SPINS = "2000"


def cores(root: Path = Path("/")) -> int:
    """The number of cores that this process may use, at least 1.

    They are the cores on which it may run, or fewer if its control groups have a CPU quota.

    Args:
        root: where /proc and /sys are mounted, for tests.
    """
    if hasattr(os, "sched_getaffinity"):  # macOS lacks it
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    for folder in _groups(root):
        # "QUOTA PERIOD" in microseconds; the quota is "max" where there is none.
        quota = text(folder / "cpu.max").split()
        if len(quota) == 2 and quota[0].isdecimal():
            allowed = min(allowed, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, allowed)


def processor_name(root: Path = Path("/")) -> str:
    """The processor's model, as in ``AMD EPYC 7B13``; empty where the machine does not say.

    Args:
        root: where /proc is mounted, for tests.
    """
    match = re.search(r"^model name\s*:(.*)$", text(root / "proc/cpuinfo"), re.MULTILINE)
    model = match[1] if match else platform.processor()
    name = " ".join(model.split())
    # Some systems give the architecture here, which is no model.
    return "" if name == platform.machine() else name


def gpu_names(root: Path = Path("/")) -> list[str]:
    """The models of NVIDIA's GPUs, as their driver lists them; torch need not be imported.

    Args:
        root: where /proc is mounted, for tests.
    """
    names = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        match = re.search(r"^Model:\s*(.*)$", text(file), re.MULTILINE)
        if match:
            names.append(match[1].strip())
    return names


def group_memory(root: Path = Path("/")) -> float:
    """Bytes that the control groups of this process leave free; infinite without a limit.

    Args:
        root: where /proc and /sys are mounted, for tests.
    """
    free = math.inf
    for folder in _groups(root):
        # Anonymous memory only: the kernel drops the file cache when it needs room.
        match = re.search(r"^anon (\d+)$", text(folder / "memory.stat"), re.MULTILINE)
        held = int(match[1]) if match else 0
        for name in ("memory.max", "memory.high"):
            limit = text(folder / name).strip()
            if limit.isdecimal():  # "max" without a limit
                free = min(free, int(limit) - held)
    return free


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
    allowed = cores()
    if allowed < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(allowed))


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks instead of returning them to the kernel.

    A convolutional network frees and allocates the same megabytes in every pass, and the page
    faults of new blocks take up to half of the time. It affects speed only, and the whole process:
    the Python API leaves its caller's alone.
    """
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            # Blocks from mmap go back to the kernel when they are freed, so none may come from
            # there: a threshold would not do, because glibc's own limit for it is 32 MiB, and
            # networks for photos use larger blocks. The end of the heap goes back, too, once it
            # exceeds the second limit.
            libc.mallopt(_M_MMAP_MAX, 0)
            libc.mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups (version 2) of this process, each before its parents.

    A container may see its own group as the root under any path. So a folder may be missing; it
    then simply holds no files.
    """
    tree = root / "sys/fs/cgroup"
    match = re.search(r"^0::/(.*)$", text(root / "proc/self/cgroup"), re.MULTILINE)
    if match:
        folder = tree / match[1]
        for group in (folder, *folder.parents):
            if group.is_relative_to(tree):
                yield group
