"""The soft vote of a network over fixed noisy copies of each point, with gradients: log of the mean softmax."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.engine import padded
from robaudit.noise.base import shape_of
from robaudit.numerics.rowwise import fold, total

_LEAST = -1e4  # log share of every class in copies with non-finite logits


class _Shares(NamedTuple):
    """The softmax of the copies of some points.

    Attributes:
        log_softmax: (points, copies, classes), float64.
        log_mean: log of the mean over copies (points, classes).
    """

    log_softmax: Tensor
    log_mean: Tensor


class VoteField:
    """Logits of the smoothed network: log p_c, p_c the mean over copies of the softmax.

    All points of an image use the same offsets, so that a search sees a fixed smooth function. Its
    boundary is near the vote's, not on it: only fresh draws can tell the class of the vote.

    Args:
        batch: the chunk; its noise does not depend on the pixels.
        y: a class of each image (images,), int64.
        offsets: the noise of each image's copies (images, copies, channels, height, width).
        handicap: added to the logit of class y of each image (images,), float64.
    """

    def __init__(self, batch: ImageBatch, y: Tensor, offsets: Tensor, handicap: Tensor) -> None:
        self._model, self._classes = batch.model, batch.classes
        self._y, self._offsets, self._handicap = y, offsets, handicap
        shape, copies = batch.x.shape[1:], offsets.shape[1]
        engine = batch.engine
        self._rows = engine.steady(engine.rows(shape))
        self._gradient_rows = engine.steady(engine.gradient_rows(shape, 1))
        self._points, self._gradient_points = max(1, self._rows // copies), max(1, self._gradient_rows // copies)

    def logits(self, image: Tensor, pixels: Tensor) -> Tensor:
        """log p_c, float64 (points, classes), with the handicap.

        Args:
            image: of each point, an index into the chunk (points,), int64.
            pixels: (points, channels, height, width).
        """
        found = torch.empty((len(pixels), self._classes), dtype=torch.float64, device=pixels.device)
        for part in torch.arange(len(pixels), device=pixels.device).split(self._points) if len(pixels) else ():
            found[part] = self._handicapped(image[part], self._shares(self._copies(image[part], pixels[part]), len(part)).log_mean)
        return found

    def slopes(self, image: Tensor, pixels: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the gradient of log p_j - log p_y with respect to the pixels.

        Args:
            image, pixels: as before.
            to: class j of each point (points,), int64.
        """
        found = torch.empty((len(pixels), self._classes), dtype=torch.float64, device=pixels.device)
        slopes = torch.empty_like(pixels)
        for part in torch.arange(len(pixels), device=pixels.device).split(self._gradient_points) if len(pixels) else ():
            log_mean, slopes[part] = self._differentiated(image[part], pixels[part], to[part])
            found[part] = self._handicapped(image[part], log_mean)
        return found, slopes

    def _handicapped(self, image: Tensor, log_mean: Tensor) -> Tensor:
        own = torch.arange(self._classes, device=image.device) == self._y[image][:, None]
        return log_mean + own * self._handicap[image][:, None]

    def _copies(self, image: Tensor, pixels: Tensor) -> Tensor:
        """(points * copies, channels, height, width), copies of a point adjacent."""
        return (pixels[:, None] + self._offsets[image]).flatten(0, 1)

    def _shares(self, copies: Tensor, points: int) -> _Shares:
        raw = torch.empty((len(copies), self._classes), dtype=torch.float64, device=copies.device)
        for out, part in zip(raw.split(self._rows), copies.split(self._rows), strict=True):
            with torch.inference_mode():
                out.copy_(self._model(padded(part, self._rows))[: len(part)])
        return _shares_of(raw, points)

    def _differentiated(self, image: Tensor, pixels: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """log p_c, and the gradient."""
        copies, points = self._copies(image, pixels), len(pixels)
        parts = copies.split(self._gradient_rows)
        known = self._shares(copies, points) if len(parts) > 1 else None  # the weight of a copy depends on all of them
        gradients, start = [], 0
        for part in parts:
            x = padded(part, self._gradient_rows).detach().clone().requires_grad_(True)
            with torch.enable_grad():
                logits = self._model(x)
            shares = known or _shares_of(logits.detach()[: len(part)].double(), points)
            rates = _rates(shares, to, self._y[image]).flatten(0, 1)[start : start + len(part)]
            weights = torch.zeros_like(logits)
            weights[: len(part)] = rates.to(logits.dtype)
            (slope,) = torch.autograd.grad(logits, x, weights) if logits.requires_grad else (torch.zeros_like(x),)
            gradients.append(slope[: len(part)])
            start += len(part)
        whole = torch.cat(gradients) if len(gradients) > 1 else gradients[0]
        slopes = fold(whole.unflatten(0, (points, -1)).movedim(1, 0).clone(memory_format=torch.contiguous_format))
        return shares.log_mean, slopes.nan_to_num(0.0, 0.0, 0.0)


def _shares_of(logits: Tensor, points: int) -> _Shares:
    finite = logits.isfinite().all(1, keepdim=True)
    log_softmax = torch.where(finite, logits.log_softmax(1).clamp_min(_LEAST), _LEAST).unflatten(0, (points, -1))
    highest = log_softmax.amax(1)
    mean = total((log_softmax - highest[:, None]).exp(), 1) / log_softmax.shape[1]
    return _Shares(log_softmax, highest + mean.log())


def _rates(shares: _Shares, to: Tensor, y: Tensor) -> Tensor:
    """d (log p_j - log p_y) / d logits of every copy (points, copies, classes)."""
    copies, classes = shares.log_softmax.shape[1:]
    softmax, every = shares.log_softmax.exp(), torch.arange(classes, device=to.device)

    def of(label: Tensor) -> Tensor:
        column = label[:, None, None].expand(-1, copies, 1)
        weight = (shares.log_softmax.gather(2, column) - shares.log_mean.gather(1, label[:, None])[:, None]).exp() / copies
        return weight * ((every == label[:, None, None]).double() - softmax)

    return of(to) - of(y)


def offsets_of(batch: ImageBatch, purpose: str, images: Tensor, copies: int) -> Tensor:
    """The noise alone of some images' copies (images, copies, channels, height, width), unclipped; drawn for one purpose.

    The noise must not depend on the pixels.
    """
    still = batch.x.new_zeros((1, *shape_of(batch.x)))
    found = batch.x.new_empty((len(images), copies, *shape_of(batch.x)))
    for out, image in zip(found, images.tolist(), strict=True):
        z = torch.cat([*batch.normals(purpose, image, copies)])
        out.copy_(batch.noise.noisy(still, z, batch.level, ids=[batch.ids[image]]))
    return found
