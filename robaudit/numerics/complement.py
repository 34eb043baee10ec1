"""What is the probability that some of many correlated limits fails, accurately however small it is?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.integration import WIDENED_THREE
from robaudit.numerics.lattice import SHIFTS
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.ordering import pivot_by_restriction
from robaudit.numerics.orthant import RELATIVE, SINGULAR, Settings, orthant
from robaudit.numerics.rowwise import total
from robaudit.numerics.selection import competing, competitive, groups
from robaudit.numerics.union import RARE_POINTS, union_and_error, union_failure

_COMMON = 0.05  # a failure likelier than this is estimated as 1 - p


def orthant_complement(upper: Tensor, correlation: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """1 - P[Z <= upper] with small relative error, for k >= 3; see `mvn_cdf`."""
    largest = normal_cdf(-upper).amax(-1)
    value, error = torch.empty_like(largest), torch.empty_like(largest)
    common = largest > _COMMON
    some, rest = common.nonzero().squeeze(-1), (~common).nonzero().squeeze(-1)
    if len(some):
        below, error[some] = orthant(upper[some], correlation[some], settings)
        value[some] = 1.0 - below
    if len(rest):
        selection = competitive(upper[rest], settings.truncation * largest[rest], settings.keep)
        for part, width in groups(selection):
            rows = rest[part]
            z, r = competing(selection, correlation[rest], part, width)
            value[rows], error[rows] = _failure(z, r, selection.dropped[part], settings)
    return value, error


def _failure(z: Tensor, r: Tensor, dropped: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """P[some limit fails] where each of them rarely does."""
    pivoting = pivot_by_restriction(z, r, truncation=0.0, tolerance=SINGULAR)
    rare, mass, half = pivoting.failure > 0, total(pivoting.failure), 0.5 * dropped
    value, error = torch.empty_like(mass), torch.empty_like(mass)
    left = torch.arange(len(z), device=z.device)
    found = torch.zeros(len(left), SHIFTS, dtype=z.dtype, device=z.device)
    start, most = 0, max(settings.points // SHIFTS, 1)
    stop = min(2 * RARE_POINTS, most)
    while len(left) and start < stop:
        found = found + union_failure(z, r, pivoting, rare, start=start, stop=stop, seed=settings.seed, kind=torch.float64)
        mean, spread = union_and_error(found, stop, mass)
        value[left], error[left] = mean + half, WIDENED_THREE * spread + half
        more = (WIDENED_THREE * spread > RELATIVE * mean).nonzero().squeeze(-1)
        left, z, r, found = left[more], z[more], r[more], found[more]
        pivoting, rare, mass, half = pivoting.rows(more), rare[more], mass[more], half[more]
        start, stop = stop, min(2 * stop, most)
    return value, error
