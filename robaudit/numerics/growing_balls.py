"""Attacks in balls of growing radius: the first ball in which projected gradient ascent leaves the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.attack import Domain
from robaudit.numerics.minimal_norm import Logits, Slopes
from robaudit.numerics.norm_steps import Norm

Starts = Callable[[Tensor, int], Tensor]
"""Indices of images (n,) and number of the ball, from 1: points in the unit ball of the norm (n, restarts, *shape)."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The radii of the balls, and the effort in each.

    Attributes:
        norm: of the differences to the image.
        step: radius of the first ball; ball j has j times this radius.
        balls: number of balls.
        steps: gradient steps from each start.
        length: of a step, relative to the radius.
        clipped: whether pixels stay in [0, 1].
    """

    norm: Norm
    step: float
    balls: int
    steps: int = 200
    length: float = 0.08
    clipped: bool = False


@dataclass(frozen=True, slots=True)
class Escapes:
    """The first ball of each image in which it left its class.

    Attributes:
        ball: its number, from 1 (images,), int64; 0 if there is none.
        pixels: the point with another class (images, *shape); the image itself if there is none.
        label: the class there (images,); the given one if there is none.
        gradients: rows of backward passes of each image (images,), int64.
        forwards: rows of further forward passes, without those that came with a gradient.
        lost: points with non-finite logits, which count as no flips.
    """

    ball: Tensor
    pixels: Tensor
    label: Tensor
    gradients: Tensor
    forwards: Tensor
    lost: Tensor


def first_escapes(logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, target: Tensor, starts: Starts, grid: Grid) -> Escapes:
    """The first ball in which projected gradient ascent on z_t - max_{i != t} z_i from any start meets a class other than y.

    As long as the class is y, the maximum over the others is z_y: the gradient is that of z_t - z_y, and the ReLU of the loss has no part
    in it. Every iterate counts, the starts included, if a plain pass confirms it; then the image is done. The starts of
    an image are in lock-step, and so are all images of a ball. An image's result depends only on itself and its starts, on the CPU
    in every bit, if ``logits`` and ``slopes`` treat rows so.

    Args:
        logits: the logits of rows.
        slopes: logits of rows, and the gradient of z_j - z_y.
        x: the images (images, *shape).
        y: the class of each (images,).
        target: the target class t of each (images,).
        starts: where the ascent begins, in the unit ball.
        grid: the balls.

    Source: Madry et al. 2018 (the ascent); Carlini and Wagner 2017 (the loss, their sixth); the procedure: "Smoothed robustness
    analysis", section 3.4.
    """
    hunt = _BallSearch(logits, slopes, x, y, target, grid)
    for ball in range(1, grid.balls + 1):
        left = (hunt.ball == 0).nonzero()[:, 0]
        if len(left):
            hunt.attack(ball, left, starts(left, ball))
    return Escapes(hunt.ball, hunt.pixels, hunt.label, hunt.gradients, hunt.forwards, hunt.lost)


class _BallSearch:
    """The state of the search of each image."""

    def __init__(self, logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, target: Tensor, grid: Grid) -> None:
        self._logits, self._slopes, self._x, self._y, self._target, self._grid = logits, slopes, x, y, target, grid
        self.pixels, self.label = x.clone(), y.clone()
        self.ball, self.gradients, self.forwards, self.lost = torch.zeros(4, len(x), dtype=torch.int64, device=x.device)

    def attack(self, ball: int, images: Tensor, starts: Tensor) -> None:
        """Attack some images in one ball."""
        grid = self._grid
        domain = Domain(grid.norm, ball * grid.step, grid.clipped)
        image = images.repeat_interleave(starts.shape[1])
        pixels = domain.project(self._x[image] + starts.flatten(0, 1) * domain.radius, self._x[image])
        for _ in range(grid.steps):
            found, gradient = self._slopes(image, pixels, self._target[image])
            self.gradients.index_add_(0, image, torch.ones_like(image))
            self._count_lost(image, found)
            rows = self._flipped(image, found).nonzero()[:, 0]
            if len(rows):
                self._confirm(ball, image[rows], pixels[rows])
                going = (self.ball[image] == 0).nonzero()[:, 0]
                image, pixels, gradient = image[going], pixels[going], gradient[going]
                if not len(image):
                    return
            moved = pixels + domain.step(gradient.nan_to_num(0.0, 0.0, 0.0), grid.length * domain.radius)
            pixels = domain.project(moved, self._x[image])
        self._confirm(ball, image, pixels)

    def _confirm(self, ball: int, image: Tensor, pixels: Tensor) -> None:
        """Check points in a plain pass, and record the first flip of each image."""
        found = self._logits(image, pixels)
        self.forwards.index_add_(0, image, torch.ones_like(image))
        self._count_lost(image, found)
        rows = self._flipped(image, found).nonzero()[:, 0]
        if not len(rows):
            return
        first = torch.ones_like(rows, dtype=torch.bool)
        first[1:] = image[rows[1:]] != image[rows[:-1]]  # the rows of an image are adjacent
        rows = rows[first]
        hit = image[rows]
        self.ball[hit], self.pixels[hit], self.label[hit] = ball, pixels[rows], found[rows].argmax(1)

    def _count_lost(self, image: Tensor, found: Tensor) -> None:
        self.lost.index_add_(0, image, (~found.isfinite().all(1)).long())

    def _flipped(self, image: Tensor, found: Tensor) -> Tensor:
        """Whether each row has another class; non-finite logits have none."""
        flipped: Tensor = found.isfinite().all(1) & (found.argmax(1) != self._y[image])
        return flipped
