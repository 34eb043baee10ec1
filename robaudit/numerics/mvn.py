"""What is the probability that correlated standard normals all stay below their limits?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.bivariate import bivariate_cdf
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.orthant import Settings, orthant

_ROUNDING = 1e-4  # a correlation may leave [-1, 1], and the diagonal 1, by this much (float32 products)


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
        value, error = orthant(z, r, Settings(points, seed, tolerance, truncation, keep))
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
