"""Memory: how much a process may hold, how much work takes at its peak, and how to recognise a failed allocation."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import psutil
import torch

from robaudit.cgroups import memory_limits, text
from robaudit.errors import RobauditError, SpecError

Counted = Literal["rss", "vms", "data"]
"""What a limit counts, in psutil's names: resident memory, address space, or data segment."""

CPU = torch.device("cpu")
_FREE_SHARE = 0.8  # of what is free now, unless the user names an amount: the machine has other work, too
_CHUNK_SHARE = 0.5  # of what the process may still take: images differ, and the C library leaves gaps between blocks
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # glibc accepts no more
_KEEP = 2**31 - 1
_LEAST = 2**26  # bytes; with less, nothing can be computed
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PROCESS_LIMITS: tuple[tuple[str, Counted], ...] = (("RLIMIT_AS", "vms"), ("RLIMIT_DATA", "data"), ("RLIMIT_RSS", "rss"))
# Messages of torch, its libraries and ONNX Runtime, provoked with RLIMIT_AS and RLIMIT_DATA on the CPU. oneDNN's (the last) names no
# cause, but a network that has run once fails to create another primitive only for lack of memory.
_MESSAGES = re.compile(
    r"out of memory|not enough memory|(?:can't|cannot|unable to|failed to|could not) allocate|bad_alloc|bad allocation"
    r"|ALLOC_FAILED|ALLOCATION_FAILED|could not (?:create|execute) a primitive\s*$",
    re.IGNORECASE | re.MULTILINE,
)


class Limit(NamedTuple):
    """The most bytes that this process may hold.

    Attributes:
        bytes: in total, including those it already holds.
        source: what sets the limit, for messages.
        counts: which bytes count.
        asked: whether the user set it.
    """

    bytes: int
    source: str
    counts: Counted = "rss"
    asked: bool = False

    @property
    def left(self) -> int:
        """Bytes that the process may still take."""
        return self.bytes - used(self.counts)

    def shared(self, share: float) -> Limit:
        """The limit for one of several such processes on this machine; one that the user set counts for each of them."""
        return self if self.asked else self._replace(bytes=self.bytes - int((1 - share) * self.left))


def memory_limit(asked: int | Literal["auto"]) -> Limit:
    """The tightest limit on this process: the one asked for (or four fifths of what is free), and every one that the system sets.

    Call it after the model is loaded: what matters is what remains beside it. Freed blocks that the C library keeps are returned first.

    Args:
        asked: bytes that the process may use in total, or "auto".

    Raises:
        SpecError: the process already holds as much as the user allows.
        RobauditError: it already holds as much as the system allows.
    """
    give_back()
    if asked == "auto":
        known = [limit._replace(bytes=limit.bytes - int((1 - _FREE_SHARE) * limit.left)) for limit in limits()]
    else:
        known = [*limits(), Limit(asked, f"--memory {size_text(asked)}", asked=True)]
    tightest = min(known, key=lambda limit: limit.left)
    if tightest.left < _LEAST:
        now = used(tightest.counts)
        least = size_text(math.ceil((1.2 * now + 4 * _LEAST) / 1e8) * 10**8)
        error = SpecError if tightest.asked else RobauditError
        allowed = "" if tightest.asked else f"allows {size_text(tightest.bytes)}, and "
        raise error(tightest.source, f"{allowed}the process alone holds {size_text(now)}", f"give at least {least}")
    return tightest


def limits(root: Path = Path("/")) -> list[Limit]:
    """Every limit that the system sets: the machine's free memory, the process's resource limits, and those of its control groups.

    Args:
        root: where /proc and the control groups are mounted, for tests.
    """
    process = psutil.Process().memory_info()
    known = [Limit(int(psutil.virtual_memory().available + process.rss), "the machine's free memory")]
    for name, counts in _PROCESS_LIMITS:
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            known.append(Limit(soft, name, counts))
    own = process.rss - getattr(process, "shared", 0)
    return known + [Limit(most, f"the control group's {name}") for name, most in memory_limits(own, root)]


def used(counts: Counted = "rss") -> int:
    """Bytes that this process holds now."""
    now = psutil.Process().memory_info()
    return int(getattr(now, counts, now.rss))


def give_back() -> None:
    """Return to the system the freed blocks that the C library keeps."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class Headroom:
    """Free memory on a device, and how much of it work takes.

    Args:
        device: where the work is done.
        limit: what the process may hold in main memory; on a CUDA device the device's free memory counts instead.

    Attributes:
        free: bytes for a chunk of images and its passes: half of what was free at the start.
    """

    def __init__(self, device: torch.device, limit: Limit) -> None:
        give_back()
        self._device, self._before = device, _in_use(device)
        self.free = max(0, int(_CHUNK_SHARE * (limit.left if device.type == "cpu" else free_bytes(device))))

    def watch(self) -> None:
        """Start measuring the peak."""
        _reset_peak(self._device)

    def taken(self) -> int:
        """Bytes in use at the peak since :meth:`watch`, beyond those in use at the start."""
        return max(0, _peak(self._device) - self._before)


def extra_peak(work: Callable[[], object], device: torch.device = CPU) -> int:
    """Bytes that work takes on a device at its peak, beyond those in use before.

    Only Linux can reset the peak of a process; elsewhere an earlier, higher peak makes the answer too large.
    """
    give_back()
    before = _in_use(device)
    _reset_peak(device)
    work()
    return max(0, _peak(device) - before)


def _in_use(device: torch.device) -> int:
    """Bytes in use now: by the process, or allocated on a CUDA device."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    return used()


def free_bytes(device: torch.device) -> int:
    """Free bytes of a CUDA device, including those that torch's allocator keeps for later."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _reset_peak(device: torch.device) -> None:
    if device.type != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def _peak(device: torch.device) -> int:
    if device.type != "cpu":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    if match := re.search(r"^VmHWM:\s+(\d+) kB", text(_STATUS), re.MULTILINE):
        return 1024 * int(match[1])
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else 1024 * highest


def size_text(size: int) -> str:
    """Bytes as people write them: 412MB, 1.5GB."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g}{name}"
    return f"{size} bytes"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or its cause, says that memory could not be allocated: main memory or a device's.

    Leave the ``except`` block before retrying with less: the traceback keeps the tensors of the attempt alive.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RobauditError) and _MESSAGES.search(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks instead of returning them to the kernel.

    A convolutional network frees and allocates the same megabytes in every pass, and the page faults of new blocks take up to half
    of the time (measured on the embedded networks: 23 s of CPU time without, 12 s with it). It affects speed only, and the whole
    process: the Python API leaves its caller's alone. Does nothing except on Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)
