"""Steps, projections and distances in l2 or l_inf, about images whose pixels may have to stay in [0, 1].

Sums are taken in a fixed order between elements, so that a row's bits do not depend on the batch (see `robaudit.numerics.rowwise`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from robaudit.numerics.rowwise import fold, scaled

Norm = Literal["l2", "linf"]
_NEWTON = 10  # steps of the projection; it converges from below, after finitely many
_TINY = 1e-30


def dots(a: Tensor, b: Tensor) -> Tensor:
    """a_i . b_i of every row, (rows, d) twice: (rows,), float64."""
    found: Tensor = fold((a * b).double().T)
    return found


def size(d: Tensor, norm: Norm) -> Tensor:
    """The norm of every row (rows, d): (rows,), float64."""
    if norm == "linf":
        return d.abs().amax(1).double()
    wide = d.double()
    found: Tensor = fold(wide.square().T)
    return found.sqrt()


def dual_size(w: Tensor, norm: Norm) -> Tensor:
    """The dual norm of every row (rows, d), l2 or l1: (rows,), float64."""
    if norm == "l2":
        return size(w, norm)
    found: Tensor = fold(w.abs().double().T)
    return found


@dataclass(frozen=True, slots=True)
class Rooms:
    """Where the perturbations of some rows may go.

    Attributes:
        norm: in which they are measured.
        lower, upper: what each pixel may change by (rows, d), or None where all may change by anything.
    """

    norm: Norm
    lower: Tensor | None = None
    upper: Tensor | None = None

    def of(self, rows: Tensor) -> Rooms:
        """Those of chosen rows."""
        return self if self.lower is None or self.upper is None else Rooms(self.norm, self.lower[rows], self.upper[rows])

    def boxed(self, d: Tensor) -> Tensor:
        """The nearest perturbation that is allowed (rows, d)."""
        if self.lower is None or self.upper is None:
            return d
        return torch.minimum(torch.maximum(d, self.lower), self.upper)

    def inside(self, d: Tensor) -> Tensor:
        """Pixels that are not at the border of what they may (rows, d), bool."""
        if self.lower is None or self.upper is None:
            return torch.ones_like(d, dtype=torch.bool)
        return (d > self.lower) & (d < self.upper)

    def steepest(self, w: Tensor, d: Tensor) -> Tensor:
        """The direction of norm 1 in which w . d rises most and which the border does not stop at once (rows, d)."""
        if self.lower is not None and self.upper is not None:
            w = torch.where(((d <= self.lower) & (w < 0)) | ((d >= self.upper) & (w > 0)), 0.0, w)
        return w.sign() if self.norm == "linf" else scaled(w, 1 / size(w, "l2").clamp_min(_TINY))

    def onto_ball(self, d: Tensor, radius: Tensor) -> Tensor:
        """To the border of the ball of each row's radius (l2; what the box cuts off is made up for in part) or into it (l_inf)."""
        if self.norm == "linf":
            wide = radius.to(d.dtype)[:, None]
            return self.boxed(torch.minimum(torch.maximum(d, -wide), wide))
        for _ in range(1 if self.lower is None else 3):
            d = self.boxed(scaled(d, radius / size(d, "l2").clamp_min(_TINY)))
        return d

    def rate(self, w: Tensor, d: Tensor) -> Tensor:
        """How fast w . d rises with the norm as d grows along its ray, at the border of the ball alone for l_inf (rows,), float64."""
        free = self.inside(d)
        if self.norm == "linf":
            edge = d.abs() >= d.abs().amax(1, keepdim=True) * (1 - 1e-5)
            return dots(w, torch.where(free & edge, d.sign(), 0.0))
        moving = torch.where(free, d, 0.0)
        return dots(w, moving) * size(d, "l2") / dots(moving, moving).clamp_min(_TINY)

    def nearest(self, w: Tensor, needed: Tensor) -> Tensor:
        """The smallest allowed perturbation with w . d >= needed (rows, d), or as far towards it as is allowed.

        It is w (l2) or sign w (l_inf) times a factor, brought into the box; w . d is a concave, piecewise linear function of the factor,
        and Newton's method from 0 ends at its root from below.

        Args:
            w: (rows, d).
            needed: (rows,), at least 0.
        """
        direction = w.sign() if self.norm == "linf" else w
        slope = dots(w, direction)
        factor = torch.where(slope > 0, needed / slope.clamp_min(_TINY), 0.0)
        if self.lower is None or self.upper is None:
            return scaled(direction, factor)
        factor = torch.zeros_like(factor)
        for _ in range(_NEWTON):
            d = scaled(direction, factor)
            free = torch.where(w > 0, d < self.upper, d > self.lower)
            slope = dots(w, torch.where(free, direction, 0.0))
            missing = needed - dots(w, self.boxed(d))
            factor = factor + torch.where((slope > 0) & (missing > 0), missing / slope.clamp_min(_TINY), 0.0)
        return self.boxed(scaled(direction, factor))
