"""Settings of the command line's process: how threads wait, how many there are, and whether freed memory is kept.

They affect speed only, and this process only: the Python API leaves its caller's process alone.
"""

from __future__ import annotations

import contextlib
import os
import sys

from robaudit.cgroups import cores

_WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS = "2000"  # about 50 microseconds; GNU's default is 300,000, and with 0 the embedded network takes a third longer on a quiet machine
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # glibc accepts no more
_KEEP = 2**31 - 1


def share_cores() -> None:
    """Let waiting threads sleep soon, and start no more threads than this process has cores; call it before torch is imported.

    OpenMP's threads spin while they wait for each other. Where another process wants the cores, a spinning thread keeps the one it
    waits for from running, and small networks become many times slower (docs/benchmarks.md, "Busy machines"). GNU's runtime, which
    comes with torch's wheels for Linux, reads how long to spin when it is loaded. OpenMP itself starts one thread for each core that
    this process may run on; a control group's quota may allow fewer (a container with two cores' worth of time on a machine of 64).
    The user's own settings take precedence.
    """
    if not any(name in os.environ for name in _WAIT_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    if "OMP_NUM_THREADS" not in os.environ and (most := cores()) < (os.cpu_count() or 1):
        os.environ["OMP_NUM_THREADS"] = str(most)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks instead of returning them to the kernel.

    A convolutional network frees and allocates the same megabytes in every pass, and the page faults of new blocks take up to half
    of the time (measured on the embedded networks: 23 s of CPU time without, 12 s with it). Does nothing except on Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)
