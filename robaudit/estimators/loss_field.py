"""The loss of an image under its noise, as a function of the normal variables or of the pixels."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robaudit.estimators.engine import padded
from robaudit.estimators.work import Work
from robaudit.numerics.losses import log_cross_entropy


class LossField:
    """log l of noisy copies of a chunk's images, l the cross-entropy against a class, with gradients, in full batches.

    Passes are in the model's full precision. An image of which any copy had logits that are not finite is remembered.

    Args:
        work: the chunk.
        target: the class of each image (images,), int64.

    Attributes:
        broken: images with logits that were not finite (images,), bool.
    """

    def __init__(self, work: Work, target: Tensor) -> None:
        self._work, self._target = work, target
        shape = work.x.shape[1:]
        self._rows = work.engine.steady(work.engine.rows(shape))
        self._gradient_rows = work.engine.steady(work.engine.gradient_rows(shape, 1))
        self.broken = torch.zeros(len(work.x), dtype=torch.bool, device=work.x.device)

    def values(self, image: Tensor, z: Tensor) -> Tensor:
        """log l at the noisy images made of z.

        Args:
            image: indices into the chunk (rows,), int64.
            z: (rows, *latent_shape).

        Returns:
            (rows,), float64; minus infinity where the logits are not finite.
        """
        work, rows = self._work, self._rows
        values = torch.empty(len(z), dtype=torch.float64, device=z.device)
        for part in torch.arange(len(z), device=z.device).split(rows):
            full = padded(part, rows)
            with torch.inference_mode():
                logits = work.model(work.pixels(image[full], z[full]))
                values[part] = log_cross_entropy(logits, self._target[image[full]])[0][: len(part)]
        return self._checked(image, values)

    def slopes(self, image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """log l and its gradient with respect to z (rows, *latent_shape), of the type of z; see :meth:`values`.

        Where the noise gives its derivative, the network alone is recorded.
        """
        work = self._work

        def through(b: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            derivative = work.derivative(z)
            if derivative is None:
                return self._recorded(b, z, work.pixels)
            value, slope = self._recorded(b, work.pixels(b, z), _same)
            return value, slope.contiguous().mul_(derivative)

        return self._differentiated(image, z, through)

    def pixel_slopes(self, image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """log l and its gradient with respect to the pixels (rows, channels, height, width) of images that are given themselves."""
        return self._differentiated(image, pixels, lambda b, points: self._recorded(b, points.clone(), _same))  # which begins a cache line

    def _differentiated(
        self, image: Tensor, points: Tensor, slopes: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        rows, found = self._gradient_rows, []
        for start in range(0, len(points), rows):
            part = slice(start, start + rows)
            found.append(slopes(padded(image[part], rows), padded(points[part], rows)))
        value, slope = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
        return self._checked(image, value[: len(points)]), slope[: len(points)].nan_to_num_(0.0, 0.0, 0.0)

    def _recorded(self, image: Tensor, points: Tensor, pixels: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """log l at the pixels made of the points, and its gradient with respect to the points."""
        points = points.detach().requires_grad_(True)
        with torch.enable_grad():
            logits = self._work.model(pixels(image, points))
        value, rate = log_cross_entropy(logits.detach(), self._target[image])
        (slope,) = torch.autograd.grad(logits, points, rate.to(logits.dtype))
        return value, slope

    def _checked(self, image: Tensor, values: Tensor) -> Tensor:
        if math.isfinite(values.sum().item()):
            return values
        finite = values.isfinite()
        self.broken[image[~finite]] = True
        return torch.where(finite, values, -torch.inf)


def _same(_: Tensor, pixels: Tensor) -> Tensor:
    return pixels
