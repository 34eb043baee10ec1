"""The nearest flip on random rays: much farther than the decision boundary, but witnessed.

The radius of a direction is where its ray first flips. Only the smallest radius over thousands of
directions matters, so no direction needs its exact radius. The first block doubles its radius until
a ray flips. Every later ray is only tried up to the best radius so far, and is done unless it flips
by then. Rays that flip are bisected together; a ray that does not flip at the middle while another
does is dropped. With monotone rays this gives the smallest radius, for little more than one pass
per ray instead of about fifteen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.methods.radius.minimal_norm import Flips, Logits
from robaudit.methods.radius.norm_steps import Norm, size
from robaudit.numerics.rowwise import first_rows

Draws = Callable[[int], Tensor]
"""Number of a block -> draws for each image (images, directions, *shape): normal variables (l2), or
uniform on [-1, 1] (l_inf)."""

DOUBLINGS = 10
"""The smallest radius tried is the cap over two to this power."""
GRID = 2
"""Number of points tried on each later ray, up to the best radius. The middle one catches rays that
flip and flip back."""


@dataclass(frozen=True, slots=True)
class Rays:
    """The rays, and the resolution along them.

    Attributes:
        norm: norm of the directions: uniform on the sphere, or uniform in the cube and scaled to
            the largest component 1.
        cap: the largest radius of interest, finite and positive.
        blocks: number of blocks of directions.
        clipped: whether pixels are clipped to [0, 1]; the reported norm is the norm of the clipped
            perturbation.
        tolerance: tolerance of the bisection, relative to its upper end.
    """

    norm: Norm
    cap: float
    blocks: int
    clipped: bool = False
    tolerance: float = 0.01


def least_flip(logits: Logits, x: Tensor, y: Tensor, draws: Draws, rays: Rays) -> Flips:
    """The least flip on random rays.

    An image's result depends only on itself and its draws, not on the batch, if that holds for
    ``logits``.

    Args:
        logits: of the model.
        x: images (images, *shape).
        y: the class of each image (images,); an image classified differently has the radius 0.
        draws: the directions.
        rays: number of rays, and the resolution.
    """
    search = _Search(logits, x, y, rays)
    # Lengths before the first flip: from 1/1024 of the cap, doubled each time.
    doublings = [rays.cap / 2.0**k for k in range(DOUBLINGS, 0, -1)]
    for block in range(rays.blocks):
        search.block(draws(block), doublings if block == 0 else [])
    # The norm of the pixels as they are, after clipping and rounding.
    added = (search.pixels.double() - x.double()).flatten(1)
    radius = size(added, rays.norm)
    radius = torch.where(search.label != y, radius, torch.inf)
    return Flips(
        pixels=search.pixels,
        radius=radius,
        label=search.label,
        gradients=torch.zeros_like(search.forwards),
        forwards=search.forwards,
        lost=search.lost,
    )


class _Search:
    """The search, with the best ray of each image so far."""

    def __init__(self, logits: Logits, x: Tensor, y: Tensor, rays: Rays) -> None:
        self._logits = logits
        self._x = x
        self._y = y
        self._rays = rays
        images = len(x)
        cap = float(rays.cap)
        # The length of the best ray (images,); the cap without a flip so far.
        self._length = torch.full((images,), cap, dtype=torch.float64, device=x.device)
        self.forwards, self.lost = torch.zeros(2, images, dtype=torch.int64, device=x.device)
        self.pixels = x.clone()
        self.label = self._labels(torch.arange(images, device=x.device), x)
        self._open = self.label == y

    def block(self, draws: Tensor, first: list[float]) -> None:
        """Try the rays of a block up to the best length, from near to far, and bisect the first
        flips.

        Args:
            draws: the directions (images, directions, *shape), not normalised.
            first: lengths tried before the best length; empty: equal steps up to it.
        """
        images, rays = draws.shape[:2]
        # Normalised to norm 1, row by row.
        flat = draws.flatten(0, 1).flatten(1)
        length = size(flat, self._rays.norm).clamp_min(1e-30)
        scale = (1 / length).to(flat.dtype)
        directions = (flat * scale[:, None]).view(draws.shape)
        lower = torch.zeros_like(self._length)
        best = self._length.clone()
        open_ = self._open
        lengths = [best * (step / GRID) for step in range(1, GRID + 1)]
        if first:
            lengths = [*(best.clamp_max(length) for length in first), best]
        image = torch.arange(images, device=draws.device).repeat_interleave(rays)
        which = torch.arange(rays, device=draws.device).repeat(images)
        flips = torch.zeros_like(image, dtype=torch.bool)
        # An image whose ray flips at a length is not tried at larger ones: they cannot be better.
        for length in lengths:
            rows = open_[image].nonzero()[:, 0]
            row_flips, hit = self._flipped(image[rows], which[rows], directions, length)
            flips[rows] = row_flips
            self._length = torch.where(hit, length, self._length)
            lower = torch.where(open_ & ~hit, length, lower)
            open_ = open_ & ~hit
        rows = flips.nonzero()[:, 0]
        self._bisect(image[rows], which[rows], directions, lower)

    def _bisect(self, image: Tensor, which: Tensor, directions: Tensor, lower: Tensor) -> None:
        """Bisect between the lower ends (images,) and the best lengths, where these rays flip."""
        active = torch.zeros_like(self._open).index_fill_(0, image, True)
        while True:
            gap = self._length - lower
            active = active & (gap > self._rays.tolerance * self._length)
            rows = active[image].nonzero()[:, 0]
            if not len(rows):
                return
            middle = (lower + self._length) / 2
            flips, hit = self._flipped(image[rows], which[rows], directions, middle)
            self._length = torch.where(hit, middle, self._length)
            lower = torch.where(active & ~hit, middle, lower)
            # Of an image with a flip at the middle, only the rays that flip there go on.
            stay = ~hit[image]
            stay[rows] |= flips
            image = image[stay]
            which = which[stay]

    def _flipped(
        self, image: Tensor, which: Tensor, directions: Tensor, length: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Whether rays flip at the length of their image (rows,), and whether images have a flip
        (images,).

        The first flip of each image is recorded.
        """
        per_pixel = [1] * (self._x.ndim - 1)
        scale = length[image].to(directions.dtype).view(-1, *per_pixel)
        pixels = self._x[image] + directions[image, which] * scale
        if self._rays.clipped:
            pixels = pixels.clamp(0.0, 1.0)
        label = self._labels(image, pixels)
        flips = label != self._y[image]
        if not len(image):
            return flips, torch.zeros_like(self._open)
        first, hit = first_rows(flips, image, len(self._x))
        hit_pixels = hit.view(-1, *per_pixel)
        self.pixels = torch.where(hit_pixels, pixels[first], self.pixels)
        self.label = torch.where(hit, label[first], self.label)
        return flips, hit

    def _labels(self, image: Tensor, pixels: Tensor) -> Tensor:
        """The classes (rows,); y if logits are not finite, so that it is no flip."""
        self.forwards.index_add_(0, image, torch.ones_like(image))
        logits = self._logits(image, pixels)
        finite = logits.isfinite().all(1)
        self.lost.index_add_(0, image, (~finite).long())
        return torch.where(finite, logits.argmax(1), self._y[image])
