"""The nearest flip on random rays: far beyond the decision boundary's distance, but witnessed.

The radius of a direction is where its ray first flips. Only the least over thousands of directions is wanted, so no direction needs
its exact radius: the first block doubles its radius until one of its rays flips; every later ray is only tried up to the best radius
so far, and is done unless it flips there. Rays that do are bisected together, and a ray that does not flip at the middle while
another does is dropped. With monotone rays this is the least of all their radii, for little more than one pass each instead of about
fifteen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.minimal_norm import Logits
from robaudit.numerics.norm_steps import Norm, size
from robaudit.numerics.rowwise import first_rows

Draws = Callable[[int], Tensor]
"""Number of a block -> its draws for each image (images, directions, *shape): normal variables (l2), or uniform on [-1, 1] (l_inf)."""


@dataclass(frozen=True, slots=True)
class Rays:
    """The rays, and the resolution along them.

    Attributes:
        norm: of the directions: uniform on the sphere, or in the cube and scaled to the largest component 1.
        cap: the largest radius of interest, finite.
        first: the smallest radius that is tried.
        blocks: number of blocks of directions.
        clipped: whether pixels are clipped to [0, 1]; the reported norm is of the clipped perturbation.
        grid: points tried on each ray, up to the best radius: more than one catches rays that flip and flip back.
        tolerance: of the bisection, relative to its upper end.
    """

    norm: Norm
    cap: float
    first: float
    blocks: int
    clipped: bool = False
    grid: int = 2
    tolerance: float = 0.01


@dataclass(frozen=True, slots=True)
class Witness:
    """The least flip on the rays of each image.

    Attributes:
        pixels: the flipped image (images, *shape); the image itself if there is none.
        radius: the norm of the difference of these pixels and the image's (images,), float64; infinite where there is none up to the cap.
        label: the class there (images,); the given one if there is none.
        forwards: passes that each image took (images,), int64; ``lost``: those of them without finite logits, which are no flips.
    """

    pixels: Tensor
    radius: Tensor
    label: Tensor
    forwards: Tensor
    lost: Tensor


def least_flip(logits: Logits, x: Tensor, y: Tensor, draws: Draws, rays: Rays) -> Witness:
    """The least flip on random rays.

    An image's result depends only on itself and its draws, not on the batch, if that holds for ``logits``.

    Args:
        logits: of the model.
        x: images (images, *shape).
        y: the class of each (images,); an image classified differently has the radius 0.
        draws: the directions.
        rays: their number, and the resolution.

    Raises:
        ValueError: if the cap is not finite or not positive.
    """
    if not 0 < rays.cap < math.inf:
        raise ValueError("the cap of random rays must be positive and finite")
    hunt = _Rays(logits, x, y, rays)
    hunt.look()
    for block in range(rays.blocks):
        hunt.block(_directions(draws(block), rays.norm), doubling=block == 0)
    return hunt.witness()


def _directions(draws: Tensor, norm: Norm) -> Tensor:
    flat = draws.flatten(0, 1).flatten(1)
    scale = (1 / size(flat, norm).clamp_min(1e-30)).to(flat.dtype)
    return (flat * scale[:, None]).view(draws.shape)


class _Rays:
    """The best ray of each image so far."""

    def __init__(self, logits: Logits, x: Tensor, y: Tensor, rays: Rays) -> None:
        self._logits, self._x, self._y, self._rays = logits, x, y, rays
        images = len(x)
        self._length = torch.full((images,), float(rays.cap), dtype=torch.float64, device=x.device)
        self._pixels, self._label = x.clone(), y.clone()
        self._done = torch.zeros(images, dtype=torch.bool, device=x.device)
        self._forwards = torch.zeros(images, dtype=torch.int64, device=x.device)
        self._lost = torch.zeros_like(self._forwards)

    def look(self) -> None:
        """Classify the images themselves."""
        image = torch.arange(len(self._x), device=self._x.device)
        self._label = self._passed(image, self._x)
        self._done = self._label != self._y

    def block(self, directions: Tensor, *, doubling: bool) -> None:
        """Try a block's rays up to the best length, from near to far, and bisect before the first flips.

        Args:
            directions: of norm 1 (images, directions, *shape).
            doubling: from the first radius up to the best, rather than in equal steps.
        """
        lower, upper = torch.zeros_like(self._length), self._length.clone()
        open_ = ~self._done
        images, rays = directions.shape[:2]
        which = torch.arange(images * rays, device=directions.device)
        image, which = which // rays, which % rays
        flips = torch.zeros_like(image, dtype=torch.bool)
        for step in range(1, self._levels(doubling) + 1):
            length = self._level(step, upper, doubling)
            rows = open_[image].nonzero()[:, 0]
            here = self._flipped(image[rows], which[rows], directions, length)
            hit = self._images_of(image[rows], here)
            flips[rows] = here
            self._length = torch.where(hit, length, self._length)
            lower = torch.where(open_ & ~hit, length, lower)
            open_ = open_ & ~hit
        rows = flips.nonzero()[:, 0]
        self._bisect(image[rows], which[rows], directions, lower)

    def _levels(self, doubling: bool) -> int:
        rays = self._rays
        return 1 + max(0, math.ceil(math.log2(rays.cap / rays.first))) if doubling else rays.grid

    def _level(self, step: int, upper: Tensor, doubling: bool) -> Tensor:
        """The length of each image's rays at a step (images,)."""
        if doubling:
            return upper.clamp_max(self._rays.first * 2.0 ** (step - 1))
        return upper * (step / self._rays.grid)

    def _bisect(self, image: Tensor, which: Tensor, directions: Tensor, lower: Tensor) -> None:
        """Bisect between the lower ends (images,) and the best lengths, at which these rays flip."""
        active = torch.zeros_like(self._done).index_fill_(0, image, True)
        while True:
            active = active & (self._length - lower > self._rays.tolerance * self._length)
            rows = active[image].nonzero()[:, 0]
            if not len(rows):
                return
            middle = (lower + self._length) / 2
            here = self._flipped(image[rows], which[rows], directions, middle)
            hit = self._images_of(image[rows], here)
            self._length = torch.where(hit, middle, self._length)
            lower = torch.where(active & ~hit, middle, lower)
            kept = ~hit[image]
            kept[rows] |= here
            rows = kept.nonzero()[:, 0]
            image, which = image[rows], which[rows]

    def _images_of(self, image: Tensor, here: Tensor) -> Tensor:
        """Which images have such a row (images,), bool."""
        return torch.zeros_like(self._forwards).index_add_(0, image, here.long()) > 0

    def _flipped(self, image: Tensor, which: Tensor, directions: Tensor, length: Tensor) -> Tensor:
        """Which rays flip at their image's length (rows,); the first of each image is recorded."""
        scale = length[image].to(directions.dtype).view(-1, *[1] * (self._x.ndim - 1))
        pixels = self._x[image] + directions[image, which] * scale
        if self._rays.clipped:
            pixels = pixels.clamp(0.0, 1.0)
        label = self._passed(image, pixels)
        flips = label != self._y[image]
        if len(image):
            first, hit = first_rows(flips, image, len(self._x))
            self._pixels = torch.where(hit.view(-1, *[1] * (pixels.ndim - 1)), pixels[first], self._pixels)
            self._label = torch.where(hit, label[first], self._label)
        return flips

    def _passed(self, image: Tensor, pixels: Tensor) -> Tensor:
        self._forwards.index_add_(0, image, torch.ones_like(image))
        logits = self._logits(image, pixels)
        finite = logits.isfinite().all(1)
        self._lost.index_add_(0, image, (~finite).long())
        return torch.where(finite, logits.argmax(1), self._y[image])  # logits that are not finite are no flip

    def witness(self) -> Witness:
        """The result."""
        radius = size((self._pixels.double() - self._x.double()).flatten(1), self._rays.norm)
        return Witness(self._pixels, torch.where(self._label != self._y, radius, torch.inf), self._label, self._forwards, self._lost)
