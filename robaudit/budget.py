"""How much memory may a run take, how much of it is free, and how many images fit?"""

from __future__ import annotations

import errno
import math
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from robaudit.errors import RobauditError, SpecError
from robaudit.machine_memory import Limit, give_back, limits, used

if TYPE_CHECKING:
    from robaudit.plan import Task

__all__ = ["Limit", "chunk_images", "is_out_of_memory", "memory_limit", "memory_used", "needs", "room"]

_FREE_SHARE = 0.8  # of what is free now, unless the user names an amount: the machine has other work, too
# Of the room under a limit. The rule counts tensors. What it does not see: the libraries' work space (oneDNN, BLAS), the C library's gaps
# between blocks, Python's own objects, the part that is being written and the images that are read ahead.
_SAFE_SHARE = 0.8
_LEAST = 2**26  # below it nothing can be computed
_PIXEL_BYTES = 24  # of a value of an image: as the data set gives it (float64, 8), in the network's type twice (float64, 16)
_CLEAN_BYTES = 64  # for each class: the clean logits and margins in float64, and their indices


def memory_limit(asked: int | Literal["auto"]) -> Limit:
    """The limit that leaves this process the least: what is asked, or four fifths of what is free, and all that the system sets.

    To be asked when the model is loaded: what counts is the room beyond it.

    Args:
        asked: bytes that the process may use in all, or "auto".

    Raises:
        RobauditError: the process holds as much already.
    """
    if asked == "auto":
        found = [Limit(_spared(limit), limit.source, limit.counts) for limit in limits()]
    else:
        found = [*limits(), Limit(asked, f"--memory {size_text(asked)}")]
    if not found:
        return Limit(sys.maxsize, "no limit is known")
    tightest = min(found, key=lambda limit: limit.bytes - used(limit.counts))
    now = memory_used(tightest)
    if now + _LEAST > tightest.bytes:
        least = size_text(math.ceil((1.2 * now + 4 * _LEAST) / 1e8) * 10**8)
        error = SpecError if tightest.source.startswith("--memory") else RobauditError
        allowed = "" if error is SpecError else f"allows {size_text(tightest.bytes)}, and "
        raise error(tightest.source, f"{allowed}the process alone holds {size_text(now)}", f"give at least {least}")
    return tightest


def memory_used(limit: Limit) -> int:
    """Bytes that this process holds now, as the limit counts them; freed blocks that the C library keeps are given back first."""
    give_back()
    return used(limit.counts)


def room(limit: Limit) -> int:
    """Bytes that are free for work under a limit: four fifths of what is left."""
    return max(0, int(_SAFE_SHARE * (limit.bytes - memory_used(limit))))


def needs(tasks: Sequence[Task], classes: int, values: int) -> tuple[int, int]:
    """Bytes that a chunk takes once, and for each of its images; passes through the network not counted.

    Estimators of one noise level share what they hold until the level is done, so their needs add up.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: of one image: channels * height * width; with float64 pixels twice as many.
    """
    levels: dict[float, int] = defaultdict(int)
    once = 0
    for task in tasks:
        estimator = task.chosen.estimator
        levels[task.sigma] += estimator.held(classes, values)
        once = max(once, estimator.held_once(classes, values))
    return once, max(levels.values(), default=0) + _PIXEL_BYTES * values + _CLEAN_BYTES * classes


def chunk_images(free: int, tasks: Sequence[Task], classes: int, values: int) -> int:
    """Images that can be computed at once in so many free bytes, 1 at least: a rule of its arguments, which are those of `needs`."""
    once, each = needs(tasks, classes, values)
    return max(1, (free - once) // each)


def size_text(size: int) -> str:
    """Bytes as people write them: 412MB, 1.5GB."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g}{name}"
    return f"{size} bytes"


# What torch, its libraries and ONNX Runtime say; provoked with RLIMIT_AS and RLIMIT_DATA on the CPU. oneDNN's message (the last) names no
# cause, but a network that ran before fails to create another primitive for want of memory only.
_MESSAGES = re.compile(
    r"out of memory|not enough memory|(?:can't|cannot|unable to|failed to|could not) allocate|bad_alloc|bad allocation"
    r"|ALLOC_FAILED|ALLOCATION_FAILED|could not (?:create|execute) a primitive\s*$",
    re.IGNORECASE | re.MULTILINE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory could not be allocated: main memory or a device's, by itself or by its cause.

    Leave the ``except`` block before trying with less: the traceback holds the tensors of the attempt.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RobauditError) and _MESSAGES.search(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def _spared(limit: Limit) -> int:
    now = used(limit.counts)
    return now + int(_FREE_SHARE * (limit.bytes - now))
