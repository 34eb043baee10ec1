"""The probability that correlated standard normals all stay below their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.bivariate import bivariate_cdf
from robaudit.numerics.integration import WIDENED_THREE, integrate
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.ordering import (
    OrderedFactor,
    Pivoting,
    arrange,
    competing,
    competitive,
    groups,
    joined,
    pivot_by_restriction,
    split_rare,
)
from robaudit.numerics.rowwise import product_of
from robaudit.numerics.union import union_failure

_ROUNDING = 1e-4  # a correlation may leave [-1, 1], and the diagonal 1, by this much (float32 products)
_SINGULAR = 1e-10  # conditional variance taken as zero
_LOWEST = -37.0  # Phi below it is not a normal float64
_RELATIVE = 0.02  # wanted relative error, three standard errors
_RARE = 5.0  # mass of failures estimated separately, in units of the tolerance
_DEEP = 1e-14  # probabilities about this small, and
_FINE = 1e-4  # tolerances below this, are computed in double precision
_MOST_ENTRIES = 1 << 24  # correlation entries integrated at once


def mvn_cdf(
    upper: Tensor,
    correlation: Tensor,
    *,
    points: int = 1 << 14,
    seed: int = 0,
    tolerance: float = 1e-3,
    truncation: float = 1e-5,
    keep: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Phi_R(z) = P[Z_1 <= z_1, ..., Z_k <= z_k] for Z ~ N(0, R), one problem a row.

    k = 0 gives 1, k = 1 and 2 are exact (error 0). From k = 3 on, Genz's separation of variables is integrated by a
    randomly shifted lattice rule, with the variables in Gibson's order; hard or rare rows are tilted (Botev). Limits so
    high that they rarely fail leave the integral: P[only those fail] is estimated by draws conditioned on a failure and
    subtracted, or, when negligible, bounded by sum Phi(-z_i). The matrix may be singular, with duplicate (+1) and
    opposite (-1) rows: what has no variance of its own narrows the interval of the variable it depends on, and nothing
    is added to the diagonal. The integrand is computed in single precision, and its rounding counted into the error,
    except for ties, p below about 1e-14 and tolerances below 1e-4. All rows see the same random points, so the errors of
    different rows are *not* independent. On the CPU a row has the same bits whatever the others are, and however many.

    Args:
        upper: limits z, (B, k), floating point, in standard deviations; +-inf allowed.
        correlation: R, (B, k, k), positive semi-definite with unit diagonal (not checked for definiteness).
        points: most lattice points a row may use; rows stop earlier once they are precise.
        seed: of the random shifts. The global generator is never used.
        tolerance: wanted error; a row also aims at 2 % of its value when that is less.
        truncation: relative to p, the mass sum Phi(-z_i) that may be left out and bounded.
        keep: most variables a row keeps, those with the smallest limits; None keeps all that matter.

    Returns:
        value (B,) in [0, 1] and error (B,), float64 on the device of `upper`. The error is three standard errors (for
        the small number of shifts widened to Student's t) plus the bound on what was left out: [value - error, value +
        error] covers p with about 99.7 %. Rows with a NaN give NaN for both.

    Raises:
        ValueError: for shapes, types, devices or options outside the contract, or a correlation that is not one.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1; Genz and Bretz (2009), Computation of Multivariate Normal and t
        Probabilities; Gibson, Glasbey and Elston (1994); Botev (2017), JRSS B 79; Adler, Blanchet and Liu (2012), Ann.
        Appl. Probab. 22.
    """
    _check(upper, correlation, points, tolerance, truncation, keep)
    z, r = upper.detach().double(), correlation.detach().double()
    rows, k = z.shape
    zero = torch.zeros(rows, dtype=z.dtype, device=z.device)
    if k == 0 or rows == 0:
        return zero + 1.0, zero
    broken = z.isnan().any(-1) | r.isnan().flatten(1).any(-1)
    z = z.masked_fill(broken.unsqueeze(-1), torch.inf).contiguous()
    r = torch.where(broken[:, None, None], torch.eye(k, dtype=z.dtype, device=z.device), r).contiguous()
    if k == 1:
        value, error = normal_cdf(z[:, 0]), zero
    elif k == 2:
        value, error = bivariate_cdf(z[:, 0], z[:, 1], r[:, 0, 1]), zero
    else:
        value, error = _orthant(z, r, _Settings(points, seed, tolerance, truncation, keep))
    return value.masked_fill(broken, torch.nan), error.masked_fill(broken, torch.nan)


