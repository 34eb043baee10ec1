"""Measure how a network's logits depend on the batch: not at all, by rounding, or on the other
images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from robaudit.engine.passes import Engine
from robaudit.memory import is_out_of_memory
from robaudit.models.logits import LogitModel
from robaudit.numerics.margins import NEVER, margin_gradients
from robaudit.runs.info import RowBits, Rows

IMAGES = 7
"""How many images are compared: an odd number, so that each appears at every place of a batch."""
_EVERY = (
    128  # batches up to this size are all tried; of larger ones, the powers of two and the largest
)
_MIXED = 1e-3  # of the logits' spread: more than rounding
_SIGMA = 0.1
_RANDOM = 1e-4  # the same, for two passes of the same batch

_Values = Callable[[LogitModel, Tensor], Tensor]


def check_rows(engine: Engine, images: Tensor, *, gradients: bool) -> tuple[Rows, list[str]]:
    """Compare an image's logits in batches of the sizes that a run uses, bit for bit, and warn of
    results that are not reproducible.

    On the CPU, libraries choose their kernels by the number of rows, and each sums in another
    order. Whether they do depends on the processor, the library and the network, so it is measured.

    Args:
        engine: of the run.
        images: a few images (n, channels, height, width); the first seven are used.
        gradients: whether an estimator of the run needs them.
    """
    x = images[:IMAGES].to(engine.model.device, engine.model.dtype)
    sizes = engine.batch_sizes(x.shape[1:])
    logits, again = (_in_batches(engine.model, x, sizes[0], _logits) for _ in range(2))
    # among copies of itself
    alone = torch.cat([_in_batches(engine.model, image, sizes[0], _logits) for image in x.split(1)])
    spread = _spread(logits)
    random = not torch.allclose(logits, again, rtol=0, atol=_RANDOM * spread, equal_nan=True)
    mixed = not random and not torch.allclose(
        logits, alone, rtol=0, atol=_MIXED * spread, equal_nan=True
    )
    # a sum of zeros is not rounded
    noisy = x + _SIGMA * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    largest = max(_difference(model, noisy, sizes, _logits) for model in engine.models)
    if gradients:
        largest = max(
            largest,
            _difference(
                engine.model, noisy, engine.batch_sizes(x.shape[1:], gradients=True), _gradients
            ),
        )
    bits = RowBits.MIXED if mixed else RowBits.ROUNDING if largest > 0 else RowBits.BITWISE
    warnings = list[str]()
    name = engine.model.name
    if random:
        what = "something in it is random or keeps state, and results will not be reproducible"
        warnings.append(f"{name}: the same images give other logits the second time; {what}")
    elif mixed:
        warnings.append(
            f"{name}: an image's logits depend on the other images of its batch; results depend "
            "on the batch size"
        )
    return Rows(kind=bits, largest_difference=largest), warnings


def tried(sizes: Sequence[int]) -> list[int]:
    """The batch sizes to compare, of all that a run uses (ascending): each of the small ones, some
    of the large ones."""
    return [size for size in sizes if size <= _EVERY or size & (size - 1) == 0 or size == sizes[-1]]


def _logits(model: LogitModel, x: Tensor) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(x)
        return logits.clone()


def _gradients(model: LogitModel, x: Tensor) -> Tensor:
    """The gradient of the margin between the two largest logits: (rows, pixels)."""
    nearest = _logits(model, x).topk(2, dim=1).indices
    return margin_gradients(model, x, nearest[:, 0].clone(), nearest[:, 1:].clone())[2][:, 0]


def _difference(model: LogitModel, x: Tensor, sizes: Sequence[int], values: _Values) -> float:
    """The largest difference of an image's values between batches of these sizes, as a share of the
    spread of all values."""
    first = _in_batches(model, x, sizes[0], values)
    largest = 0.0
    spread = _spread(first)
    for size in tried(sizes):
        image = torch.arange(size, device=x.device) % len(x)
        try:
            apart = (values(model, x[image]) - first[image]).abs()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break  # the run will make do with smaller batches
        largest = max(largest, float(apart.nan_to_num(0.0, 0.0).max()))
    return largest / spread if spread else 0.0


def _in_batches(model: LogitModel, x: Tensor, rows: int, values: _Values) -> Tensor:
    """The values of images in batches of ``rows``, the last batch padded with copies of its last
    row."""
    parts = (
        (part, torch.cat([part, part[-1:].expand(rows - len(part), *x.shape[1:])]))
        for part in x.split(rows)
    )
    return torch.cat([values(model, full)[: len(part)] for part, full in parts])


def _spread(values: Tensor) -> float:
    """The range of the finite values, without the logits of masked classes."""
    finite = values[values.isfinite() & (values > NEVER)]
    return float(finite.max() - finite.min()) if len(finite) else 0.0
