"""The minimax exponential tilt of an ordered normal probability, and the Newton systems that give it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_hazard
from robaudit.numerics.ordering import OrderedFactor
from robaudit.numerics.rowwise import cholesky, cholesky_solve, gram, total

_SMALL_SYSTEM = 16  # up to this many variables, elimination step by step is as fast as LAPACK, and zeros that pad a matrix change nothing
_NEWTON_STEPS = 20
_CONVERGED = 1.0  # largest residual; one more step is taken from there, and a better tilt would save no points
_LINE_STEPS = 6
_FAR = 50.0
_NARROW = 16  # a wider row is padded to a multiple of it, whatever the others are
_ELEMENTS = {"cpu": 1 << 18, "other": 1 << 24}  # of all matrices of one operation


class _Gram(Protocol):
    """Matrices G_i of some rows; vectors are (variables, rows)."""

    def rows(self, index: Tensor) -> _Gram:
        """Those of some of the rows."""
        ...

    def times(self, v: Tensor) -> Tensor:
        """G v."""
        ...

    def solve(self, root: Tensor, diagonal: Tensor, b: Tensor) -> Tensor:
        """x with (D' G D + E) x = b, D = diag(root), E = diag(diagonal): positive definite."""
        ...


def _gram_of(unit: Tensor) -> _Gram:
    """G = U U' of (rows, variables, variables)."""
    narrow = unit.shape[1] <= _SMALL_SYSTEM and unit.device.type == "cpu"
    return _Interleaved.of(unit) if narrow else _Separate(gram(unit))


class _Interleaved:
    """Matrices (variables, variables, rows): every operation is one between elements of all rows."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    @classmethod
    def of(cls, unit: Tensor) -> _Interleaved:
        """U U'."""
        columns = unit.permute(2, 1, 0).contiguous()
        matrix = columns[0].unsqueeze(1) * columns[0]
        for column in columns[1:]:
            matrix += column.unsqueeze(1) * column
        return cls(matrix)

    def rows(self, index: Tensor) -> _Interleaved:
        """Those of some of the rows."""
        return self if len(index) == self._matrix.shape[2] else _Interleaved(self._matrix[:, :, index])

    def times(self, v: Tensor) -> Tensor:
        """G v."""
        return total(self._matrix * v, 1)

    def solve(self, root: Tensor, diagonal: Tensor, b: Tensor) -> Tensor:
        """By elimination without a search for pivots, which positive definite matrices do not need."""
        system = torch.cat([self._matrix * root.unsqueeze(1) * root, b.unsqueeze(1)], 1)
        system.diagonal(dim1=0, dim2=1).add_(diagonal.T)
        for i in range(len(b)):
            row = system[i, i:] / system[i, i]
            system[:, i:].sub_(system[:, i : i + 1] * row)
            system[i, i:].copy_(row)
        return system[:, -1]


class _Separate:
    """Matrices (rows, variables, variables), each by itself through LAPACK."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    def rows(self, index: Tensor) -> _Separate:
        """Those of some of the rows."""
        return self if len(index) == len(self._matrix) else _Separate(self._matrix[index])

    def times(self, v: Tensor) -> Tensor:
        """G v."""
        return (self._matrix * v.T.unsqueeze(1)).sum(-1).T

    def solve(self, root: Tensor, diagonal: Tensor, b: Tensor) -> Tensor:
        """By Cholesky's factor."""
        scale = root.T
        matrix = self._matrix * scale.unsqueeze(-1) * scale.unsqueeze(1)
        matrix.diagonal(dim1=1, dim2=2).add_(diagonal.T)
        return cholesky_solve(b.T, cholesky(matrix)[0]).T


def minimax_tilt(factor: OrderedFactor) -> Tensor:
    """The exponential tilt that minimises the largest value of the integrand (ties are ignored).

    The saddle point of sum_i [tilt_i^2/2 - tilt_i y_i + log Phi(t_i)] satisfies, with hazards h = (phi/Phi)(t),
    y = tilt - h and tilt = -slope' h. Eliminating both leaves one equation for t alone,

        t = limit + (G - I) h(t),      G = (I + slope)(I + slope)',

    whose Newton matrix (I - Q) + G Q, with Q = diag(-h'(t)) in [0, 1), is solved in its symmetric form.

    Args:
        factor: the ordered factor.

    Returns:
        (rows, width). Any value keeps the integral exact, so a row for which Newton fails falls back to zero.

    Source:
        Botev (2017), JRSS B 79, section 3, for the saddle point; the reduction to t is ours.
    """
    tilt = torch.zeros_like(factor.limit)
    elements = _ELEMENTS["cpu" if tilt.device.type == "cpu" else "other"]
    size = (-(-factor.rank // _NARROW)).clamp_min(1) * _NARROW
    for padded in sorted(set(size.tolist())):
        alike = (size == padded).nonzero().squeeze(-1)
        for rows in alike.split(max(1, elements // padded**2)):
            width = padded if padded > _NARROW else max(1, int(factor.rank[rows].max()))
            kept = min(width, tilt.shape[1])
            more = (0, width - kept)
            limit = torch.nn.functional.pad(factor.limit[rows, :kept], more, value=torch.inf)
            slope = torch.nn.functional.pad(factor.slope[rows, :kept, :kept], more * 2)
            tilt[rows, :kept] = _tilt(limit.clamp_max(_FAR).T.contiguous(), slope)[:, :kept]
    return tilt


def _tilt(limit: Tensor, slope: Tensor) -> Tensor:
    """Tilts (rows, width) from limits (width, rows) and slopes (rows, width, width)."""
    gram = _gram_of(slope + torch.eye(len(limit), dtype=slope.dtype, device=slope.device))
    t = _along_a_line(limit, gram)
    left = torch.arange(limit.shape[1], device=limit.device)
    for _ in range(_NEWTON_STEPS):
        t[:, left], error = _newton_step(t[:, left], limit[:, left], gram.rows(left))
        left = left[~(error < _CONVERGED)]
        if not len(left):
            break
    tilt = -total(slope * normal_hazard(t).T.unsqueeze(-1), 1)
    usable = torch.isfinite(tilt).all(-1, keepdim=True) & (tilt.abs().amax(-1, keepdim=True) < _FAR)
    return torch.where(usable, tilt, 0.0)


def _along_a_line(limit: Tensor, gram: _Gram) -> Tensor:
    """A start for t near the solution: hazards proportional to those at the limits, h = a h(limit), with the best a."""
    first = normal_hazard(limit)
    push = gram.times(first) - first  # (G - I) h
    share = torch.full_like(limit[0], 0.3)
    for _ in range(_LINE_STEPS):  # Newton for sum_i first_i (share first_i - h(t_i)) = 0
        t = limit + share * push
        hazard = normal_hazard(t)
        excess = total(first * (share * first - hazard), 0)
        rate = total(first * (first + hazard * (t + hazard) * push), 0)
        share = (share - excess / rate).nan_to_num_(1.0).clamp_(1e-3, 1.0)
    return limit + share * push


def _newton_step(t: Tensor, limit: Tensor, gram: _Gram) -> tuple[Tensor, Tensor]:
    """The next t and the largest residual of the last one."""
    hazard = normal_hazard(t)
    curvature = (hazard * (t + hazard)).clamp(0.0, 1.0)  # Q
    residual = t - limit + hazard - gram.times(hazard)
    root = curvature.sqrt()
    v = root * gram.solve(root, 1.0 - curvature, root * residual)
    return t - residual + gram.times(v) - v, residual.abs().amax(0)
