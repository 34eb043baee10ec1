"""Attacks in balls of growing radius, until projected gradient ascent leaves the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.methods.radius.minimal_norm import Flips, Logits, Slopes
from robaudit.methods.radius.norm_steps import Norm
from robaudit.numerics.attack import Ball

Starts = Callable[[Tensor, int], Tensor]
"""Indices of images (n,) and number of a ball, from 1 -> points in the unit ball of the norm (n,
restarts, *shape)."""

LENGTH = 0.08
"""Length of a gradient step, relative to the radius."""
_DIGITS = 12  # 3 * 0.025 is 0.07500000000000001 in binary; at 12 digits it is 0.075


@dataclass(frozen=True, slots=True)
class Grid:
    """The radii of the balls, and the effort in each.

    Attributes:
        norm: norm of the differences to the image.
        step: radius of the first ball; ball j has j times this radius.
        balls: number of balls.
        steps: gradient steps from each start, of .08 of the radius.
        clipped: whether pixels stay in [0, 1].
    """

    norm: Norm
    step: float
    balls: int
    steps: int = 200
    clipped: bool = False

    def radius(self, ball: int) -> float:
        """The radius of ball j, in decimals as a reader would write them."""
        return round(self.step * ball, _DIGITS)


def first_escapes(
    logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, target: Tensor, starts: Starts, grid: Grid
) -> Flips:
    """The radius of the first ball in which projected gradient ascent on z_t - max_{i != t} z_i
    from any start meets a class other than y.

    While the class is y, the maximum over the others is z_y: the gradient is the gradient of z_t -
    z_y, and the ReLU of the loss has no effect. Every iterate counts, starts included, if a plain
    pass confirms it; then the image is done. The starts of an image advance in lock-step, and so do
    all images of a ball. The result of an image depends only on itself and its starts (on the CPU
    in every bit), provided that ``logits`` and ``slopes`` treat rows independently.

    Args:
        logits: of the model.
        slopes: logits, and the gradient of z_j - z_y.
        x: the images (images, *shape).
        y: the class of each image (images,).
        target: the target class t of each image (images,).
        starts: the points in the unit ball where the ascent begins.
        grid: the balls.

    Source: Madry et al. 2018 (the ascent); Carlini and Wagner 2017 (the loss, their sixth);
    Smoothed robustness analysis, section 3.4 (the procedure).
    """
    radius = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    counts = torch.zeros(3, len(x), dtype=torch.int64, device=x.device)
    gradients, forwards, lost = counts
    escapes = Flips(
        pixels=x.clone(),
        radius=radius,
        label=y.clone(),
        gradients=gradients,
        forwards=forwards,
        lost=lost,
    )
    search = _BallSearch(logits, slopes, x, y, target, grid, escapes)
    for ball in range(1, grid.balls + 1):
        # Only images without a flip so far go on to the next ball.
        left = (~escapes.found).nonzero()[:, 0]
        if len(left):
            search.attack(ball, left, starts(left, ball))
    return escapes


@dataclass(frozen=True, slots=True)
class _BallSearch:
    """The state of the search; ``escapes`` records the flips and counts the passes."""

    logits: Logits
    slopes: Slopes
    x: Tensor
    y: Tensor
    target: Tensor
    grid: Grid
    escapes: Flips

    def attack(self, ball: int, images: Tensor, starts: Tensor) -> None:
        """Attack some images in one ball."""
        grid = self.grid
        domain = Ball(grid.norm, ball * grid.step, grid.clipped)
        image = images.repeat_interleave(starts.shape[1])
        # Starts of the unit ball, scaled and moved to the image.
        begin = self.x[image] + starts.flatten(0, 1) * domain.radius
        pixels = domain.project(begin, self.x[image])
        for _ in range(grid.steps):
            logits, gradient = self.slopes(image, pixels, self.target[image])
            rows = self._flipped(image, logits, self.escapes.gradients)
            if len(rows):
                # A pass with gradients may round differently, so a plain pass confirms each flip.
                self._confirm(ball, image[rows], pixels[rows])
                going = (~self.escapes.found[image]).nonzero()[:, 0]
                image = image[going]
                pixels = pixels[going]
                gradient = gradient[going]
                if not len(image):
                    return
            step = domain.step(gradient.nan_to_num(0.0, 0.0, 0.0), LENGTH * domain.radius)
            pixels = domain.project(pixels + step, self.x[image])
        self._confirm(ball, image, pixels)

    def _confirm(self, ball: int, image: Tensor, pixels: Tensor) -> None:
        """Check points in a plain pass, and record the first flip of each image."""
        logits = self.logits(image, pixels)
        rows = self._flipped(image, logits, self.escapes.forwards)
        if not len(rows):
            return
        # The rows of an image are adjacent: the first is the one that differs from its predecessor.
        first = torch.ones_like(rows, dtype=torch.bool)
        first[1:] = image[rows[1:]] != image[rows[:-1]]
        rows = rows[first]
        hit = image[rows]
        self.escapes.radius[hit] = self.grid.radius(ball)
        self.escapes.pixels[hit] = pixels[rows]
        self.escapes.label[hit] = logits[rows].argmax(1)

    def _flipped(self, image: Tensor, logits: Tensor, passes: Tensor) -> Tensor:
        """The rows with another class and finite logits.

        The passes of each image are added to ``passes``, rows with non-finite logits to the lost.
        """
        passes.index_add_(0, image, torch.ones_like(image))
        finite = logits.isfinite().all(1)
        self.escapes.lost.index_add_(0, image, (~finite).long())
        flipped = logits.argmax(1) != self.y[image]
        return (finite & flipped).nonzero()[:, 0]