def _check(upper: Tensor, correlation: Tensor, points: int, tolerance: float, truncation: float, keep: int | None) -> None:
    if upper.ndim != 2:
        raise ValueError(f"mvn_cdf: upper has shape {tuple(upper.shape)}; it should be (B, k)")
    rows, k = upper.shape
    if correlation.shape != (rows, k, k):
        raise ValueError(f"mvn_cdf: correlation has shape {tuple(correlation.shape)}; with this upper it should be {(rows, k, k)}")
    if not (upper.is_floating_point() and correlation.is_floating_point()):
        raise ValueError(f"mvn_cdf: upper and correlation are {upper.dtype} and {correlation.dtype}; they should be floating point")
    if upper.device != correlation.device:
        raise ValueError(f"mvn_cdf: upper is on {upper.device} and correlation on {correlation.device}; they should be on one device")
    if points < 1 or tolerance < 0 or truncation < 0 or (keep is not None and keep < 1):
        raise ValueError("mvn_cdf: points and keep should be at least 1, tolerance and truncation at least 0")
    if k:
        diagonal = torch.diagonal(correlation.detach(), dim1=1, dim2=2)
        if bool(((diagonal - 1.0).abs() > _ROUNDING).any() | (correlation.detach().abs() > 1.0 + _ROUNDING).any()):
            raise ValueError("mvn_cdf: correlation has a diagonal that is not 1 or an entry beyond +-1; divide by the standard deviations")


@dataclass(frozen=True)
class _Settings:
    """What a caller may choose; see `mvn_cdf`."""

    points: int
    seed: int
    tolerance: float
    truncation: float
    keep: int | None


def _orthant(upper: Tensor, correlation: Tensor, settings: _Settings) -> tuple[Tensor, Tensor]:
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
    """Groups of rows (with their widths, the widest first) to integrate at once: a few long operations instead of many short ones."""
    batches: list[list[tuple[Tensor, int]]] = []
    held = 0
    for rows, width in parts:
        widest = batches[-1][0][1] if batches else 0
        held += len(rows) * widest * widest
        if not batches or held > _MOST_ENTRIES:
            batches.append([])
            held = len(rows) * width * width
        batches[-1].append((rows, width))
    return batches


def _prepare(z: Tensor, r: Tensor, dropped: Tensor, settings: _Settings) -> _Prepared:
    pivoting = pivot_by_restriction(z, r, truncation=settings.truncation, tolerance=_SINGULAR)
    mass = _RARE * (_RELATIVE * pivoting.estimate).clamp_max(settings.tolerance)
    rare, rank = split_rare(pivoting, _SINGULAR, mass)
    correction = torch.zeros(len(z), 2, dtype=z.dtype, device=z.device)
    some = rare.any(-1).nonzero().squeeze(-1)
    if len(some):
        correction[some] = _rare_failure(z[some], r[some], pivoting.rows(some), rare[some], settings)
    single = (pivoting.estimate > _DEEP) & (settings.tolerance >= _FINE)
    factor = arrange(z, pivoting, rank, pivoting.tie & ~rare, single, _SINGULAR)
    return _Prepared(factor, pivoting.estimate, correction, 0.5 * (pivoting.omitted + dropped))


def _integrate(parts: list[_Prepared], settings: _Settings) -> tuple[Tensor, Tensor]:
    """P and its error: with half of what was left out, p lies in [value - 2 half, value]."""
    estimate, correction, half = (torch.cat(field) for field in list(zip(*parts, strict=True))[1:])
    value, spread = integrate(
        joined([part.factor for part in parts]),
        estimate,
        correction,
        points=settings.points,
        seed=settings.seed,
        absolute=0.99 * settings.tolerance,
        relative=_RELATIVE,
    )
    return (value - half).clamp(0.0, 1.0), (WIDENED_THREE * spread + half).clamp_max(1.0)


def _rare_failure(z: Tensor, r: Tensor, pivoting: Pivoting, rare: Tensor, settings: _Settings) -> Tensor:
    """Probability that only rare limits fail, and its standard error: (rows, 2)."""
    kind = torch.float32 if settings.tolerance >= _FINE else torch.float64
    return torch.stack(union_failure(z, r, pivoting, rare, seed=settings.seed + 1, kind=kind), -1)
