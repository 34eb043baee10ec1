"""Settings of the command line's own process: how threads wait, how many there are, and whether freed memory is kept.

Matters of speed only, and of this process only: the Python API leaves its caller's process alone.
"""

from __future__ import annotations

import contextlib
import os
import sys

from robaudit.cgroups import cores

_WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS = (
    "2000"  # about 50 microseconds; without any the embedded network takes a third longer on a quiet machine, GNU's own number is 300,000
)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # glibc takes no more
_KEEP = 2**31 - 1


def share_cores() -> None:
    """Let threads that wait sleep soon, and start no more of them than this process has cores; call before torch is imported.

    OpenMP's threads spin while they wait for each other. Where another process wants the cores, a thread that spins keeps the one it
    waits for from running, and small networks become many times slower (docs/benchmarks.md, "Busy machines"). GNU's runtime, which
    torch's wheels for Linux ship, reads how long they spin when it is loaded. How many threads there are is OpenMP's own choice, the
    cores this process may run on, unless a control group's quota allows fewer (a container with the time of two cores on a machine of
    64). What the user has set stays.
    """
    if not any(name in os.environ for name in _WAIT_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    if "OMP_NUM_THREADS" not in os.environ and (most := cores()) < (os.cpu_count() or 1):
        os.environ["OMP_NUM_THREADS"] = str(most)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks instead of returning them to the kernel.

    A convolutional network frees and takes the same megabytes in every pass; the page faults of getting them anew cost up to half
    of the time (measured on the embedded networks: 23 s of CPU time without, 12 s with it). Does nothing except on Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)
