"""Logits of perturbed images and gradients of their differences, in full batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.engine import padded


class MarginField:
    """The network at points near a chunk's images, for searches whose decisions depend on the last digits.

    Args:
        batch: the chunk.
        y: a class of each image (images,), int64.
    """

    def __init__(self, batch: ImageBatch, y: Tensor) -> None:
        self._model, self._y = batch.engine.model, y
        shape = batch.x.shape[1:]
        self._classes = batch.classes
        self._rows = batch.engine.steady(batch.engine.rows(shape))
        self._gradient_rows = batch.engine.steady(batch.engine.gradient_rows(shape, 1))

    def logits(self, image: Tensor, pixels: Tensor) -> Tensor:
        """Logits (rows, classes) of pixels (rows, channels, height, width); minus infinity where not finite."""
        parts = [self._passed(part) for part in pixels.split(self._rows)] if len(pixels) else [pixels.new_empty(0, self._classes)]
        return _joined(parts).nan_to_num(-torch.inf, torch.inf, -torch.inf)

    def slopes(self, image: Tensor, pixels: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the gradient of z_j - z_y with respect to the pixels.

        Args:
            image: of each row, an index into the chunk (rows,), int64.
            pixels: (rows, channels, height, width).
            to: class j of each row (rows,), int64.
        """
        rows = self._gradient_rows
        found = [self._sloped(*part) for part in zip(image.split(rows), pixels.split(rows), to.split(rows), strict=True)]
        logits, slopes = (_joined(parts) for parts in zip(*found, strict=True))
        return logits.nan_to_num(-torch.inf, torch.inf, -torch.inf), slopes

    def _passed(self, pixels: Tensor) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self._model(padded(pixels, self._rows))
        return logits[: len(pixels)]

    def _sloped(self, image: Tensor, pixels: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """One pass; padding rows have no weight."""
        n = len(pixels)
        x = padded(pixels, self._gradient_rows).detach().requires_grad_(True)
        with torch.enable_grad():
            logits = self._model(x)
        weights = torch.zeros_like(logits)
        weights[:n].scatter_(1, to[:, None], 1.0).scatter_(1, self._y[image][:, None], -1.0)
        (slope,) = torch.autograd.grad(logits, x, weights) if logits.requires_grad else (torch.zeros_like(x),)
        return logits.detach()[:n], slope[:n]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
