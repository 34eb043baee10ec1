"""From noisy margins to an estimate under the normal assumption, and what to do where it does not hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.estimators.base import Estimate
from robaudit.estimators.mc import flip_by_votes
from robaudit.numerics.intervals import clopper_pearson
from robaudit.numerics.moments import standardise
from robaudit.numerics.mvn import mvn_cdf
from robaudit.numerics.normality import shape_of_pairs
from robaudit.numerics.pair_moments import halves, pair_moments, without_group

GROUPS = 8
FALSE_ALARMS = 0.01
_COMPETITIVE = 64
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


def normal_margins(g: Tensor) -> NormalMargins:
    """Fit normal margins and evaluate the CDF, with a delete-one-group jackknife over the pairs.

    Only the classes that compete enter the CDF: at most 64, by smallest m / s; the others' failure probabilities, sum Phi(-z), are
    added to ``error``. On the probit scale the standard error is the larger of the jackknife's and the delta method's
    sqrt(V_even / (h s^2) + z^2 / (4 h)) of h pairs: so many normal draws support no less.

    Args:
        g: margins (batch, draws, k), antithetic pairs in turn; at least 8 pairs.
    """
    from scipy.stats import t as student

    even, odd = halves(torch.nan_to_num(g, nan=-1e30, posinf=1e30, neginf=-1e30))
    pairs = even.shape[1]
    mean = even.mean(1)
    variance = even.var(1) + odd.square().mean(1)
    z = torch.where(variance > 0, mean / variance.sqrt(), torch.where(mean > 0, torch.inf, -torch.inf))
    deciding = z.argmin(1)
    order = z.argsort(dim=1, stable=True)
    chosen, left = order[:, :_COMPETITIVE, None].transpose(1, 2), z.gather(1, order[:, _COMPETITIVE:])
    omitted = torch.special.ndtr(-left).sum(1)
    even, odd = (part.gather(2, chosen.expand(-1, pairs, -1)) for part in (even, odd))
    value, error = _probability(even, odd)
    groups = min(GROUPS, pairs)
    y = torch.stack([_probit(_probability(*(without_group(p, i, groups) for p in (even, odd)))[0]) for i in range(groups)])
    centre = _probit(value)
    jackknife = ((groups - 1) / groups * (y - y.mean(0)).square().sum(0)).sqrt()
    spread = torch.maximum(jackknife, _delta(even, odd, centre))
    reach = float(student.ppf(0.975, groups - 1)) * spread
    error = error + omitted
    lower, upper = torch.special.ndtr(centre - reach) - error, torch.special.ndtr(centre + reach) + error
    density = torch.exp(-centre.square() / 2) / math.sqrt(2 * math.pi)
    shape = shape_of_pairs(even[:, :, 0], odd[:, :, 0])
    return NormalMargins(
        value=value,
        lower=torch.minimum(lower, value).clamp_min(0),
        upper=torch.maximum(upper, value).clamp_max(1),
        std_error=torch.hypot(density * spread, error / 3),
        error=error,
        deciding=deciding,
        skewness=shape.skewness,
        kurtosis=shape.kurtosis,
        normal=shape.p_value > FALSE_ALARMS,
    )


@dataclass(frozen=True, slots=True)
class Votes:
    """What the antithetic copies of an image were classified as.

    Attributes:
        by_class: copies by class.
        draws: copies in all.
        kept: share that kept the class of the clean image.
        worth: how many independent copies they are worth: draws / (1 + rho), rho > 0 the correlation of a pair's two indicators,
            draws / 2 where all agree.
    """

    by_class: tuple[int, ...]
    draws: int
    kept: float
    worth: float

    @classmethod
    def of(cls, winners: Tensor, predicted: int, classes: int) -> Votes:
        """Count them.

        Args:
            winners: winning class of each draw (draws,), -1 where the logits were not finite; pairs in turn.
            predicted: class of the clean image.
            classes: number of classes.
        """
        kept = (winners == predicted).double()
        n, p = len(kept), float(kept.mean())
        variance = p * (1 - p)
        rho = float(((kept[0::2] - p) * (kept[1::2] - p)).mean()) / variance if variance else 1.0
        by_class = torch.bincount(winners[winners >= 0], minlength=classes).tolist()
        return cls(tuple(by_class), n, p, n / (1 + max(0.0, rho)))

    @property
    def details(self) -> dict[str, float]:
        """For samples.json."""
        broken = self.draws - sum(self.by_class)
        return {"votes_worth": round(self.worth, 3)} | ({"not_finite": broken} if broken else {})


def mc_instead(votes: Votes, predicted: int, shape: Mapping[str, float]) -> Estimate:
    """The votes of the same passes, for an image whose margins are not normal; the interval is that of as many independent draws as
    they are worth.

    Args:
        votes: of the noisy copies.
        predicted: class of the clean image.
        shape: skewness and kurtosis of the deciding margin.
    """
    n, p = votes.draws, votes.kept
    lower, upper = clopper_pearson([p * votes.worth], [votes.worth])
    return Estimate(
        value=p,
        lower=float(lower[0]),
        upper=float(upper[0]),
        std_error=math.sqrt(max(p * (1 - p), 1 / (4 * n)) / votes.worth),
        flips_to=flip_by_votes(votes.by_class, predicted),
        forwards=1 + n,
        backwards=0,
        interval="clopper-pearson",
        note=f"margins are not normal (skewness {shape['skewness']:.2f}, kurtosis {shape['kurtosis']:.2f}): decided by votes",
        votes=votes.by_class,
        details={**shape, **votes.details},
    )


def _probability(even: Tensor, odd: Tensor) -> tuple[Tensor, Tensor]:
    moments = pair_moments(even, odd)
    p, error = mvn_cdf(*standardise(moments.mean, moments.covariance))
    return p.clamp(0, 1), error


def _probit(p: Tensor) -> Tensor:
    y: Tensor = torch.special.ndtri(p.clamp(_EDGE, 1 - _EDGE))
    return y


def _delta(even: Tensor, odd: Tensor, centre: Tensor) -> Tensor:
    """Standard error on the probit scale that h pairs of normal draws leave, from the deciding margin (the first)."""
    pairs = even.shape[1]
    v_even = even[:, :, 0].var(1)
    total = v_even + odd[:, :, 0].square().mean(1)
    share = torch.where(total > 0, v_even / torch.where(total > 0, total, 1.0), 0.0)
    return (share / pairs + centre.square() / (4 * pairs)).sqrt()
