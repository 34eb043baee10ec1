"""How many images go through the network at once on the CPU, by the memory that passes of a few were measured to take?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robaudit.budget import is_out_of_memory
from robaudit.estimators.engine import GRADIENT_BYTES, Fitting, rows_by_rule
from robaudit.machine_memory import extra_peak
from robaudit.models import LogitModel

_FEW = 8  # rows of a batch whose bits do not depend on their number: multiples of it
_SHARE = 0.5  # of the room goes to passes, the rest to the chunk
_CAUTION = 4  # a batch may take more than as many single rows: libraries choose another way of computing it
_COPIES = 3  # of the gradients of a pass: as they are, and once more in float64


def fitting_passes(noisy: LogitModel, exact: LogitModel | None, image: Tensor, classes: int, free: int) -> Fitting:
    """What fits into half of the free bytes; all that the engine wants where that is clear from passes of a single row.

    Args:
        noisy: the network of noisy passes, on the CPU.
        exact: the network of passes that are differentiated; None if there are none.
        image: one image, for its shape.
        classes: number of logits.
        free: bytes for passes and the chunk.
    """
    wanted = rows_by_rule(image.shape, noisy.device)
    rows, taken = _fitting(lambda n: pass_bytes(noisy, image, n, gradient=False), wanted, free)
    if exact is None:
        return Fitting(rows, bytes=taken)
    few = max(1, (rows or wanted) // 4)
    gradient_rows, graph = _fitting(lambda n: pass_bytes(exact, image, n, gradient=True), few, free // 2)
    gradient_bytes = min(GRADIENT_BYTES, int(_SHARE * free) // (2 * _COPIES))
    margins = (gradient_rows or few) * (classes - 1) * image.numel() * exact.dtype.itemsize
    return Fitting(rows, gradient_rows, gradient_bytes, max(taken, graph + _COPIES * min(gradient_bytes, margins)))


def pass_bytes(model: LogitModel, image: Tensor, rows: int, *, gradient: bool) -> int | None:
    """Bytes of main memory that a pass with so many rows takes at its peak, beyond those held before; None if it cannot be told.

    Args:
        model: on the CPU.
        image: (channels, height, width); all rows are copies of it.
        rows: how many.
        gradient: whether the pass is differentiated, too.
    """
    work = _differentiated if gradient else _forward
    return extra_peak(lambda: work(model, image, rows))


def _fitting(measure: Callable[[int], int | None], wanted: int, free: int) -> tuple[int | None, int]:
    """The most rows (None if as many as wanted fit) and what they take."""
    budget = int(_SHARE * free)
    measure(1)  # libraries take some work space for good
    one = measure(1)
    if one is None or wanted == 1:
        return None, one or 0
    if _CAUTION * one * wanted <= budget:
        return None, _CAUTION * one * wanted
    few = min(_FEW, wanted, max(2, budget // one))
    try:
        more = measure(few) or one * few
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        more = one * few
    each = max(1, (more - one) // (few - 1))
    fixed = max(0, more - few * each)
    most = (budget - fixed) // each
    if most < _FEW <= wanted and fixed + _FEW * each <= free:
        most = _FEW  # rather less for the chunk
    most = max(1, min(most, wanted))
    return None if most == wanted else most, fixed + each * most


def _batch(model: LogitModel, image: Tensor, rows: int) -> Tensor:
    return image.to(model.dtype).expand(rows, *image.shape).contiguous(memory_format=model.memory_format)


def _forward(model: LogitModel, image: Tensor, rows: int) -> None:
    with torch.inference_mode():
        model(_batch(model, image, rows))


def _differentiated(model: LogitModel, image: Tensor, rows: int) -> None:
    with torch.enable_grad():
        x = _batch(model, image, rows).detach().requires_grad_(True)
        torch.autograd.grad(model(x)[:, 0].sum(), x)
