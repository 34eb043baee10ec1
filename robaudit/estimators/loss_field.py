"""The loss of an image under its noise, as a function of the normal variables or of the pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.estimators.batch import ImageBatch, ImageRows
from robaudit.estimators.engine import padded
from robaudit.numerics.losses import log_cross_entropy


class _Part(NamedTuple):
    """The rows of one pass, a multiple of 8.

    Attributes:
        copies: their images.
        target: the class of each (rows,), int64.
    """

    copies: ImageRows
    target: Tensor


_Slopes = Callable[[_Part, Tensor], tuple[Tensor, Tensor]]
"""Rows and points -> log l and its gradient with respect to the points."""


class LossField:
    """log l of noisy copies of a chunk's images, l the cross-entropy against a class, with gradients, in full batches.

    Passes are in the model's full precision. Images with any non-finite logits are recorded in :attr:`broken`.

    Args:
        batch: the chunk.
        target: the class of each image (images,), int64.

    """

    def __init__(self, batch: ImageBatch, target: Tensor) -> None:
        self._batch, self._target = batch, target
        shape = batch.x.shape[1:]
        self._rows = batch.engine.steady(batch.engine.rows(shape))
        self._gradient_rows = batch.engine.steady(batch.engine.gradient_rows(shape, 1))
        self._image: Tensor | None = None
        self._parts: Sequence[_Part] = ()
        self._sums = torch.zeros(len(batch.x), dtype=torch.float64, device=batch.x.device)  # of log l: not finite where one was not

    @property
    def broken(self) -> Tensor:
        """Images with logits that were not finite (images,), bool."""
        return ~self._sums.isfinite()

    def values(self, image: Tensor, z: Tensor) -> Tensor:
        """log l at the noisy images made of z.

        Args:
            image: indices into the chunk (rows,), int64.
            z: (rows, *latent_shape).

        Returns:
            (rows,), float64; minus infinity where the logits are not finite.
        """
        batch, rows = self._batch, self._rows
        values = torch.empty(len(z), dtype=torch.float64, device=z.device)
        for part in torch.arange(len(z), device=z.device).split(rows):
            full = padded(part, rows)
            with torch.inference_mode():
                logits = batch.model(batch.pixels(image[full], z[full]))
                values[part] = log_cross_entropy(logits, self._target[image[full]])[0][: len(part)]
        return self._checked(image, values)

    def slopes(self, image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """log l and its gradient with respect to z (rows, *latent_shape), of the type of z; see :meth:`values`.

        If the noise gives its derivative, only the network is recorded. Chains call again and again with the same tensor of images,
        which must not change in between: its rows are looked up once.
        """
        if image is not self._image:
            parts = image.split(self._gradient_rows)
            self._image, self._parts = image, [self._part(padded(part, self._gradient_rows)) for part in parts]
        return self._differentiated(self._parts, image, z, self._through)

    def pixel_slopes(self, image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """log l and its gradient with respect to the pixels, for given pixels (rows, channels, height, width)."""
        parts = [self._part(padded(part, self._gradient_rows)) for part in image.split(self._gradient_rows)]
        copied = torch.clone  # aligned to a cache line
        return self._differentiated(parts, image, pixels, lambda part, points: self._recorded(part, copied(points), _same))

    def _part(self, image: Tensor) -> _Part:
        return _Part(self._batch.copies(image), self._target[image])

    def _differentiated(self, parts: Sequence[_Part], image: Tensor, points: Tensor, slopes: _Slopes) -> tuple[Tensor, Tensor]:
        if len(parts) == 1:
            value, slope = slopes(parts[0], padded(points, self._gradient_rows))
            value, slope = value[: len(points)], slope[: len(points)]
        else:
            value, slope = torch.empty(len(points), dtype=torch.float64, device=points.device), torch.empty_like(points)
            for part, some, v, s in zip(parts, *(x.split(self._gradient_rows) for x in (points, value, slope)), strict=True):
                for out, found in zip((v, s), slopes(part, padded(some, self._gradient_rows)), strict=True):
                    out.copy_(found[: len(out)])
        return self._checked(image, value), torch.nan_to_num(slope, 0.0, 0.0, 0.0)

    def _through(self, part: _Part, z: Tensor) -> tuple[Tensor, Tensor]:
        """log l and its gradient with respect to z."""
        derivative = self._batch.derivative(z)
        if derivative is None:
            return self._recorded(part, z, lambda points: self._batch.pixels_of(part.copies, points))
        pixels = self._batch.pixels_of(part.copies, z)
        value, slope = self._recorded(part, pixels, _same)
        return value, torch.mul(slope, derivative, out=pixels)

    def _recorded(self, part: _Part, points: Tensor, pixels: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """log l at the pixels made of the points, and its gradient with respect to the points."""
        points = points.detach().requires_grad_(True)
        with torch.enable_grad():
            logits = self._batch.model(pixels(points))
        value, rate = log_cross_entropy(logits.detach(), part.target)
        (slope,) = torch.autograd.grad(logits, points, rate.to(logits.dtype))
        return value, slope

    def _checked(self, image: Tensor, values: Tensor) -> Tensor:
        self._sums.index_add_(0, image, values)
        return values.nan_to_num(-torch.inf, -torch.inf, -torch.inf)


def _same(pixels: Tensor) -> Tensor:
    return pixels
