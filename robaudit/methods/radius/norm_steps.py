"""Steps, projections and distances in l2 or l_inf around images, optionally with pixels in [0, 1].

On the CPU sums add elements in a fixed order, so that the bits of a row do not depend on the batch
(see `robaudit.numerics.rowwise`). On CUDA each sum is a single kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.numerics.rowwise import fold, scaled

Norm = Literal["l2", "linf"]
_NEWTON = 10  # steps of the projection; it converges from below, after finitely many
TINY = 1e-30
"""Lower limit of divisors."""


def dots(a: Tensor, b: Tensor) -> Tensor:
    """a_i . b_i of every row, for two (rows, d): (rows,), float64."""
    return _sums(a * b)


def size(d: Tensor, norm: Norm) -> Tensor:
    """The norm of every row (rows, d): (rows,), float64."""
    if norm == "l2" and d.device.type == "cpu":
        return _sums(d.double().square()).sqrt()
    order = 2 if norm == "l2" else math.inf
    norms: Tensor = torch.linalg.vector_norm(d, order, 1, dtype=torch.float64)
    return norms


def dual_size(w: Tensor, norm: Norm) -> Tensor:
    """The dual norm of every row (rows, d), l2 or l1: (rows,), float64."""
    return size(w, norm) if norm == "l2" else _sums(w.abs())


def _sums(x: Tensor) -> Tensor:
    """The sum of every row (rows, d), which may be overwritten: (rows,), float64."""
    if x.device.type != "cpu":
        return x.sum(1, dtype=torch.float64)
    sums: Tensor = fold(x.double().T)
    return sums


@dataclass(frozen=True, slots=True)
class FeasibleSet:
    """The allowed perturbations of some rows.

    Attributes:
        norm: norm of the perturbations.
        lower, upper: bounds on the change of each pixel (rows, d), or None without bounds.
    """

    norm: Norm
    lower: Tensor | None = None
    upper: Tensor | None = None

    def for_rows(self, rows: Tensor) -> FeasibleSet:
        """The feasible sets of some rows."""
        if self.lower is None or self.upper is None:
            return self
        return FeasibleSet(self.norm, self.lower[rows], self.upper[rows])

    def boxed(self, d: Tensor) -> Tensor:
        """The nearest allowed perturbation (rows, d)."""
        if self.lower is None or self.upper is None:
            return d
        return torch.minimum(torch.maximum(d, self.lower), self.upper)

    def measured(self, w: Tensor, d: Tensor) -> list[Tensor]:
        """The measures for a step of a chain, each (rows,), float64.

        They are |d|, w . d, the dual norm of w, two numbers for :meth:`rate`, and the length of the
        direction of :meth:`steepest`.
        """
        radius = size(d, self.norm)
        along = dots(w, d)
        dual = dual_size(w, self.norm)
        inside = None
        if self.lower is not None and self.upper is not None:
            inside = (d > self.lower) & (d < self.upper)
        if self.norm == "linf":
            # The l_inf norm grows only with the pixels that are at it, up to rounding of float32.
            far = d.abs()
            edge = far >= far.amax(1, keepdim=True) * (1 - 1e-5)
            growing = edge if inside is None else inside & edge
            rising = dots(w, torch.where(growing, d.sign(), 0.0))
            return [radius, along, dual, rising, rising, rising]
        if inside is None:
            return [radius, along, dual, along, dots(d, d), dual]
        # Pixels at their bounds stay as d grows along its ray.
        moving = torch.where(inside, d, 0.0)
        rising = dots(w, moving)
        square = dots(moving, moving)
        return [radius, along, dual, rising, square, size(self._free_slope(w, d), "l2")]

    def rate(self, measured: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rate at which w . d rises with the norm as d grows along its ray (rows,).

        For l_inf it holds at the border of the ball only.
        """
        radius, _, _, rising, square, _ = measured.T
        rate: NDArray[np.float64] = rising
        if self.norm == "l2":
            # Along the ray w . d grows by `rising` and |d| by square / radius; only pixels that are
            # not at their bounds move.
            rate = rising * radius / np.maximum(square, TINY)
        return rate

    def unit(self, measured: NDArray[np.float64]) -> NDArray[np.float64]:
        """The factor that normalises the direction of :meth:`steepest` (rows,).

        It is 1 for signs, which have norm 1.
        """
        if self.norm == "linf":
            return np.ones(len(measured))
        return 1 / np.maximum(measured[:, 5], TINY)

    def steepest(self, w: Tensor, d: Tensor, unit: Tensor) -> Tensor:
        """The direction of norm 1 in which w . d rises most (rows, d).

        Pixels that the bounds stop at once are left out.
        """
        w = self._free_slope(w, d)
        return w.sign() if self.norm == "linf" else scaled(w, unit)

    def _free_slope(self, w: Tensor, d: Tensor) -> Tensor:
        """The slope without the pixels that the bounds stop."""
        if self.lower is None or self.upper is None:
            return w
        stopped_below = (d <= self.lower) & (w < 0)
        stopped_above = (d >= self.upper) & (w > 0)
        return torch.where(stopped_below | stopped_above, 0.0, w)

    def onto_ball(self, d: Tensor, radius: Tensor) -> Tensor:
        """Project onto the sphere (l2) or into the ball (l_inf) of each row's radius."""
        if self.norm == "linf":
            wide = radius.to(d.dtype)[:, None]
            return self.boxed(torch.minimum(torch.maximum(d, -wide), wide))
        # Clipping shortens d; scaling it again makes up for a part of that each time.
        for _ in range(1 if self.lower is None else 3):
            d = self.boxed(scaled(d, radius / size(d, "l2").clamp_min(TINY)))
        return d

    def nearest(self, w: Tensor, needed: Tensor) -> Tensor:
        """The smallest allowed perturbation with w . d >= needed (rows, d).

        Where there is none, it is the allowed perturbation with the largest w . d. It is w (l2) or
        sign w (l_inf) times a factor, clipped to the box. Clipped, w . d is a concave, piecewise
        linear function of the factor; Newton's method from 0 reaches the root from below.

        Args:
            w: (rows, d).
            needed: (rows,), at least 0.
        """
        direction = w.sign() if self.norm == "linf" else w
        # The distance to a hyperplane, as in DeepFool: needed / |w|^2 times w, or / |w|_1 times the
        # signs.
        slope = dots(w, direction)
        factor = torch.where(slope > 0, needed / slope.clamp_min(TINY), 0.0)
        if self.lower is None or self.upper is None:
            return scaled(direction, factor)
        factor = torch.zeros_like(factor)
        for _ in range(_NEWTON):
            d = scaled(direction, factor)
            free = torch.where(w > 0, d < self.upper, d > self.lower)
            slope = dots(w, torch.where(free, direction, 0.0))
            missing = needed - dots(w, self.boxed(d))
            step = missing / slope.clamp_min(TINY)
            factor = factor + torch.where((slope > 0) & (missing > 0), step, 0.0)
        return self.boxed(scaled(direction, factor))
