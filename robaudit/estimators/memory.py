"""How many images go through the network at once on a CUDA device, by the memory it was measured to need?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robaudit.estimators.engine import rows_by_rule
from robaudit.models import LogitModel

_FEW, _MORE = 8, 64
_SHARE = 0.5  # of the free memory: noise, votes and the allocator's gaps need some too


def most_rows(free: int, few: int, more: int) -> int:
    """Rows that fit into half of the free memory, by the peaks (bytes) of 8 and of 64 rows: a fixed part and one for each row.

    Args:
        free: bytes.
        few: peak of 8 rows.
        more: peak of 64 rows.
    """
    each = max(1, (more - few) // (_MORE - _FEW))
    fixed = max(0, few - _FEW * each)
    return max(1, int(_SHARE * free - fixed) // each)


def free_bytes(device: torch.device) -> int:
    """Bytes of a CUDA device that a chunk may take beside the passes through the network: a quarter of what is free."""
    free, _ = torch.cuda.mem_get_info(device)
    return (free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)) // 4


def measured_rows(model: LogitModel, image: Tensor) -> int | None:
    """Rows of images like this one that a forward pass may take on the model's CUDA device; None on the CPU, where the rule is fixed.

    Two short passes, with the allocator's own count of bytes.
    """
    if model.device.type != "cuda":
        return None
    few = _peak(model.device, lambda: _pass(model, image, _FEW))
    try:
        more = _peak(model.device, lambda: _pass(model, image, _MORE))
    except torch.OutOfMemoryError:
        return _FEW
    free, _ = torch.cuda.mem_get_info(model.device)
    return min(most_rows(free, few, more), rows_by_rule(image.shape, model.device))


def _pass(model: LogitModel, image: Tensor, rows: int) -> None:
    x = image.to(model.device, model.dtype).expand(rows, *image.shape).contiguous(memory_format=model.memory_format)
    with torch.inference_mode():
        model(x)


def _peak(device: torch.device, work: Callable[[], None]) -> int:
    """Bytes that work allocates at its peak beyond those held before; run once beforehand, as libraries keep workspaces."""
    work()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
