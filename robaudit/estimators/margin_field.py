"""Logits of perturbed images and gradients of their differences, in full batches."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.estimators.engine import padded
from robaudit.estimators.work import Work


class MarginField:
    """The network at points about a chunk's images, for searches whose decisions hang on the last digits.

    Args:
        work: the chunk.
        y: a class of each image (images,), int64.
    """

    def __init__(self, work: Work, y: Tensor) -> None:
        self._model, self._y = work.engine.model, y
        shape = work.x.shape[1:]
        self._classes = work.classes
        self._rows = work.engine.steady(work.engine.rows(shape))
        self._gradient_rows = work.engine.steady(work.engine.gradient_rows(shape, 1))

    def logits(self, image: Tensor, pixels: Tensor) -> Tensor:
        """Logits (rows, classes) of pixels (rows, channels, height, width); no number that is not finite: minus infinity instead."""
        found = pixels.new_empty(len(pixels), self._classes)
        for out, part in zip(found.split(self._rows), pixels.split(self._rows), strict=True) if len(pixels) else ():
            with torch.inference_mode():
                out.copy_(self._model(padded(part, self._rows))[: len(part)])
        return found.nan_to_num(-torch.inf, torch.inf, -torch.inf)

    def slopes(self, image: Tensor, pixels: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the gradient of z_j - z_y with respect to the pixels.

        Args:
            image: of each row, an index into the chunk (rows,), int64.
            pixels: (rows, channels, height, width).
            to: class j of each row (rows,), int64.
        """
        rows = self._gradient_rows
        found, slopes = pixels.new_empty(len(pixels), self._classes), torch.empty_like(pixels)
        for start in range(0, len(pixels), rows):
            part = slice(start, start + rows)
            x = padded(pixels[part], rows).detach().clone().requires_grad_(True)
            j, y = padded(to[part], rows), self._y[padded(image[part], rows)]
            with torch.enable_grad():
                logits = self._model(x)
            weights = torch.zeros_like(logits).scatter_(1, j[:, None], 1.0).scatter_(1, y[:, None], -1.0)
            (slope,) = torch.autograd.grad(logits, x, weights) if logits.requires_grad else (torch.zeros_like(x),)
            out = slopes[part]
            out.copy_(slope[: len(out)])
            found[part] = logits.detach()[: len(out)]
        return found.nan_to_num(-torch.inf, torch.inf, -torch.inf), slopes
