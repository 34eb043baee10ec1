"""Attacks in balls of growing radius: the first ball in which projected gradient ascent leaves the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.attack import Domain
from robaudit.numerics.minimal_norm import Logits, Slopes
from robaudit.numerics.norm_steps import Norm

Starts = Callable[[Tensor, int], Tensor]
"""Indices of images (n,) and number of the ball, from 1: points in the unit ball of the norm (n, restarts, *shape)."""

LENGTH = 0.08
"""Of a gradient step, relative to the radius."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The radii of the balls, and the effort in each.

    Attributes:
        norm: of the differences to the image.
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


class Escapes(NamedTuple):
    """The first ball of each image in which it left its class.

    Attributes:
        ball: its number, from 1 (images,), int64; 0 if there is none.
        gradients: rows of backward passes of each image (images,), int64.
        forwards: rows of further forward passes, without those that came with a gradient.
        lost: points with non-finite logits, which count as no flips.
        pixels: the point with another class (images, *shape); the image itself if there is none.
        label: the class there (images,); the given one if there is none.
    """

    ball: Tensor
    gradients: Tensor
    forwards: Tensor
    lost: Tensor
    pixels: Tensor
    label: Tensor


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
    ball_of, gradients, forwards, lost = torch.zeros(4, len(x), dtype=torch.int64, device=x.device)
    found = Escapes(ball_of, gradients, forwards, lost, x.clone(), y.clone())
    search = _BallSearch(logits, slopes, x, y, target, grid, found)
    for ball in range(1, grid.balls + 1):
        left = (found.ball == 0).nonzero()[:, 0]
        if len(left):
            search.attack(ball, left, starts(left, ball))
    return found


@dataclass(frozen=True, slots=True)
class _BallSearch:
    """The search, which updates what was found."""

    logits: Logits
    slopes: Slopes
    x: Tensor
    y: Tensor
    target: Tensor
    grid: Grid
    found: Escapes

    def attack(self, ball: int, images: Tensor, starts: Tensor) -> None:
        """Attack some images in one ball."""
        grid = self.grid
        domain = Domain(grid.norm, ball * grid.step, grid.clipped)
        image = images.repeat_interleave(starts.shape[1])
        pixels = domain.project(self.x[image] + starts.flatten(0, 1) * domain.radius, self.x[image])
        for _ in range(grid.steps):
            logits, gradient = self.slopes(image, pixels, self.target[image])
            rows = self._flipped(image, logits, self.found.gradients)
            if len(rows):
                self._confirm(ball, image[rows], pixels[rows])
                going = (self.found.ball[image] == 0).nonzero()[:, 0]
                image, pixels, gradient = image[going], pixels[going], gradient[going]
                if not len(image):
                    return
            moved = pixels + domain.step(gradient.nan_to_num(0.0, 0.0, 0.0), LENGTH * domain.radius)
            pixels = domain.project(moved, self.x[image])
        self._confirm(ball, image, pixels)

    def _confirm(self, ball: int, image: Tensor, pixels: Tensor) -> None:
        """Check points in a plain pass, and record the first flip of each image."""
        logits = self.logits(image, pixels)
        rows = self._flipped(image, logits, self.found.forwards)
        if not len(rows):
            return
        first = torch.ones_like(rows, dtype=torch.bool)
        first[1:] = image[rows[1:]] != image[rows[:-1]]  # the rows of an image are adjacent
        rows = rows[first]
        hit = image[rows]
        self.found.ball[hit], self.found.pixels[hit], self.found.label[hit] = ball, pixels[rows], logits[rows].argmax(1)

    def _flipped(self, image: Tensor, logits: Tensor, passes: Tensor) -> Tensor:
        """The rows with another class; non-finite logits have none, and are counted. Counts the passes, too."""
        passes.index_add_(0, image, torch.ones_like(image))
        finite = logits.isfinite().all(1)
        self.found.lost.index_add_(0, image, (~finite).long())
        return (finite & (logits.argmax(1) != self.y[image])).nonzero()[:, 0]
