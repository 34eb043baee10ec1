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
"""Number of images that are compared: an odd number, so that each appears at every place of a
batch."""
# Batches up to this size are all tried; of larger ones, the powers of two and the largest.
_ALL_TRIED_UP_TO = 128
# Differences that rounding does not explain, relative to the spread of the logits: of an image
# among others and among copies of itself, and of two passes of the same batch.
_MIXED = 1e-3
_RANDOM = 1e-4
_SIGMA = 0.1  # of the noise on the images

_Values = Callable[[LogitModel, Tensor], Tensor]
"""Values of each row of a batch, from the model and the batch: logits, or gradients."""


def check_rows(engine: Engine, images: Tensor, *, gradients: bool) -> tuple[Rows, list[str]]:
    """Compare an image's logits in batches of the sizes that a run uses, bit for bit, and warn of
    results that are not reproducible.

    On the CPU, libraries choose their kernels by the number of rows, and each sums in another
    order. Whether they do depends on the processor, the library and the network, so it is measured.

    Args:
        engine: of the run.
        images: a few images (n, channels, height, width); the first seven are used.
        gradients: whether an estimator of the run needs them.

    Returns:
        The dependence, and warnings.
    """
    x = images[:IMAGES].to(engine.model.device, engine.model.dtype)
    sizes = engine.batch_sizes(x.shape[1:])
    logits = _in_batches(engine.model, x, sizes[0], _logits)
    repeated = _in_batches(engine.model, x, sizes[0], _logits)
    # Each image in a batch of copies of itself.
    alone = torch.cat([_in_batches(engine.model, image, sizes[0], _logits) for image in x.split(1)])
    spread = _spread(logits)
    random = not torch.allclose(logits, repeated, rtol=0, atol=_RANDOM * spread, equal_nan=True)
    # A random network would differ here, too.
    mixed = not random and not torch.allclose(
        logits, alone, rtol=0, atol=_MIXED * spread, equal_nan=True
    )
    # With noise, because sums of zeros, as in the background of digits, are never rounded.
    noisy = x + _SIGMA * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    largest = max(_difference(model, noisy, sizes, _logits) for model in engine.models)
    if gradients:
        gradient_sizes = engine.batch_sizes(x.shape[1:], gradients=True)
        largest = max(largest, _difference(engine.model, noisy, gradient_sizes, _gradients))
    if mixed:
        bits = RowBits.MIXED
    elif largest > 0:
        bits = RowBits.ROUNDING
    else:
        bits = RowBits.BITWISE
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
    chosen = []
    for size in sizes:
        is_small = size <= _ALL_TRIED_UP_TO
        is_power_of_two = size & (size - 1) == 0
        if is_small or is_power_of_two or size == sizes[-1]:
            chosen.append(size)
    return chosen


def _logits(model: LogitModel, x: Tensor) -> Tensor:
    """The logits (rows, classes)."""
    with torch.inference_mode():
        logits: Tensor = model(x)
        return logits.clone()


def _gradients(model: LogitModel, x: Tensor) -> Tensor:
    """The gradient of the margin between the two largest logits: (rows, pixels)."""
    nearest = _logits(model, x).topk(2, dim=1).indices
    # Copies, because autograd takes no tensors that were made in inference mode.
    return margin_gradients(model, x, nearest[:, 0].clone(), nearest[:, 1:].clone())[2][:, 0]


def _difference(model: LogitModel, x: Tensor, sizes: Sequence[int], values: _Values) -> float:
    """The largest difference of an image's values between batches of these sizes, as a share of the
    spread of all values."""
    first = _in_batches(model, x, sizes[0], values)
    largest = 0.0
    spread = _spread(first)
    for size in tried(sizes):
        # The images over and over: with an odd number of them, each comes to every place.
        image = torch.arange(size, device=x.device) % len(x)
        try:
            differences = (values(model, x[image]) - first[image]).abs()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break  # the run will make do with smaller batches
        # Logits that are not finite have no difference; the input check reports them.
        largest = max(largest, float(differences.nan_to_num(0.0, 0.0).max()))
    return largest / spread if spread else 0.0


def _in_batches(model: LogitModel, x: Tensor, rows: int, values: _Values) -> Tensor:
    """The values of images in batches of ``rows``, the last batch padded with copies of its last
    row."""
    results = []
    for part in x.split(rows):
        padding = part[-1:].expand(rows - len(part), *x.shape[1:])
        results.append(values(model, torch.cat([part, padding]))[: len(part)])
    return torch.cat(results)


def _spread(values: Tensor) -> float:
    """The range of the finite values, without the logits of masked classes."""
    finite = values[values.isfinite() & (values > NEVER)]
    if not len(finite):
        return 0.0
    return float(finite.max() - finite.min())
