"""From noisy margins to an estimate under the normal assumption, with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.estimators.base import Estimate
from robaudit.estimators.votes import Votes
from robaudit.numerics.margins import halves, pair_moments, shape_of_pairs, standardise, without_group
from robaudit.numerics.mvn import mvn_cdf
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import hypot, mean_over, total, variance_over

GROUPS = 8
FALSE_ALARMS = 0.01
COMPETITIVE = 64
_EDGE = 1e-15
_VISIBLE = 2e-3


@dataclass(frozen=True, slots=True)
class NormalMargins:
    """Normal fits of a batch of images, one entry an image.

    Attributes:
        value, lower, upper, std_error: P[N(m, S) > 0] with its jackknife interval and standard error.
        error: numerical error of the CDF and of the classes left out of it.
        deciding: index of the margin with the smallest m / s.
        skewness, kurtosis: of that margin.
        normal: whether they pass for normal.
    """

    value: Tensor
    lower: Tensor
    upper: Tensor
    std_error: Tensor
    error: Tensor
    deciding: Tensor
    skewness: Tensor
    kurtosis: Tensor
    normal: Tensor

    def details(self, row: int) -> dict[str, float]:
        """Shape of the deciding margin, for samples.json."""
        return {"skewness": round(float(self.skewness[row]), 6), "kurtosis": round(float(self.kurtosis[row]), 6)}

    def estimate(self, row: int, *, flips_to: int, votes: Votes, interval: str) -> Estimate:
        """One image as a row; the votes go along, for the accuracy under noise."""
        error = float(self.error[row])
        return Estimate(
            value=float(self.value[row]),
            lower=float(self.lower[row]),
            upper=float(self.upper[row]),
            std_error=float(self.std_error[row]),
            flips_to=flips_to,
            forwards=1 + votes.draws,
            backwards=0,
            interval=interval,
            note=f"normal CDF within {error:.1g}" if error > _VISIBLE else "",
            votes=votes.by_class,
            details={**self.details(row), **votes.details},
        )


@dataclass(frozen=True, slots=True)
class _Fit:
    """The classes that compete, the smallest m / s first, and what they give without a jackknife.

    Attributes:
        even, odd: parts of their margins' pairs (batch, pairs, at most 64).
        deciding: index of the first among all margins (batch,).
        value, error: P[N(m, S) > 0] and its numerical error, without the classes left out (batch,).
        omitted: the others' failure probabilities, sum Phi(-z) (batch,).
        centre: probit of the value.
        delta: standard error on the probit scale that so many normal draws leave.
    """

    even: Tensor
    odd: Tensor
    deciding: Tensor
    value: Tensor
    error: Tensor
    omitted: Tensor
    centre: Tensor
    delta: Tensor

    @classmethod
    def of(cls, g: Tensor) -> _Fit:
        even, odd = halves(torch.nan_to_num(g, nan=-1e30, posinf=1e30, neginf=-1e30))
        mean, variance = mean_over(even, 1), variance_over(even, 1) + mean_over(odd.square(), 1)
        z = torch.where(variance > 0, mean / variance.sqrt(), torch.where(mean > 0, torch.inf, -torch.inf))
        order = z.argsort(dim=1, stable=True)
        chosen, left = order[:, :COMPETITIVE, None].transpose(1, 2), z.gather(1, order[:, COMPETITIVE:])
        even, odd = (part.gather(2, chosen.expand(-1, even.shape[1], -1)) for part in (even, odd))
        moments = pair_moments(even, odd)
        value, error = _probability(moments.mean, moments.covariance)
        centre = _probit(value)
        return cls(
            even,
            odd,
            order[:, 0],
            value,
            error,
            total(normal_cdf(-left)) if left.shape[1] else torch.zeros_like(value),
            centre,
            _delta(even, odd, centre),
        )


def least_error(g: Tensor) -> Tensor:
    """Standard error of P[N(m, S) > 0] that so many normal draws leave: no more than :func:`normal_margins` says, for a ninth of its cost.

    Args:
        g: margins (batch, draws, k), antithetic pairs in turn; at least 8 pairs.

    Returns:
        (batch,).
    """
    fit = _Fit.of(g)
    return hypot(_density(fit.centre) * fit.delta, (fit.error + fit.omitted) / 3)


def normal_margins(g: Tensor) -> NormalMargins:
    """Fit normal margins and evaluate the CDF, with a delete-one-group jackknife over the pairs.

    Only the classes that compete enter the CDF: at most 64, by smallest m / s; the others' failure probabilities, sum Phi(-z), are
    added to ``error``. On the probit scale the standard error is the larger of the jackknife's and the delta method's
    sqrt(V_even / (h s^2) + z^2 / (4 h)) of h pairs: so many normal draws support no less.

    Args:
        g: margins (batch, draws, k), antithetic pairs in turn; at least 8 pairs.
    """
    from scipy.stats import t as student

    fit = _Fit.of(g)
    groups = min(GROUPS, fit.even.shape[1])
    left_out = [pair_moments(*(without_group(p, i, groups) for p in (fit.even, fit.odd))) for i in range(groups)]
    mean, covariance = (torch.cat([getattr(m, name) for m in left_out]) for name in ("mean", "covariance"))
    y = _probit(_probability(mean, covariance)[0]).view(groups, -1)
    jackknife = ((groups - 1) ** 2 / groups * variance_over(y, 0)).sqrt()
    spread = torch.maximum(jackknife, fit.delta)
    reach = float(student.ppf(0.975, groups - 1)) * spread
    error = fit.error + fit.omitted
    lower, upper = normal_cdf(fit.centre - reach) - error, normal_cdf(fit.centre + reach) + error
    shape = shape_of_pairs(fit.even[:, :, 0], fit.odd[:, :, 0])
    return NormalMargins(
        value=fit.value,
        lower=torch.minimum(lower, fit.value).clamp_min(0),
        upper=torch.maximum(upper, fit.value).clamp_max(1),
        std_error=hypot(_density(fit.centre) * spread, error / 3),
        error=error,
        deciding=fit.deciding,
        skewness=shape.skewness,
        kurtosis=shape.kurtosis,
        normal=shape.p_value > FALSE_ALARMS,
    )


def _probability(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    p, error = mvn_cdf(*standardise(mean, covariance))
    return p.clamp(0, 1), error


def _probit(p: Tensor) -> Tensor:
    y: Tensor = torch.special.ndtri(p.clamp(_EDGE, 1 - _EDGE))
    return y


def _density(y: Tensor) -> Tensor:
    return torch.exp(-y.square() / 2) / math.sqrt(2 * math.pi)


def _delta(even: Tensor, odd: Tensor, centre: Tensor) -> Tensor:
    """Standard error on the probit scale that h pairs of normal draws leave, from the deciding margin (the first)."""
    pairs = even.shape[1]
    v_even = variance_over(even[:, :, 0], 1)
    both = v_even + mean_over(odd[:, :, 0].square(), 1)
    share = torch.where(both > 0, v_even / torch.where(both > 0, both, 1.0), 0.0)
    return (share / pairs + centre.square() / (4 * pairs)).sqrt()
