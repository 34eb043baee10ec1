"""Memory: the limit of this process, peaks, and the recognition of failed allocations."""

from __future__ import annotations

import contextlib
import math
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil
import torch

from robaudit.errors import RobauditError, SpecError
from robaudit.settings import MEMORY
from robaudit.system import give_back, group_memory, text

CPU = torch.device("cpu")
# Share of the free memory, unless the user names an amount: the machine has other work, too.
_FREE_SHARE = 0.8
_LEAST = 2**26  # bytes; with less, nothing can be computed
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
# Messages of torch, its libraries and ONNX Runtime, provoked with RLIMIT_AS and RLIMIT_DATA on the
# CPU. The last, of oneDNN, names no cause, but a network that has run once fails to create another
# primitive only for lack of memory.
_MESSAGES = re.compile(
    r"out of memory|not enough memory|(?:can't|cannot|failed to) "
    r"allocate|bad_alloc|ALLOC(?:ATION)?_FAILED"
    r"|could not (?:create|execute) a primitive\s*$",
    re.IGNORECASE | re.MULTILINE,
)


def memory_limit(requested: int | Literal["auto"], share: float = 1.0) -> int:
    """Bytes of main memory that this process may hold.

    They are the bytes that it holds and four fifths of the free memory, or the requested amount.
    The limit never exceeds what the machine and the control groups of the process leave free. Call
    it after the model is loaded.

    Args:
        requested: total bytes that the process may hold, or "auto".
        share: share of the free memory for one of several processes on this machine; a requested
            amount applies to each of them.

    Raises:
        SpecError: the process already holds as much as the user allows.
        RobauditError: it already holds as much as the system allows.
    """
    give_back()  # freed blocks would count as held
    held = used()
    free = int(share * min(psutil.virtual_memory().available, group_memory()))
    room = int(_FREE_SHARE * free) if requested == "auto" else min(free, requested - held)
    if room < _LEAST:
        # Somewhat more than is needed, in whole units of 100 MB, so that the next try succeeds.
        enough = math.ceil((1.2 * held + 4 * _LEAST) / 1e8) * 10**8
        remedy = f"give at least {size_text(enough)}"
        if requested != "auto" and requested - held < _LEAST:
            raise SpecError(
                MEMORY + f" {size_text(requested)}",
                f"the process alone holds {size_text(held)}",
                remedy,
            )
        raise RobauditError(
            "memory",
            f"{size_text(max(0, free))} are free beside the {size_text(held)} that the process "
            "holds",
            remedy,
        )
    return held + room


def used(device: torch.device = CPU) -> int:
    """Bytes in use now: resident, or allocated on a CUDA device."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def free_bytes(device: torch.device) -> int:
    """Free bytes of a CUDA device, including torch's cached memory."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def reset_peak(device: torch.device = CPU) -> None:
    """Start measuring :func:`peak`.

    Only Linux can reset a process's peak; elsewhere an earlier, higher peak counts.
    """
    give_back()
    if device.type != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")  # resets VmHWM: see man 5 proc


def peak(device: torch.device = CPU) -> int:
    """The most bytes in use at once since :func:`reset_peak`."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    match = re.search(r"^VmHWM:\s+(\d+) kB", text(_STATUS), re.MULTILINE)
    if match:
        return 1024 * int(match[1])
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else 1024 * highest  # macOS counts in bytes


def extra_peak(work: Callable[[], object], device: torch.device = CPU) -> int:
    """Peak memory of a function's work on a device, in bytes beyond the memory in use before."""
    reset_peak(device)
    before = used(device)
    work()
    return max(0, peak(device) - before)


def size_text(size: int) -> str:
    """Bytes in a readable unit: 412MB, 1.5GB."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g}{name}"
    return f"{size} bytes"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or its cause, reports a failed allocation of main memory or of a
    device's memory.

    Leave the ``except`` block before retrying with less: the traceback keeps the tensors of the
    attempt alive.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # Our own errors may quote anything, such as the name of a file; their cause decides.
    if not isinstance(error, RobauditError) and _MESSAGES.search(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)
