"""Projected gradient ascent to the maximum of a function on balls around images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from robaudit.numerics.rowwise import lengths, scaled

Slopes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Image of each row (rows,) and pixels (rows, *shape) -> log l (rows,), float64, and its gradient
(rows, *shape)."""


@dataclass(frozen=True, slots=True)
class Ball:
    """A ball around each image, within [0, 1] if ``clipped``.

    Attributes:
        norm: norm of the difference to the image: ``linf`` the largest value, ``l2`` the Euclidean
            norm.
        radius: radius of the ball, in pixels.
        clipped: whether pixels stay in [0, 1]; the images themselves do.
    """

    norm: Literal["linf", "l2"]
    radius: float
    clipped: bool = False

    def project(self, pixels: Tensor, centre: Tensor) -> Tensor:
        """The point of the ball nearest to each row (rows, *shape), then clipped to [0, 1], which
        keeps it in the ball."""
        moved = pixels - centre
        if self.norm == "linf":
            moved = moved.clamp(-self.radius, self.radius)
        else:
            moved = scaled(moved, (self.radius / lengths(moved)).clamp_max(1.0))
        projected = centre + moved
        return projected.clamp(0.0, 1.0) if self.clipped else projected

    def step(self, gradient: Tensor, size: float) -> Tensor:
        """The steepest step of this size in the norm: the gradient's signs, or the gradient over
        its length; zero where it is zero."""
        if self.norm == "linf":
            return gradient.sign() * size
        long = lengths(gradient)
        return scaled(gradient, torch.where(long > 0, size / long, 0.0))


@dataclass(frozen=True, slots=True)
class Attack:
    """The best points.

    Attributes:
        log_l: the highest log l of each image (images,), float64.
        points: the points with this log l (images, *shape).
    """

    log_l: Tensor
    points: Tensor


def ascend(slopes: Slopes, x: Tensor, starts: Tensor, ball: Ball, steps: int) -> Attack:
    """max log l over the ball around each image, by projected gradient ascent from several starts
    in lock-step.

    Step i of n has the length radius (1 + cos(pi i / n)) in the norm: from the diameter, which
    crosses the ball, down to zero. With 50 steps the loss was 0.2 to 28 % higher on six pairs of
    networks and norms than with the constant 2.5 radius / n. The best of all iterates, starts
    included, is returned. log l has the same maxima as l, and a gradient where l underflows. A row
    depends only on its image and start, on the CPU in every bit.

    Args:
        slopes: log l and its gradient.
        x: the images (images, *shape).
        starts: (images, restarts, *shape), projected into the ball.
        ball: the ball around each image.
        steps: gradient steps from each start; log l is computed once more at the end.

    Source: Madry et al. 2018, Towards deep learning models resistant to adversarial attacks; the
        lengths are robaudit's, and begin as
    in Croce and Hein (2020).
    """
    images, restarts = starts.shape[:2]
    image = torch.arange(images, device=x.device).repeat_interleave(restarts)
    centre = x[image]
    pixels = ball.project(starts.flatten(0, 1), centre)
    best = x.clone()
    highest = torch.full((images,), -torch.inf, dtype=torch.float64, device=x.device)
    for number in range(steps + 1):
        log_l, gradient = slopes(image, pixels)
        now, row = best_rows(log_l, restarts)
        higher = now > highest
        best = torch.where(higher.view(-1, *[1] * (x.ndim - 1)), pixels[row], best)
        highest = torch.where(higher, now, highest)
        if number < steps:
            length = ball.radius * (1 + math.cos(math.pi * number / steps))
            pixels = ball.project(pixels + ball.step(gradient, length), centre)
    return Attack(highest, best)


def best_rows(log_l: Tensor, each: int) -> tuple[Tensor, Tensor]:
    """The highest value over each image's consecutive rows (images,), and the first row with this
    value (images,)."""
    ranked, order = log_l.view(-1, each).sort(dim=1, descending=True, stable=True)
    return ranked[:, 0], order[:, 0] + torch.arange(len(order), device=order.device) * each
