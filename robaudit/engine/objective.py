"""Logits, and slopes of a margin or a loss, at points around a chunk's images, for attacks, chains
and other searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import padded
from robaudit.noise.noise import shape_of
from robaudit.numerics.log_losses import log_cross_entropy
from robaudit.numerics.rowwise import fold, total

_LEAST = -1e4  # log softmax of every class in copies with non-finite logits
_HEAD_START = 0.1  # of the target, in log odds, if the soft vote at the image is for another class

Functional = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits, indices of their rows) -> (a value of each row, the weights of the logits in the
slope)."""


class Objective:
    """Logits at points around images, and slopes with respect to the points, in full batches and in
    the model's full precision.

    Points are pixels (rows, channels, height, width), or, with ``latent``, the normal variables of
    noisy copies (rows, *latent_shape). Every method takes the image of each point: an index into
    ``images`` (rows,), int64. On the CPU a row has the same bits in any batch: the decisions of a
    search depend on the last digits.

    Args:
        batch: the chunk.
        target: the class of each image for margins and losses (images,), int64.
        images: indices into the chunk; None: all of it.
        latent: whether points are normal variables rather than pixels.
    """

    def __init__(
        self,
        batch: ImageBatch,
        target: Tensor,
        images: Tensor | None = None,
        *,
        latent: bool = False,
    ) -> None:
        everything = torch.arange(len(batch.x), device=batch.x.device)
        self._batch = batch
        self._target = target
        self._latent = latent
        self._images = everything if images is None else images
        self._rows, self._gradient_rows = batch.steady_rows()
        self._known: tuple[Tensor, list[tuple[Tensor, Sequence[str]]]] | None = None
        # of log l: not finite once a loss was not
        self._sums = torch.zeros(len(target), dtype=torch.float64, device=target.device)

    @property
    def broken(self) -> Tensor:
        """Images with a loss that was not finite (images,), bool."""
        return ~self._sums.isfinite()

    def logits(self, image: Tensor, points: Tensor) -> Tensor:
        """Logits (rows, classes), float64; minus infinity for NaN."""
        logits = torch.empty(
            (len(points), self._batch.classes), dtype=torch.float64, device=points.device
        )
        for rows in (
            torch.arange(len(points), device=points.device).split(self._rows) if len(points) else ()
        ):
            full = padded(rows, self._rows)
            with torch.inference_mode():
                logits[rows] = self._batch.model(
                    self._pixels(self._looked_up(image[full]), points[full])
                )[: len(rows)].double()
        return logits.nan_to_num(-torch.inf, torch.inf, -torch.inf)

    def slopes(self, image: Tensor, points: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`logits`, and the gradient of z_j - z_target; ``to``: class j of each row (rows,),
        int64."""

        def margin(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            weights = torch.zeros_like(logits).scatter_(1, to[rows, None], 1.0)
            return logits.double(), weights.scatter_(1, self._target[image[rows], None], -1.0)

        logits, slopes = self._differentiated(image, points, margin)
        return logits.nan_to_num(-torch.inf, torch.inf, -torch.inf), slopes

    def losses(self, image: Tensor, points: Tensor) -> Tensor:
        """log l (rows,), float64, l the cross-entropy for the target; minus infinity if the logits
        are not finite."""
        return self._noted(
            image, log_cross_entropy(self.logits(image, points), self._target[image])[0]
        )

    def loss_slopes(self, image: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`losses`, and the gradient of log l; zero where it is not finite.

        Chains call this repeatedly with the same tensor of images, which must not change in
        between: its rows are looked up once.
        """
        losses, slopes = self._differentiated(
            image, points, lambda logits, rows: log_cross_entropy(logits, self._target[image[rows]])
        )
        return self._noted(image, losses), slopes.nan_to_num_(0.0, 0.0, 0.0)

    def _noted(self, image: Tensor, losses: Tensor) -> Tensor:
        self._sums.index_add_(0, image, losses)
        return losses.nan_to_num(-torch.inf, -torch.inf, -torch.inf)

    def _differentiated(
        self, image: Tensor, points: Tensor, functional: Functional
    ) -> tuple[Tensor, Tensor]:
        """The functional of all rows, and its slopes in the type of the points."""
        if self._known is None or self._known[0] is not image:
            parts = image.split(self._gradient_rows)
            self._known = (
                image,
                [self._looked_up(padded(part, self._gradient_rows)) for part in parts],
            )
        every = torch.arange(len(points), device=points.device)
        values = []
        slopes = []
        for rows, known in zip(every.split(self._gradient_rows), self._known[1], strict=True):
            full = padded(rows, self._gradient_rows)
            value, slope = self._sloped(known, points[full], functional, full)
            values.append(value[: len(rows)])
            slopes.append(slope[: len(rows)])
        return _joined(values), _joined(slopes)

    def _sloped(
        self,
        known: tuple[Tensor, Sequence[str]],
        points: Tensor,
        functional: Functional,
        rows: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The functional of the rows of a pass, and its slopes."""
        leaf = points.detach().requires_grad_(True)
        with torch.enable_grad():
            logits = self._batch.model(self._pixels(known, leaf))
        value, weights = functional(logits.detach(), rows)
        if not logits.requires_grad:
            return value, torch.zeros_like(points)
        (slope,) = torch.autograd.grad(logits, leaf, weights.to(logits.dtype))
        return value, slope

    def _looked_up(self, image: Tensor) -> tuple[Tensor, Sequence[str]]:
        """Clean pixels and ids of the images, to add noise to; just the images if points are
        pixels."""
        if not self._latent:
            return image, ()
        where = self._images[image]
        return self._batch.x[where], [self._batch.ids[b] for b in where.tolist()]

    def _pixels(self, known: tuple[Tensor, Sequence[str]], points: Tensor) -> Tensor:
        return self._batch.noisy_pixels(*known, points) if self._latent else points


class _Shares(NamedTuple):
    """The softmax of the copies of some points.

    Attributes:
        log_softmax: (points, copies, classes), float64.
        log_mean: log of the mean over copies (points, classes).
    """

    log_softmax: Tensor
    log_mean: Tensor


class SoftVote(Objective):
    """The smoothed network: its logits at a point are log p_c, p_c the mean softmax over the same
    noisy offsets at every point of an image.

    A search sees a fixed smooth function. Its boundary is near the boundary of the vote, not on it:
    only fresh draws tell the class of the vote. If the soft vote at the image itself is not for the
    target, the target has a head start at all points of the image.

    Args:
        batch: the chunk; its noise does not depend on the pixels.
        target: the class of each image's vote (images,), int64.
        images: indices into the chunk.
        copies: of each point.
        purpose: of the draws.
    """

    def __init__(
        self, batch: ImageBatch, target: Tensor, images: Tensor, copies: int, purpose: str
    ) -> None:
        super().__init__(batch, target, images)
        self._offsets = _offsets(batch, purpose, images, copies)
        self._head_start = torch.zeros(len(images), dtype=torch.float64, device=images.device)
        at = self.logits(torch.arange(len(images), device=images.device), batch.x[images])
        behind = (
            at.scatter(1, target[:, None], -torch.inf).amax(1) - at.gather(1, target[:, None])[:, 0]
        )
        self._head_start = torch.where(behind >= 0, behind + _HEAD_START, 0.0)

    def logits(self, image: Tensor, points: Tensor) -> Tensor:
        """log p_c (points, classes), float64, with the head start."""
        log_p = torch.empty(
            (len(points), self._batch.classes), dtype=torch.float64, device=points.device
        )
        for part in self._parts(len(points), self._rows):
            log_p[part] = self._started(
                image[part], self._shares(*self._copies(image[part], points[part])).log_mean
            )
        return log_p

    def slopes(self, image: Tensor, points: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`logits`, and the gradient of log p_j - log p_target in the pixels; ``to``: class j
        of each point (points,)."""
        log_p = torch.empty(
            (len(points), self._batch.classes), dtype=torch.float64, device=points.device
        )
        slopes = torch.empty_like(points)
        for part in self._parts(len(points), self._gradient_rows):
            log_mean, slopes[part] = self._vote_slopes(image[part], points[part], to[part])
            log_p[part] = self._started(image[part], log_mean)
        return log_p, slopes

    def _parts(self, points: int, rows: int) -> Sequence[Tensor]:
        """Indices of the points whose copies share a pass."""
        few = max(1, rows // self._offsets.shape[1])
        return torch.arange(points, device=self._images.device).split(few) if points else ()

    def _started(self, image: Tensor, log_mean: Tensor) -> Tensor:
        own = torch.arange(self._batch.classes, device=image.device) == self._target[image][:, None]
        return log_mean + own * self._head_start[image][:, None]

    def _copies(self, image: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """Images and pixels of the copies (points * copies, ...); copies of a point are
        adjacent."""
        copies = (points[:, None] + self._offsets[image]).flatten(0, 1)
        return image.repeat_interleave(self._offsets.shape[1]), copies

    def _shares(self, image: Tensor, copies: Tensor) -> _Shares:
        return _shares_of(super().logits(image, copies), self._offsets.shape[1])

    def _vote_slopes(self, image: Tensor, points: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """log p_c, and its slopes."""
        target = self._target[image]
        (images, copies) = self._copies(image, points)
        # the weight of a copy depends on all copies
        known = self._shares(images, copies) if len(copies) > self._gradient_rows else None
        means = list[Tensor]()

        def vote(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            shares = known or _shares_of(logits[: len(copies)].double(), self._offsets.shape[1])
            means.append(shares.log_mean)
            return logits, _rates(shares, to, target).flatten(0, 1)[rows]

        slopes = self._differentiated(images, copies, vote)[1]
        slopes = fold(
            slopes.unflatten(0, (len(points), -1))
            .movedim(1, 0)
            .clone(memory_format=torch.contiguous_format)
        )
        return means[0], slopes.nan_to_num(0.0, 0.0, 0.0)


def _offsets(batch: ImageBatch, purpose: str, images: Tensor, copies: int) -> Tensor:
    """The unclipped noise of the copies of some images (images, copies, channels, height, width),
    drawn for a purpose."""
    blank = batch.x.new_zeros((1, *shape_of(batch.x)))
    offsets = batch.x.new_empty((len(images), copies, *shape_of(batch.x)))
    for out, image in zip(offsets, images.tolist(), strict=True):
        z = torch.cat([*batch.normals(purpose, image, copies)])
        out.copy_(batch.noise.noisy(blank, z, batch.level, ids=[batch.ids[image]]))
    return offsets


def _shares_of(logits: Tensor, copies: int) -> _Shares:
    finite = logits.isfinite().all(1, keepdim=True)
    log_softmax = torch.where(finite, logits.log_softmax(1).clamp_min(_LEAST), _LEAST).unflatten(
        0, (-1, copies)
    )
    highest = log_softmax.amax(1)
    mean = total((log_softmax - highest[:, None]).exp(), 1) / log_softmax.shape[1]
    return _Shares(log_softmax, highest + mean.log())


def _rates(shares: _Shares, to: Tensor, target: Tensor) -> Tensor:
    """d (log p_j - log p_target) / d logits of every copy (points, copies, classes)."""
    copies, classes = shares.log_softmax.shape[1:]
    softmax = shares.log_softmax.exp()
    every = torch.arange(classes, device=to.device)

    def of(label: Tensor) -> Tensor:
        column = label[:, None, None].expand(-1, copies, 1)
        weight = (
            shares.log_softmax.gather(2, column)
            - shares.log_mean.gather(1, label[:, None])[:, None]
        ).exp() / copies
        return weight * ((every == label[:, None, None]).double() - softmax)

    return of(to) - of(target)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
