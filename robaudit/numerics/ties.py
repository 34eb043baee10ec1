"""How do variables without variance of their own narrow the interval of the one they depend on last?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.earlier import Earlier
from robaudit.numerics.factor import NO_TIE, OrderedFactor
from robaudit.numerics.normal import normal_cdf, normal_quantile

_FAR = 40.0
_SQRT_HALF, _SQRT_TWO = math.sqrt(0.5), math.sqrt(2.0)


class Ties:
    """The ties of some rows, by level.

    Args:
        factor: the ordered factor.
        limit: limits of the ties (rows, ties), measured from the tilt.
    """

    def __init__(self, factor: OrderedFactor, limit: Tensor) -> None:
        self._factor, self._limit = factor, limit
        self._spans: dict[int, dict[int, tuple[int, int]]] = {}  # by level and row: the first tie and one after the last
        for row, levels in enumerate(factor.tie_level.tolist() if factor.tie_level.shape[1] else []):
            for column, level in enumerate(levels):
                if level < NO_TIE:
                    spans = self._spans.setdefault(level, {})
                    spans[row] = spans.get(row, (column, column))[0], column + 1

    def narrow(self, i: int, s: Tensor, u: Tensor, earlier: Earlier, twice: Tensor, n: Tensor | None) -> None:
        """Where ties keep t_i between limits: 2 (Phi(above) - Phi(below)) into `twice`, -Phi^-1(...) / sqrt 2 into `n`.

        Args:
            i: number of the variable.
            s: -t_i / sqrt 2 without ties, (rows, points).
            u: (points,).
            earlier: the variables before it.
            twice: (rows, points), overwritten in the rows with a tie of this level.
            n: likewise; None after the last variable.
        """
        spans = self._spans.get(i)
        if spans is None:
            return
        rows = torch.tensor(list(spans), device=s.device)
        above, below = self._bounds(i, spans, earlier)
        floor = normal_cdf(below)
        mass = (normal_cdf(torch.minimum(s[rows] * -_SQRT_TWO, above)) - floor).clamp_min_(0.0)
        twice[rows] = 2.0 * mass
        if n is not None:
            n[rows] = normal_quantile(floor + u * mass).mul_(-_SQRT_HALF).clamp_(-_FAR, _FAR)

    def _bounds(self, i: int, spans: dict[int, tuple[int, int]], earlier: Earlier) -> tuple[Tensor, Tensor]:
        """The lowest upper and the highest lower limit of each row: (rows with such a tie, points) each."""
        groups = [[row] for row in spans] if earlier.by_row(i) else [list(spans)]
        parts = []
        for rows in groups:
            columns = slice(min(spans[row][0] for row in rows), max(spans[row][1] for row in rows))
            here = (self._factor.tie_level[rows, columns] == i).unsqueeze(-1)
            side = self._factor.tie_side[rows, columns].unsqueeze(-1)
            bound = self._limit[rows, columns].unsqueeze(-1) + _SQRT_TWO * earlier.sums(self._factor.tie_slope[rows, columns], rows, i)
            above = torch.where(here & (side > 0), bound, torch.inf).amin(1)
            below = torch.where(here & (side < 0), bound, -torch.inf).amax(1)
            parts.append((above, below))
        above, below = (torch.cat(found) for found in zip(*parts, strict=True))
        return above, below
