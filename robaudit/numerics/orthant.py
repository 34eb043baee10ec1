"""How are pivoting, rare failures and integration put together into an orthant probability or its complement?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.factor import arrange, split_rare
from robaudit.numerics.integration import SHIFTS, WIDENED_THREE, integrate
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.ordering import Pivoting, pivot_by_restriction
from robaudit.numerics.selection import competing, competitive, groups
from robaudit.numerics.union import union_failure

_SINGULAR = 1e-10  # conditional variance taken as zero
_LOWEST = -37.0  # Phi below it is not a normal float64
_RELATIVE = 0.02  # wanted relative error, three standard errors
_RARE = 5.0  # mass of failures estimated apart, in units of the tolerance
_RARE_POINTS = 16  # points a shift for them
_COMMON = 0.05  # a failure likelier than this is estimated as 1 - p
_DEEP = 1e-14  # probabilities about this small, and
_FINE = 1e-4  # tolerances below this, are computed in double precision


@dataclass(frozen=True)
class Settings:
    """What a caller may choose; see `mvn_cdf`."""

    points: int
    seed: int
    tolerance: float
    truncation: float
    keep: int | None


def orthant(upper: Tensor, correlation: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """P[Z <= upper] and its error for k >= 3; see `mvn_cdf`."""
    possible = (upper > _LOWEST).all(-1)
    upper = upper.clamp_min(_LOWEST)
    # As if independent: a low guess of p under the positive correlation of margins, so a careful first cut.
    guess = normal_cdf(upper).prod(-1)
    selection = competitive(upper, 0.1 * settings.truncation * guess, settings.keep)
    value, error = torch.empty_like(guess), torch.empty_like(guess)
    for rows in groups(selection):
        z, r = competing(selection, correlation, rows)
        value[rows], error[rows] = _orthant(z, r, selection.dropped[rows], settings)
    return torch.where(possible, value, 0.0), torch.where(possible, error, 0.0)


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
        for part in groups(selection):
            rows = rest[part]
            z, r = competing(selection, correlation[rest], part)
            value[rows], error[rows] = _failure(z, r, selection.dropped[part], settings)
    return value, error


def _orthant(z: Tensor, r: Tensor, dropped: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    pivoting = pivot_by_restriction(z, r, truncation=settings.truncation, tolerance=_SINGULAR)
    mass = _RARE * (_RELATIVE * pivoting.estimate).clamp_max(settings.tolerance)
    rare, rank = split_rare(pivoting, _SINGULAR, mass)
    correction = torch.zeros(len(z), 2, dtype=z.dtype, device=z.device)
    some = rare.any(-1).nonzero().squeeze(-1)
    if len(some):
        correction[some] = _rare_failure(z[some], r[some], pivoting.rows(some), rare[some], settings)
    single = (pivoting.estimate > _DEEP) & (settings.tolerance >= _FINE)
    factor = arrange(z, pivoting, rank, pivoting.tie & ~rare, single, _SINGULAR)
    value, spread = integrate(
        factor,
        pivoting.estimate,
        correction,
        points=settings.points,
        seed=settings.seed,
        absolute=0.99 * settings.tolerance,
        relative=_RELATIVE,
    )
    half = 0.5 * (pivoting.omitted + dropped)  # p lies in [value - 2 half, value]
    return (value - half).clamp(0.0, 1.0), (WIDENED_THREE * spread + half).clamp_max(1.0)


def _rare_failure(z: Tensor, r: Tensor, pivoting: Pivoting, rare: Tensor, settings: Settings) -> Tensor:
    """Probability that only rare limits fail, and its standard error: (rows, 2)."""
    kind = torch.float32 if settings.tolerance >= _FINE else torch.float64
    total = union_failure(z, r, pivoting, rare, start=0, stop=_RARE_POINTS, seed=settings.seed + 1, kind=kind)
    return torch.stack(_mean_and_error(total, _RARE_POINTS, (pivoting.failure * rare).sum(-1)), -1)


def _mean_and_error(total: Tensor, points: int, mass: Tensor) -> tuple[Tensor, Tensor]:
    means = total / points
    # What happens in less than one point of all goes unseen: count it into the error.
    return means.mean(-1), torch.hypot(means.std(-1) / SHIFTS**0.5, mass / (SHIFTS * points))


def _failure(z: Tensor, r: Tensor, dropped: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """P[some limit fails] where each of them rarely does."""
    pivoting = pivot_by_restriction(z, r, truncation=0.0, tolerance=_SINGULAR)
    rare, mass, half = pivoting.failure > 0, pivoting.failure.sum(-1), 0.5 * dropped
    value, error = torch.empty_like(mass), torch.empty_like(mass)
    left = torch.arange(len(z), device=z.device)
    total = torch.zeros(len(left), SHIFTS, dtype=z.dtype, device=z.device)
    start, most = 0, max(settings.points // SHIFTS, 1)
    stop = min(2 * _RARE_POINTS, most)
    while len(left) and start < stop:
        total = total + union_failure(z, r, pivoting, rare, start=start, stop=stop, seed=settings.seed, kind=torch.float64)
        mean, spread = _mean_and_error(total, stop, mass)
        value[left], error[left] = mean + half, WIDENED_THREE * spread + half
        more = (WIDENED_THREE * spread > _RELATIVE * mean).nonzero().squeeze(-1)
        left, z, r, total = left[more], z[more], r[more], total[more]
        pivoting, rare, mass, half = pivoting.rows(more), rare[more], mass[more], half[more]
        start, stop = stop, min(2 * stop, most)
    return value, error
