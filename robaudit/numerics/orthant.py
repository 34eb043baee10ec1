"""How are pivoting, rare failures and integration put together into an orthant probability?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor, arrange, joined, split_rare
from robaudit.numerics.integration import WIDENED_THREE, integrate
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.ordering import Pivoting, pivot_by_restriction
from robaudit.numerics.rowwise import product_of
from robaudit.numerics.selection import competing, competitive, groups
from robaudit.numerics.union import union_failure

SINGULAR = 1e-10  # conditional variance taken as zero
_LOWEST = -37.0  # Phi below it is not a normal float64
RELATIVE = 0.02  # wanted relative error, three standard errors
_RARE = 5.0  # mass of failures estimated apart, in units of the tolerance
_DEEP = 1e-14  # probabilities about this small, and
_FINE = 1e-4  # tolerances below this, are computed in double precision
_HELD = 1 << 24  # correlation entries integrated at once


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
    guess = product_of(normal_cdf(upper))
    selection = competitive(upper, 0.1 * settings.truncation * guess, settings.keep)
    value, error = torch.empty_like(guess), torch.empty_like(guess)
    for batch in _batches(groups(selection)):
        parts = [_prepare(*competing(selection, correlation, rows, width), selection.dropped[rows], settings) for rows, width in batch]
        rows = torch.cat([rows for rows, _ in batch])
        value[rows], error[rows] = _integrate(parts, settings)
    return torch.where(possible, value, 0.0), torch.where(possible, error, 0.0)


class _Prepared(NamedTuple):
    """Rows ready to integrate."""

    factor: OrderedFactor
    estimate: Tensor  # (rows,), rough
    correction: Tensor  # (rows, 2): to be subtracted, and its standard error
    half: Tensor  # (rows,): half of what was left out


def _batches(parts: list[tuple[Tensor, int]]) -> list[list[tuple[Tensor, int]]]:
    """Groups of rows (with their widths, the widest first) to integrate at once: few and long operations instead of many short ones."""
    batches: list[list[tuple[Tensor, int]]] = []
    held = 0
    for rows, width in parts:
        widest = batches[-1][0][1] if batches else 0
        held += len(rows) * widest * widest
        if not batches or held > _HELD:
            batches.append([])
            held = len(rows) * width * width
        batches[-1].append((rows, width))
    return batches


def _prepare(z: Tensor, r: Tensor, dropped: Tensor, settings: Settings) -> _Prepared:
    pivoting = pivot_by_restriction(z, r, truncation=settings.truncation, tolerance=SINGULAR)
    mass = _RARE * (RELATIVE * pivoting.estimate).clamp_max(settings.tolerance)
    rare, rank = split_rare(pivoting, SINGULAR, mass)
    correction = torch.zeros(len(z), 2, dtype=z.dtype, device=z.device)
    some = rare.any(-1).nonzero().squeeze(-1)
    if len(some):
        correction[some] = _rare_failure(z[some], r[some], pivoting.rows(some), rare[some], settings)
    single = (pivoting.estimate > _DEEP) & (settings.tolerance >= _FINE)
    factor = arrange(z, pivoting, rank, pivoting.tie & ~rare, single, SINGULAR)
    return _Prepared(factor, pivoting.estimate, correction, 0.5 * (pivoting.omitted + dropped))


def _integrate(parts: list[_Prepared], settings: Settings) -> tuple[Tensor, Tensor]:
    """P and its error: with half of what was left out, p lies in [value - 2 half, value]."""
    estimate, correction, half = (torch.cat(field) for field in list(zip(*parts, strict=True))[1:])
    value, spread = integrate(
        joined([part.factor for part in parts]),
        estimate,
        correction,
        points=settings.points,
        seed=settings.seed,
        absolute=0.99 * settings.tolerance,
        relative=RELATIVE,
    )
    return (value - half).clamp(0.0, 1.0), (WIDENED_THREE * spread + half).clamp_max(1.0)


def _rare_failure(z: Tensor, r: Tensor, pivoting: Pivoting, rare: Tensor, settings: Settings) -> Tensor:
    """Probability that only rare limits fail, and its standard error: (rows, 2)."""
    kind = torch.float32 if settings.tolerance >= _FINE else torch.float64
    return torch.stack(union_failure(z, r, pivoting, rare, seed=settings.seed + 1, kind=kind), -1)
