"""`logit_gaussian`: the probability that jointly normal margins, fitted to noisy forward passes, all stay positive."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean, stdev
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from robaudit.estimators.base import Estimator, Need
from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.mc import flip_by_votes, looked_once
from robaudit.levels import NoiseLevel
from robaudit.numerics.intervals import antithetic_share
from robaudit.numerics.margins import (
    halves,
    margins,
    pair_moments,
    reflection_shift,
    shape_of_pairs,
    standardise,
    without_each_group,
)
from robaudit.numerics.mvn import mvn_cdf
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import hypot, mean_over, total, variance_over
from robaudit.quantities import P_ROBUST, Interval, IntervalKind, Quantity
from robaudit.results import MOST_STORED_DRAWS, NormalFit, Result, Votes
from robaudit.rows import Row, packed

GROUPS = 8
FALSE_ALARMS = 0.01
COMPETITIVE = 64
_EDGE = 1e-15
_LOGITS = {"cpu": 1 << 21, "other": 1 << 26}  # of noisy copies, held at once
_VALUES = {"cpu": 1 << 17, "other": 1 << 24}  # of the pairs without each group, worked on at once
_CDF, _CDF_APART = 1e-3, 4e-3  # wanted errors: of the value, and of those without each group, which share the points: it cancels
_VISIBLE = 2e-3
_ROUNDING = 1e-5
_TAIL_MULTIPLE = 3.0  # a skewness of .5 moves the tail beyond 3 standard deviations by 2.4 times itself (Edgeworth)
_PILOT, _PILOT_START = 32, 2**21  # beyond the copies of every estimate
_RESERVE, _RESERVE_VOTES = 1.25, 1.1  # the delta method's error is mostly less than the jackknife's, which rows state
_NUMBERS = tuple(n for k in range(16) for n in (2**k * 32, 2**k * 48))
_POOLED, _HARMLESS, _TOLERABLE = 10, 0.2, 0.01


class LogitGaussian(Estimator):
    """P[N(m, S) > 0 in every component], m and S the mean and covariance of the margins over noisy *forward* passes.

    Under input noise the margins g_i(x + eps) of a network are close to jointly normal. Antithetic pairs (+eps, -eps) remove the odd
    part of the margins from the error of their mean; the multivariate normal CDF does the rest. No gradients: any model that runs.
    Exact for linear models as the draws grow (the mean is exact at once).

    Margins that are skewed, singly or jointly, shift the probability from the normal one. The same pairs say by how much
    (:func:`~robaudit.numerics.margins.reflection_shift`); the value is corrected by what of it is more than sampling error, which is
    nothing at all for most normal margins (``fit.skew_correction``).

    The interval is a delete-one-group jackknife (8 groups of pairs, Student's t on the probit scale), never narrower than the standard
    error of this many normal draws, and holds the intervals of the value and of the fully corrected value. It is approximate: it does not
    cover the remaining bias. So gates and comparisons rest on the votes of the same passes, which are unbiased
    (:meth:`robaudit.stats.frame.Columns.by_votes`). Skewness and kurtosis of the deciding margin are tested (false alarms at most 1 %):
    an image judged non-normal is decided by its votes, and says so in ``note``.

    Noise of a few variables that move the whole image (fog, blur, rotation) makes no margins normal: under it the votes of the passes
    decide every image.

    The pairs of an image are coupled in frames of 48, so that what is quadratic in a patch of 48 values nearly cancels in the mean
    (:func:`robaudit.noise.frames.orthogonal_frame`); each single draw is exactly normal. The standard error is computed for independent
    pairs: somewhat too large.

    Where it fails: heavy or light tails (even orders are not corrected), as in deep fully connected networks at large noise, once
    there are too few draws for the test to see them: the bias is one or two hundredths there. `mc` is the check.

    Args:
        samples: noisy copies of each image (a multiple of 16), without a tolerance.
        tolerance: choose the number of copies of each image, instead, such that its standard error is about this small. The number comes
            from a pilot of 32 other copies, which are not used again: a rule that looks at the copies it stops favours values with a small
            error, those near 1. A row whose error is larger all the same says "undecided".
        max_samples: the largest number.

    Source: Han et al., Average-case robustness, Lemma 3.1, with moments from forward passes; jackknife: Efron 1982.
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[Need] = Need.LEVEL
    summary: ClassVar[str] = "normal CDF of the margins, their moments from noisy forward passes"
    prefer: ClassVar[str] = "convolutional and residual networks: tens of forward passes, no gradients; checked for normality, not proof"
    source: ClassVar[str] = "robaudit; Han et al., p_mvn-cdf for the CDF"
    interval: ClassVar[Interval] = Interval(IntervalKind.JACKKNIFE, covers_bias=False)

    samples: int = Field(96, ge=16, le=10**6, multiple_of=16, description="noisy copies of each image, a multiple of 16")
    tolerance: float | None = Field(
        None, gt=0, lt=1, description="standard error that sets the copies of each image, after a pilot of 32, instead of a fixed number"
    )
    max_samples: int = Field(
        1024, ge=32, le=10**6, multiple_of=16, description="with a tolerance: the most copies of an image, without its pilot"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """One clean pass and the draws; with a tolerance about a quarter of the most, as the number is not known in advance."""
        return 1 + (self.samples if self.tolerance is None else _PILOT + max(_PILOT, self.max_samples // 4)), 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Draw and fit; with a tolerance, images that need equally many copies are drawn together."""
        if not batch.noise.random:
            return looked_once(batch)
        if self.tolerance is None:
            return _of_copies(batch, [self.samples] * len(batch.x))
        found = _of_copies(batch, [self._needed(error) for error in _pilot(batch)])
        return [self._after_pilot(one) for one in found]

    def review(self) -> SkewReview:
        """Reviews the skewness of margins over all images."""
        return SkewReview()

    def _needed(self, error: float) -> int:
        """Copies that bring the pilot's standard error down to the tolerance, from the list of allowed numbers."""
        wanted = _PILOT * (error / self.tolerance) ** 2 if self.tolerance is not None else 0.0
        return min(next((n for n in _NUMBERS if n >= wanted), self.max_samples), self.max_samples)

    def _after_pilot(self, one: Result) -> Result:
        """The estimate with the passes of its pilot, and the remark that its tolerance was not reached."""
        missed = one.std_error is not None and self.tolerance is not None and one.std_error > self.tolerance
        note = "; ".join(filter(None, [one.note, "undecided: the tolerance was not reached" if missed else ""]))
        return replace(one, forwards=one.forwards + _PILOT, note=note)


def _pilot(batch: ImageBatch) -> list[float]:
    """Standard errors from the pilot's few copies, with some reserve; in closed form, which is enough to choose a number.

    A normal fit has the delta method's, or half that from the votes if larger: margins may not be normal.
    """
    images = list(range(len(batch.x)))
    g, winners = _draw(batch, images, _PILOT, start=_PILOT_START, frames=False)
    predicted = batch.predicted.tolist()
    votes = [PairVotes.of(row, label, batch.classes) for row, label in zip(winners, predicted, strict=True)]
    if not batch.noise.nearly_normal:
        return [_RESERVE_VOTES * (mc_instead(one, label).std_error or 0.0) for one, label in zip(votes, predicted, strict=True)]
    few = _Competing.of(g)
    moments = pair_moments(few.even, few.odd)
    probit = _probit(_probability(moments.mean, moments.covariance)[0])
    errors = (_density(probit) * _delta(few.mean_variance(), _PILOT // 2, probit)).tolist()
    return [_RESERVE * max(error, math.sqrt(one.kept * (1 - one.kept) / _PILOT) / 2) for error, one in zip(errors, votes, strict=True)]


def _of_copies(batch: ImageBatch, draws: Sequence[int]) -> list[Result]:
    """Estimates from the given copies of each image; images with equally many are drawn together, all are fitted together."""
    predicted, others = batch.predicted.cpu(), batch.others.cpu()
    order, winners, kept, statistics = list[int](), list[Tensor](), list[str](), list[_Statistics]()
    for number in sorted(set(draws)):
        alike = [b for b, wanted in enumerate(draws) if wanted == number]
        step = max(1, _LOGITS[_kind(batch.x)] // (number * batch.classes))
        for first in range(0, len(alike), step):
            images = alike[first : first + step]
            g, won = _draw(batch, images, number)
            order += images
            winners += won
            kept += packed(won == predicted[images, None])
            if batch.noise.nearly_normal:
                statistics.append(_Statistics.of(g))
    fit = _fitted(_Statistics(*map(torch.cat, zip(*statistics, strict=True)))).on_host() if statistics else None
    found = {}
    for row, b in enumerate(order):
        label = int(predicted[b])
        votes = PairVotes.of(winners[row], label, batch.classes)
        one = _estimate(fit, row, votes, label, others[b])
        bits = kept[row] if 0 < votes.kept < 1 and draws[b] <= MOST_STORED_DRAWS else None
        found[b] = replace(one, votes=votes.counted(bits))
    return [found[b] for b in range(len(draws))]


def _draw(batch: ImageBatch, images: list[int], draws: int, *, start: int = 0, frames: bool = True) -> tuple[Tensor, Tensor]:
    """Margins of noisy copies (images, draws, classes - 1), float64, and the winners (images, draws) on the host, -1 for none."""
    target = batch.predicted[images]
    logits = torch.empty((len(images) * draws, batch.classes), dtype=torch.float64, device=target.device)
    for noisy, part in batch.noisy_logits(draws, images, start=start, pairs=True, frames=frames):
        logits[noisy.image * draws + noisy.draw] = part.double()
    g = margins(logits, target.repeat_interleave(draws)).view(len(images), draws, -1)
    return g, torch.where(logits.isfinite().all(1), logits.argmax(1), -1).view(len(images), draws).cpu()


def _kind(x: Tensor) -> str:
    return "cpu" if x.device.type == "cpu" else "other"


def _estimate(fit: NormalMargins | None, row: int, votes: PairVotes, predicted: int, others: Tensor) -> Result:
    """The result of one image, by a fit or by votes."""
    if fit is None:
        return mc_instead(votes, predicted)
    if fit.normal[row]:
        return fit.estimate(row, flips_to=int(others[fit.deciding[row]]), votes=votes)
    return mc_instead(votes, predicted, fit.shape(row))


class SkewReview:
    """Collects, for images that noise ever flips, the skewness of the deciding margins and the distance of the fits from the votes."""

    def __init__(self) -> None:
        self._skewness = array("d")
        self._above_votes = array("d")
        self._row: Row | None = None

    def add(self, row: Row) -> None:
        """Take one more row."""
        if row.fit is not None and 0.001 < row.value < 0.999:
            self._row = row
            self._skewness.append(row.fit.skewness)
            if row.votes is not None and row.votes.draws:
                self._above_votes.append(row.value - row.votes.of(row.predicted) / row.votes.draws)

    def warnings(self) -> list[str]:
        """See :func:`skew_warning` and :func:`votes_warning`."""
        if self._row is None:
            return []
        at, label = self._row.at, self._row.estimator
        return skew_warning(self._skewness, at, label) + votes_warning(self._above_votes, at, label)


def skew_warning(skewness: Sequence[float], at: NoiseLevel, label: str) -> list[str]:
    """One line if the deciding margins are skewed on average, beyond the error of the average (99 %) and by more than 0.2.

    A single image's skewness is too noisy at 64 draws (standard error .3); an average over images is not. Networks whose
    normal fit was within .005 of converged `mc` had averages up to .11; fully connected ones with a bias of .04 to .1 had .4 to .9.
    """
    mean = _clear_mean(skewness, _HARMLESS)
    if mean is None:
        return []
    what = f"the margins are skewed at {at} ({mean:.2f} on average over {len(skewness)} images)"
    return [f"{label}: {what}; its values may be some hundredths off: use mc"]


def votes_warning(differences: Sequence[float], at: NoiseLevel, label: str) -> list[str]:
    """One line if the values are off the votes of the same copies on average, beyond the error of the average (99 %) and by more than .01.

    The votes of one image are too coarse to judge its fit. Their average over images is unbiased for any distribution of the margins: it
    shows what no margin's skewness does, as where several margins that are each nearly normal are not so together.

    Args:
        differences: value minus share of votes, for the images that the noise ever flips.
        at: the noise level.
        label: of the estimator.
    """
    mean = _clear_mean(differences, _TOLERABLE)
    if mean is None:
        return []
    where = f"{abs(mean):.3f} {'above' if mean > 0 else 'below'} the votes of the same copies"
    return [f"{label}: its values at {at} are {where}, on average over {len(differences)} images: use mc"]


def _clear_mean(values: Sequence[float], harmless: float) -> float | None:
    """The mean, if it is larger than what is harmless and than its own error (99 %); None otherwise, and of fewer than 10 values."""
    if len(values) < _POOLED:
        return None
    mean = fmean(values)
    return mean if abs(mean) > max(harmless, 2.58 * stdev(values) / math.sqrt(len(values))) else None


@dataclass(frozen=True, slots=True)
class NormalMargins:
    """Normal fits of a batch of images, one entry an image.

    Attributes:
        value, lower, upper, std_error: P[N(m, S) > 0], corrected for skewness, with its jackknife interval and standard error.
        error: numerical error of the CDF, including classes left out.
        correction: the part of the value that corrects for skewness; exactly 0 if none is seen.
        deciding: index of the margin with the smallest m / s.
        skewness, kurtosis: of that margin.
        normal: whether both pass the normality test.
    """

    value: Tensor
    lower: Tensor
    upper: Tensor
    std_error: Tensor
    error: Tensor
    correction: Tensor
    deciding: Tensor
    skewness: Tensor
    kurtosis: Tensor
    normal: Tensor

    def on_host(self) -> NormalMargins:
        """The same on the CPU, copied as one table."""
        table = torch.stack([getattr(self, field.name).double() for field in fields(self)]).cpu()
        host = NormalMargins(*table.unbind())
        return replace(host, deciding=host.deciding.long(), normal=host.normal.bool())

    def shape(self, row: int) -> NormalFit:
        """Shape of the deciding margin, and the correction if there is one."""
        correction = float(self.correction[row])
        return NormalFit(
            round(float(self.skewness[row]), 6),
            round(float(self.kurtosis[row]), 6),
            round(correction, 9) if self.normal[row] and correction else None,
        )

    def estimate(self, row: int, *, flips_to: int, votes: PairVotes) -> Result:
        """The result of one image with its votes, on which gates and the accuracy under noise rest."""
        error = float(self.error[row])
        return Result(
            value=float(self.value[row]),
            lower=float(self.lower[row]),
            upper=float(self.upper[row]),
            std_error=float(self.std_error[row]),
            flips_to=flips_to,
            forwards=1 + votes.draws,
            backwards=0,
            interval=LogitGaussian.interval,
            note=f"normal CDF within {error:.1g}" if error > _VISIBLE else "",
            votes=votes.counted(),
            fit=self.shape(row),
        )


@dataclass(frozen=True, slots=True)
class _Competing:
    """The classes that compete, the smallest m / s first.

    Attributes:
        even, odd: parts of their margins' pairs (batch, pairs, at most 64).
        deciding: index of the first among all margins (batch,).
        omitted: the others' failure probabilities, sum Phi(-z) (batch,).
    """

    even: Tensor
    odd: Tensor
    deciding: Tensor
    omitted: Tensor

    @classmethod
    def of(cls, g: Tensor) -> _Competing:
        even, odd = halves(torch.nan_to_num(g, nan=-1e30, posinf=1e30, neginf=-1e30))
        mean, variance = mean_over(even, 1), variance_over(even, 1) + mean_over(odd.square(), 1)
        z = torch.where(variance > 0, mean / variance.sqrt(), torch.where(mean > 0, torch.inf, -torch.inf))
        order = z.argsort(dim=1, stable=True)
        chosen, left = order[:, :COMPETITIVE, None].transpose(1, 2), z.gather(1, order[:, COMPETITIVE:])
        even, odd = (part.gather(2, chosen.expand(-1, even.shape[1], -1)) for part in (even, odd))
        return cls(even, odd, order[:, 0], total(normal_cdf(-left)) if left.shape[1] else torch.zeros_like(mean[:, 0]))

    def mean_variance(self) -> Tensor:
        """Variance of the first margin's mean, relative to the margin's variance (batch,)."""
        v_even = variance_over(self.even[:, :, 0], 1)
        both = v_even + mean_over(self.odd[:, :, 0].square(), 1)
        return torch.where(both > 0, v_even / torch.where(both > 0, both, 1.0), 0.0) / self.even.shape[1]


class _Statistics(NamedTuple):
    """The statistics of the margins for the fit, one entry an image.

    Attributes:
        mean, covariance: of the margins that compete, from all pairs and without each group (batch, 1 + groups, k), (..., k, k).
        shift: :func:`~robaudit.numerics.margins.reflection_shift`, from the same pairs (batch, 1 + groups).
        pairs: how many (batch,), float64.
        mean_variance, deciding, omitted: of :class:`_Competing` (batch,).
        skewness, kurtosis, p_value: shape of the deciding margin (batch,).
    """

    mean: Tensor
    covariance: Tensor
    shift: Tensor
    pairs: Tensor
    mean_variance: Tensor
    deciding: Tensor
    omitted: Tensor
    skewness: Tensor
    kurtosis: Tensor
    p_value: Tensor

    @classmethod
    def of(cls, g: Tensor) -> _Statistics:
        """From margins (batch, draws, k), antithetic pairs in turn; their number is a multiple of 8."""
        few = _Competing.of(g)
        step = max(1, _VALUES[_kind(g)] // (GROUPS * few.even[0].numel()))
        parts = [_left_out(even, odd) for even, odd in zip(few.even.split(step), few.odd.split(step), strict=True)]
        mean, covariance, shift = (torch.cat(some) for some in zip(*parts, strict=True))
        pairs = torch.full_like(few.omitted, few.even.shape[1])
        shape = shape_of_pairs(few.even[:, :, 0], few.odd[:, :, 0])
        return cls(mean, covariance, shift, pairs, few.mean_variance(), few.deciding, few.omitted, *shape)


def _left_out(even: Tensor, odd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and reflection shift from all pairs and without each group of pairs, (batch, 1 + groups, ...) each."""
    found = []
    for e, o in ((even, odd), (without_each_group(even, GROUPS), without_each_group(odd, GROUPS))):
        moments = pair_moments(e, o)
        found.append([x.unflatten(0, (-1, len(even))) for x in (moments.mean, moments.covariance, reflection_shift(e, o))])
    mean, covariance, shift = (torch.cat(both).transpose(0, 1) for both in zip(*found, strict=True))
    return mean, covariance, shift


def normal_margins(g: Tensor) -> NormalMargins:
    """Fit normal margins and evaluate the CDF, corrected for joint skewness, with a delete-one-group jackknife over the pairs.

    The correction is :func:`~robaudit.numerics.margins.reflection_shift`, D, times max(0, 1 - 2 se_D^2 / D^2): a value that passes
    for normal is unchanged, bit by bit. The interval includes the value's interval and the same one around the fully corrected value.

    Only the classes that compete enter the CDF: at most 64, by smallest m / s; the others' failure probabilities, sum Phi(-z), are
    added to ``error``, up to the value itself. On the probit scale the standard error is the larger of the jackknife's and the delta
    method's sqrt(V_even / (h s^2) + z^2 / (4 h)) of h pairs: so many normal draws support no less.

    Args:
        g: margins (batch, draws, k), antithetic pairs in turn; their number is a multiple of 8.
    """
    return _fitted(_Statistics.of(g))


def _fitted(s: _Statistics) -> NormalMargins:
    # One call for all images and groups: a call costs more than its parts.
    wanted = torch.full_like(s.shift, _CDF_APART)
    wanted[:, 0] = _CDF
    p, errors = (x.view(s.shift.shape) for x in _probability(s.mean.flatten(0, 1), s.covariance.flatten(0, 1), wanted.flatten()))
    plain, left_out = p[:, 0], p[:, 1:].T
    error = errors[:, 0] + torch.minimum(s.omitted, plain)
    shift, shifts = s.shift[:, 0], s.shift[:, 1:].T
    weight = _shrinkage(shift, _jackknife(shifts))
    value = _shifted(plain, weight * shift)
    delta = _delta(s.mean_variance, s.pairs, _probit(plain))
    corrected = _Side.of(value, _shifted(left_out, weight * shifts), delta)
    wholly = corrected.about(_shifted(plain, shift))
    return NormalMargins(
        value=value,
        lower=torch.minimum(torch.minimum(corrected.lower, wholly.lower) - error, value).clamp_min(0),
        upper=torch.maximum(torch.maximum(corrected.upper, wholly.upper) + error, value).clamp_max(1),
        std_error=hypot(torch.maximum(_density(corrected.centre) * corrected.spread, _density(_probit(plain)) * delta), error / 3),
        error=error,
        correction=value - plain,
        deciding=s.deciding,
        skewness=s.skewness,
        kurtosis=s.kurtosis,
        normal=s.p_value > FALSE_ALARMS,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """A value on the probit scale: its centre, standard error and 95 % interval (batch,)."""

    centre: Tensor
    spread: Tensor
    reach: Tensor

    @property
    def lower(self) -> Tensor:
        """The lower end, as a probability."""
        return normal_cdf(self.centre - self.reach)

    @property
    def upper(self) -> Tensor:
        """The upper end, as a probability."""
        return normal_cdf(self.centre + self.reach)

    def about(self, value: Tensor) -> _Side:
        """The same interval on the probit scale, around another value."""
        return _Side(_probit(value), self.spread, self.reach)

    @classmethod
    def of(cls, value: Tensor, left_out: Tensor, delta: Tensor) -> _Side:
        """From the value (batch,), those without each group (groups, batch), and the least standard error (batch,)."""
        from scipy.stats import t as student

        spread = torch.maximum(_jackknife(_probit(left_out)), delta)
        return cls(_probit(value), spread, float(student.ppf(0.975, len(left_out) - 1)) * spread)


def _jackknife(left_out: Tensor) -> Tensor:
    """Standard error from the values without each group: (groups, batch) -> (batch,)."""
    groups = len(left_out)
    return ((groups - 1) ** 2 / groups * variance_over(left_out, 0)).sqrt()


def _shrinkage(shift: Tensor, error: Tensor) -> Tensor:
    """The shrinkage factor of a shift, max(0, 1 - 2 error^2 / shift^2): exactly 0 within 1.4 standard errors and for rounding."""
    square = shift.square().clamp_min(_ROUNDING**2)
    return torch.where(shift.abs() > _ROUNDING, 1 - 2 * error.square() / square, 0.0).clamp_min(0)


def _shifted(value: Tensor, shift: Tensor) -> Tensor:
    """value + shift, at most half of the way to 0 or 1, and at most 3 p (1 - p): skewness moves a small tail by a multiple of itself."""
    most = _TAIL_MULTIPLE * value * (1 - value)
    shift = torch.maximum(torch.minimum(shift, most), -most)
    return value + torch.minimum(torch.maximum(shift, -value / 2), (1 - value) / 2)


def _probability(mean: Tensor, covariance: Tensor, tolerance: float | Tensor = _CDF_APART) -> tuple[Tensor, Tensor]:
    p, error = mvn_cdf(*standardise(mean, covariance), tolerance=tolerance)
    return p.clamp(0, 1), error


def _probit(p: Tensor) -> Tensor:
    y: Tensor = torch.special.ndtri(p.clamp(_EDGE, 1 - _EDGE))
    return y


def _density(y: Tensor) -> Tensor:
    return torch.exp(-y.square() / 2) / math.sqrt(2 * math.pi)


def _delta(mean_variance: Tensor, pairs: Tensor | int, centre: Tensor) -> Tensor:
    """Standard error on the probit scale of this many pairs of normal draws."""
    return (mean_variance + centre.square() / (4 * pairs)).sqrt()


@dataclass(frozen=True, slots=True)
class PairVotes:
    """Votes of the antithetic copies of an image.

    Attributes:
        by_class: copies by class.
        draws: copies in all.
        kept: share that kept the class of the clean image.
        split: pairs in which one copy kept it.
        effective_draws: how many independent copies carry as much information: draws / (1 + rho), rho > 0 the correlation of a
            pair's two indicators, draws / 2 where all agree.
    """

    by_class: tuple[int, ...]
    draws: int
    kept: float
    split: int
    effective_draws: float

    @classmethod
    def of(cls, winners: Tensor, predicted: int, classes: int) -> PairVotes:
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
        return cls(tuple(by_class), n, p, int((kept[0::2] != kept[1::2]).sum()), n / (1 + max(0.0, rho)))

    def counted(self, bits: str | None = None) -> Votes:
        """The votes of the result; ``bits``: which draws kept the class."""
        return Votes(self.by_class, self.draws - sum(self.by_class), self.split, bits)


def mc_instead(votes: PairVotes, predicted: int, shape: NormalFit | None = None) -> Result:
    """The votes of the same passes, for an image whose margins are not normal.

    Args:
        votes: of the noisy copies.
        predicted: class of the clean image.
        shape: skewness and kurtosis of the deciding margin; None under noise that makes no margins normal.
    """
    n, p = votes.draws, votes.kept
    lower, upper = antithetic_share(round(p * n), votes.split, n)
    return Result(
        value=p,
        lower=min(p, float(lower)),
        upper=max(p, float(upper)),
        std_error=math.sqrt(max(p * (1 - p), 1 / (4 * n)) / votes.effective_draws),
        flips_to=flip_by_votes(votes.by_class, predicted),
        forwards=1 + n,
        backwards=0,
        interval=Interval(IntervalKind.ANTITHETIC),
        note=""
        if shape is None
        else f"margins are not normal (skewness {shape.skewness:.2f}, kurtosis {shape.kurtosis:.2f}): decided by votes",
        votes=votes.counted(),
        fit=shape,
    )
