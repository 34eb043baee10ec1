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
        """The point of the ball nearest to each row (rows, *shape), clipped to [0, 1] if
        ``clipped``."""
        moved = pixels - centre
        if self.norm == "linf":
            moved = moved.clamp(-self.radius, self.radius)
        else:
            shrinkage = (self.radius / lengths(moved)).clamp_max(1.0)
            moved = scaled(moved, shrinkage)
        projected = centre + moved
        if not self.clipped:
            return projected
        # The centre is in [0, 1], so clipping brings every value nearer to it: the point stays in
        # the ball.
        return projected.clamp(0.0, 1.0)

    def step(self, gradient: Tensor, size: float) -> Tensor:
        """The steepest step of this size in the norm; zero where the gradient is zero.

        In linf it is the signs of the gradient, in l2 the gradient over its length.
        """
        if self.norm == "linf":
            return gradient.sign() * size
        length = lengths(gradient)
        factor = torch.where(length > 0, size / length, 0.0)
        return scaled(gradient, factor)


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

    Source: Madry et al. 2018, Towards deep learning models resistant to adversarial attacks. The
        lengths are robaudit's, and begin as in Croce and Hein (2020).
    """
    images, restarts = starts.shape[:2]
    # Row r belongs to image r // restarts, in the order that best_rows expects.
    image_of_row = torch.arange(images, device=x.device).repeat_interleave(restarts)
    centre = x[image_of_row]
    pixels = ball.project(starts.flatten(0, 1), centre)
    best = x.clone()
    highest = torch.full((images,), -torch.inf, dtype=torch.float64, device=x.device)
    for number in range(steps + 1):
        log_l, gradient = slopes(image_of_row, pixels)
        log_l_now, row = best_rows(log_l, restarts)
        # False for NaN: a point without a loss never replaces one that has a loss.
        higher = log_l_now > highest
        higher_pixels = higher.view(-1, *[1] * (x.ndim - 1))
        best = torch.where(higher_pixels, pixels[row], best)
        highest = torch.where(higher, log_l_now, highest)
        if number < steps:
            length = ball.radius * (1 + math.cos(math.pi * number / steps))
            pixels = ball.project(pixels + ball.step(gradient, length), centre)
    return Attack(highest, best)


def best_rows(log_l: Tensor, each: int) -> tuple[Tensor, Tensor]:
    """The highest value over each image's consecutive rows, and the first row with this value.

    Args:
        log_l: (images * each,).
        each: rows of an image.

    Returns:
        Values (images,) and rows (images,), int64.
    """
    # A stable sort puts the first of several equal values first, on every device.
    of_image = log_l.view(-1, each)  # (images, each)
    ranked, order = of_image.sort(dim=1, descending=True, stable=True)
    first_row = torch.arange(len(order), device=order.device) * each
    return ranked[:, 0], order[:, 0] + first_row
