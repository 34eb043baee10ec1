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

# The log softmax of every class in copies with non-finite logits, and the least of any: such copies
# add nothing to a mean softmax, and differences of logarithms stay finite.
_LEAST = -1e4
# The lead of the target, in log odds, where the soft vote at the image is for another class: the
# vote itself is for the target, so the search must not begin beyond the boundary.
_HEAD_START = 0.1

Functional = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits, indices of their rows) -> (a value of each row, its derivatives with respect to the
logits)."""


class Objective:
    """Logits at points around images, and slopes with respect to the points.

    They are computed in full batches and in the model's full precision. Points are pixels (rows,
    channels, height, width), or, with ``latent``, the normal variables of noisy copies (rows,
    *latent_shape). Every method takes the image of each point: an index into ``images`` (rows,),
    int64. On the CPU a row has the same bits in any batch: the decisions of a search depend on the
    last digits.

    Args:
        batch: the chunk.
        target: the class of each image for margins and losses (images,), int64.
        images: indices into the chunk; default: all of it.
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
        # The last tensor of images that was differentiated, and what was looked up for it.
        self._last_lookup: tuple[Tensor, list[tuple[Tensor, Sequence[str]]]] | None = None
        # The sum of log l by image: a loss that is not finite leaves its mark in it for good.
        self._sums = torch.zeros(len(target), dtype=torch.float64, device=target.device)

    @property
    def broken(self) -> Tensor:
        """Images with a loss that was not finite (images,), bool."""
        return ~self._sums.isfinite()

    def logits(self, image: Tensor, points: Tensor) -> Tensor:
        """Logits (rows, classes), float64; minus infinity for NaN."""
        shape = (len(points), self._batch.classes)
        logits = torch.empty(shape, dtype=torch.float64, device=points.device)
        if not len(points):
            return logits
        for rows in torch.arange(len(points), device=points.device).split(self._rows):
            full = padded(rows, self._rows)
            with torch.inference_mode():
                pixels = self._pixels(self._looked_up(image[full]), points[full])
                logits[rows] = self._batch.model(pixels)[: len(rows)].double()
        return logits.nan_to_num(-torch.inf, torch.inf, -torch.inf)

    def slopes(self, image: Tensor, points: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`logits`, and the gradient of the difference f_j - f_target of two logits.

        Args:
            image: the image of each row (rows,), int64.
            points: the points.
            to: class j of each row (rows,), int64.
        """

        def margin(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            # f_j - f_target is linear in the logits: weight 1 for class j, and -1 for the target.
            weights = torch.zeros_like(logits)
            weights.scatter_(1, to[rows, None], 1.0)
            weights.scatter_(1, self._target[image[rows], None], -1.0)
            return logits.double(), weights

        logits, slopes = self._differentiated(image, points, margin)
        return logits.nan_to_num(-torch.inf, torch.inf, -torch.inf), slopes

    def losses(self, image: Tensor, points: Tensor) -> Tensor:
        """log l (rows,), float64, with the cross-entropy l for the target; minus infinity if the
        logits are not finite."""
        losses, _ = log_cross_entropy(self.logits(image, points), self._target[image])
        return self._recorded(image, losses)

    def loss_slopes(self, image: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`losses`, and the gradient of log l; zero where it is not finite.

        Chains call this repeatedly with the same tensor of images, which must not change in
        between: its rows are looked up once.
        """

        def loss(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return log_cross_entropy(logits, self._target[image[rows]])

        losses, slopes = self._differentiated(image, points, loss)
        return self._recorded(image, losses), slopes.nan_to_num_(0.0, 0.0, 0.0)

    def _recorded(self, image: Tensor, losses: Tensor) -> Tensor:
        """The losses, minus infinity where they are not finite, which :attr:`broken` will tell."""
        self._sums.index_add_(0, image, losses)
        return losses.nan_to_num(-torch.inf, -torch.inf, -torch.inf)

    def _differentiated(
        self, image: Tensor, points: Tensor, functional: Functional
    ) -> tuple[Tensor, Tensor]:
        """The functional of all rows, and its slopes in the type of the points."""
        if self._last_lookup is None or self._last_lookup[0] is not image:
            parts = image.split(self._gradient_rows)
            lookups = [self._looked_up(padded(part, self._gradient_rows)) for part in parts]
            self._last_lookup = (image, lookups)
        every = torch.arange(len(points), device=points.device)
        values = []
        slopes = []
        passes = zip(every.split(self._gradient_rows), self._last_lookup[1], strict=True)
        for rows, clean in passes:
            full = padded(rows, self._gradient_rows)
            value, slope = self._one_pass(clean, points[full], functional, full)
            values.append(value[: len(rows)])
            slopes.append(slope[: len(rows)])
        return _joined(values), _joined(slopes)

    def _one_pass(
        self,
        clean: tuple[Tensor, Sequence[str]],
        points: Tensor,
        functional: Functional,
        rows: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The functional of the rows of a pass, and its slopes."""
        leaf = points.detach().requires_grad_(True)
        with torch.enable_grad():
            logits = self._batch.model(self._pixels(clean, leaf))
        value, weights = functional(logits.detach(), rows)
        if not logits.requires_grad:
            return value, torch.zeros_like(points)  # a network whose logits are constant
        # Chain rule: the weights are the derivatives of the functional in the logits.
        (slope,) = torch.autograd.grad(logits, leaf, weights.to(logits.dtype))
        return value, slope

    def _looked_up(self, image: Tensor) -> tuple[Tensor, Sequence[str]]:
        """Clean pixels and ids of the images, to which noise is added; unused if points are
        pixels."""
        if not self._latent:
            return image, ()
        where = self._images[image]
        return self._batch.x[where], [self._batch.ids[b] for b in where.tolist()]

    def _pixels(self, clean: tuple[Tensor, Sequence[str]], points: Tensor) -> Tensor:
        """The pixels at some points, given :meth:`_looked_up` for their images."""
        return self._batch.noisy_pixels(*clean, points) if self._latent else points


class _Shares(NamedTuple):
    """The softmax of the copies of some points.

    Attributes:
        log_softmax: log softmax of each copy (points, copies, classes), float64.
        log_mean: log of the mean softmax over copies (points, classes).
    """

    log_softmax: Tensor
    log_mean: Tensor


class SoftVote(Objective):
    """The smoothed network: its logits at a point are log p_c, with the mean softmax p_c over noisy
    copies of the point.

    The copies have the same noisy offsets at every point of an image, so that a search sees a fixed
    smooth function. Its boundary is near the boundary of the vote, not on it: only fresh draws tell
    the class of the vote. If the soft vote at the image itself is not for the target, the target
    has a head start at all points of the image.

    Args:
        batch: the chunk; its noise does not depend on the pixels.
        target: the class of each image's vote (images,), int64.
        images: indices into the chunk.
        copies: number of copies of each point.
        purpose: the purpose for which the offsets are drawn.
    """

    def __init__(
        self, batch: ImageBatch, target: Tensor, images: Tensor, copies: int, purpose: str
    ) -> None:
        super().__init__(batch, target, images)
        self._offsets = _offsets(batch, purpose, images, copies)
        # Without a head start first, to see where the target is behind at the image itself.
        self._head_start = torch.zeros(len(images), dtype=torch.float64, device=images.device)
        every = torch.arange(len(images), device=images.device)
        log_p = self.logits(every, batch.x[images])
        own = log_p.gather(1, target[:, None])[:, 0]
        highest_other = log_p.scatter(1, target[:, None], -torch.inf).amax(1)
        behind = highest_other - own
        self._head_start = torch.where(behind >= 0, behind + _HEAD_START, 0.0)

    def logits(self, image: Tensor, points: Tensor) -> Tensor:
        """log p_c (points, classes), float64, with the head start."""
        shape = (len(points), self._batch.classes)
        log_p = torch.empty(shape, dtype=torch.float64, device=points.device)
        for part in self._parts(len(points), self._rows):
            shares = self._shares(*self._copies(image[part], points[part]))
            log_p[part] = self._with_head_start(image[part], shares.log_mean)
        return log_p

    def slopes(self, image: Tensor, points: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`logits`, and the gradient of log p_j - log p_target in the pixels.

        Args:
            image: the image of each point (points,), int64.
            points: pixels.
            to: class j of each point (points,).
        """
        shape = (len(points), self._batch.classes)
        log_p = torch.empty(shape, dtype=torch.float64, device=points.device)
        slopes = torch.empty_like(points)
        for part in self._parts(len(points), self._gradient_rows):
            log_mean, slopes[part] = self._vote_slopes(image[part], points[part], to[part])
            log_p[part] = self._with_head_start(image[part], log_mean)
        return log_p, slopes

    def _parts(self, points: int, rows: int) -> Sequence[Tensor]:
        """Indices of the points whose copies share a pass."""
        points_at_once = max(1, rows // self._offsets.shape[1])
        every = torch.arange(points, device=self._images.device)
        return every.split(points_at_once) if points else ()

    def _with_head_start(self, image: Tensor, log_mean: Tensor) -> Tensor:
        """log p_c with the head start of the target (points, classes)."""
        classes = torch.arange(self._batch.classes, device=image.device)
        is_target = classes == self._target[image][:, None]
        return log_mean + is_target * self._head_start[image][:, None]

    def _copies(self, image: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """Images and pixels of the copies (points * copies, ...); copies of a point are
        adjacent."""
        copies = points[:, None] + self._offsets[image]
        return image.repeat_interleave(self._offsets.shape[1]), copies.flatten(0, 1)

    def _shares(self, image: Tensor, copies: Tensor) -> _Shares:
        """The softmax of copies, by forward passes."""
        return _shares_of(super().logits(image, copies), self._offsets.shape[1])

    def _vote_slopes(self, image: Tensor, points: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """log p_c (points, classes) without a head start, and the slopes of :meth:`slopes`."""
        target = self._target[image]
        images, copies = self._copies(image, points)
        # The weight of a copy in the slope depends on all copies of its point. Where they do not
        # fit into one differentiated pass, forward passes come first.
        in_advance = self._shares(images, copies) if len(copies) > self._gradient_rows else None
        means = list[Tensor]()

        def vote(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            shares = in_advance
            if shares is None:
                shares = _shares_of(logits[: len(copies)].double(), self._offsets.shape[1])
            means.append(shares.log_mean)
            rates = _rates(shares, to, target).flatten(0, 1)
            return logits, rates[rows]

        _, copy_slopes = self._differentiated(images, copies, vote)
        # A point's slope is the sum of its copies' slopes: (copies, points, ...) -> (points, ...).
        by_point = copy_slopes.unflatten(0, (len(points), -1))
        by_copy = by_point.movedim(1, 0).clone(memory_format=torch.contiguous_format)
        slopes = fold(by_copy)
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
    """The softmax of copies from their logits (points * copies, classes)."""
    finite = logits.isfinite().all(1, keepdim=True)
    log_softmax = torch.where(finite, logits.log_softmax(1).clamp_min(_LEAST), _LEAST)
    log_softmax = log_softmax.unflatten(0, (-1, copies))
    # The logarithm of a mean, relative to the largest term so that exp does not underflow.
    highest = log_softmax.amax(1)
    relative = (log_softmax - highest[:, None]).exp()
    mean = total(relative, 1) / copies
    return _Shares(log_softmax, highest + mean.log())


def _rates(shares: _Shares, to: Tensor, target: Tensor) -> Tensor:
    """d (log p_j - log p_target) / d logits of every copy (points, copies, classes)."""
    copies, classes = shares.log_softmax.shape[1:]
    softmax = shares.log_softmax.exp()
    every = torch.arange(classes, device=to.device)

    def log_share_rates(index: Tensor) -> Tensor:
        """The derivatives of log p_c for a class c of each point."""
        # p_c is the mean of the copies' s_c, and d s_c / d f_k = s_c (1[k = c] - s_k). So the
        # derivative of log p_c is s_c / (copies p_c) (1[k = c] - s_k).
        column = index[:, None, None].expand(-1, copies, 1)
        log_share = shares.log_softmax.gather(2, column)
        log_mean = shares.log_mean.gather(1, index[:, None])[:, None]
        weight = (log_share - log_mean).exp() / copies
        is_class = (every == index[:, None, None]).double()
        return weight * (is_class - softmax)

    return log_share_rates(to) - log_share_rates(target)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all parts; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
