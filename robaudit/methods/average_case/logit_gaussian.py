"""`logit_gaussian`: the probability that jointly normal margins, fitted to noisy forward passes,
all stay positive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.votes import flip_by_votes
from robaudit.methods.average_case.mc import results_of_one_copy
from robaudit.methods.average_case.mvn import mvn_cdf
from robaudit.methods.average_case.omitted import omitted_failures
from robaudit.methods.average_case.review import FitReview
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
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import hypot, mean_over, product, total, variance_over
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.results import MOST_STORED_DRAWS, NormalFit, Result, Votes
from robaudit.runs.rows import bits_as_text
from robaudit.spec.fields import SAMPLES_ARE_DRAWS

GROUPS = 8
"""Groups of pairs of the jackknife; ``draws`` is a multiple of 16, so that they are equally
large."""
FALSE_ALARMS = 0.01
"""The most images with normal margins whose fit is rejected, as a share."""
SURE = 0.999
"""Confidence of the interval of an image's votes that its fit must lie in."""
COMPETITIVE = 64
"""The most margins in the CDF, whose cost grows with the square of their number."""
_EDGE = 1e-15  # probabilities stay this far from 0 and 1, where the probit is infinite
_LOGITS = {"cpu": 1 << 21, "other": 1 << 26}  # values of noisy copies held at once
# Values of the pairs without each group, processed at once: with many draws, all at once would hold
# eight times as much and be slower.
_VALUES = {"cpu": 1 << 17, "other": 1 << 24}
# Tolerated errors of the CDF: for the value, and for the values without each group. These see the
# same lattice points as the value, so that the errors of their differences nearly cancel.
_CDF = 1e-3
_CDF_LEFT_OUT = 4e-3
_OMITTED = 1e-4  # failure probability of omitted margins that needs no closer look
_VISIBLE = 2e-3  # numerical error above which the row has a note: twice the tolerated one
_ROUNDING = 1e-5  # a shift of the probability below it comes from rounded float32 logits
# By Edgeworth's expansion a skewness of .5 changes the tail beyond 3 standard deviations by 2.4
# times its size.
_TAIL_MULTIPLE = 3.0


class LogitGaussian(Estimator):
    """P[N(m, S) > 0 in every component], m and S the mean and covariance of the margins over noisy
    *forward* passes.

    Under input noise the margins g_i(x + eps) of a network are close to jointly normal. Antithetic
    pairs (+eps, -eps) remove the odd part of the margins from the error of their mean; the
    multivariate normal CDF does the rest. It needs no gradients: any model works. Exact for linear
    models as the draws grow (the mean is exact at once).

    Skewed margins, singly or jointly, shift the probability away from the normal value. The same
    pairs estimate the shift (:func:`~robaudit.numerics.margins.reflection_shift`); the value is
    corrected by the part that exceeds sampling error, which is exactly zero for most normal margins
    (``fit.skew_correction``).

    The interval is a delete-one-group jackknife (8 groups of pairs, Student's t on the probit
    scale), never narrower than the standard error of as many normal draws, and contains the
    intervals of the value and of the fully corrected value. It is approximate: it does not cover
    the remaining bias. So summaries, gates and comparisons use the votes of the same passes, which
    are unbiased (:meth:`robaudit.runs.table.Columns.by_votes`). Skewness and kurtosis of the
    deciding margin are tested (false alarms at most 1 %): an image judged non-normal gets the value
    of its votes, and ``note`` says so. So does an image whose fit lies outside the 99.9 % interval
    of its votes, as with logits that are tied or rounded to a few steps.

    Noise of a few variables that affect the whole image (fog, blur, rotation) does not give normal
    margins: under it every value comes from the votes.

    The pairs of an image are coupled in blocks of 48, so that terms quadratic in a patch of 48
    values nearly cancel in the mean (:func:`robaudit.noise.orthogonal.orthogonal_block`); each
    single draw is exactly normal. The standard error assumes independent pairs and is somewhat too
    large.

    It fails for heavy or light tails (even orders are not corrected), as in deep fully connected
    networks at large noise, if there are too few draws for the test to see them: the bias is then
    one or two hundredths. Check with `mc`.

    Source: Han et al., Average-case robustness, Lemma 3.1, with moments from forward passes;
    jackknife: Efron 1982.
    """

    quantity = P_ROBUST
    needs = Need.LEVEL
    interval = Interval(IntervalKind.JACKKNIFE, covers_bias=False)
    summary = "normal CDF of the margins, their moments from noisy forward passes"
    prefer = (
        "convolutional and residual networks: tens of forward passes, no gradients; checked "
        "for normality, not proof"
    )
    source = "robaudit; Han et al., p_mvn-cdf for the CDF"

    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(
        96,
        ge=16,
        le=10**6,
        multiple_of=16,
        description="noisy copies of each image, a multiple of 16",
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the draws."""
        return 1 + self.draws, 0

    def review(self) -> FitReview:
        """Whether the fits are off the votes of the same copies on average."""
        return FitReview()

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Draw a few images at a time, and fit all together."""
        if not batch.noise.random:
            return results_of_one_copy(batch)
        predicted = batch.predicted.cpu()
        others = batch.others.cpu()
        winners = list[Tensor]()
        bits = list[str]()
        statistics = list[MarginStatistics]()
        values_of_image = self.draws * batch.classes
        images_at_once = max(1, _LOGITS[_device_kind(batch.x)] // values_of_image)
        for images in torch.arange(len(predicted)).split(images_at_once):
            g, winner = _draw(batch, images.tolist(), self.draws)
            winners += winner
            bits += bits_as_text(winner == predicted[images, None])
            if batch.noise.nearly_normal:
                statistics.append(MarginStatistics.from_margins(g))
        fits: Sequence[MarginFit | None] = [None] * len(winners)
        if statistics:
            fits = fit_margins(statistics)
        results = []
        rows = zip(predicted.tolist(), others, winners, bits, fits, strict=True)
        for target, other_classes, winner, text, fit in rows:
            kept = winner == target
            votes = _votes(winner, kept, batch.classes, text)
            if fit is not None and fit.normal and not contradicted(fit.value, votes, target):
                flips_to = int(other_classes[int(fit.deciding)])
                results.append(fit.result(votes, flips_to=flips_to))
            else:
                results.append(by_votes(votes, kept, target, fit))
        return results


def _draw(batch: ImageBatch, images: list[int], draws: int) -> tuple[Tensor, Tensor]:
    """Draw antithetic copies of some images.

    Returns:
        Their margins (images, draws, classes - 1), float64, and their classes (images, draws) on
        the host, -1 for a copy with non-finite logits.
    """
    target = batch.predicted[images]
    shape = (len(images), draws)
    rows = len(images) * draws
    logits = torch.empty((rows, batch.classes), dtype=torch.float64, device=target.device)
    for noisy, part in batch.noisy_logits(draws, images, pairs=True, orthogonal=True):
        logits[noisy.image * draws + noisy.draw] = part.double()
    g = margins(logits, target.repeat_interleave(draws))
    finite = logits.isfinite().all(1)
    winner = torch.where(finite, logits.argmax(1), -1)
    return g.view(*shape, -1), winner.view(shape).cpu()


def _votes(winner: Tensor, kept: Tensor, classes: int, text: str) -> Votes:
    """The votes of an image's copies.

    Args:
        winner: the class of each copy (draws,), -1 for non-finite logits, pairs in turn.
        kept: whether each copy kept the class of the clean image (draws,), bool.
        classes: their number.
        text: ``kept`` as text.
    """
    counts = torch.bincount(winner[winner >= 0], minlength=classes).tolist()
    broken = int((winner < 0).sum())
    split_pairs = int((kept[0::2] != kept[1::2]).sum())
    # Equal bits need no text: the counts say them all.
    differ = kept.any() and not kept.all()
    stored = text if differ and len(winner) <= MOST_STORED_DRAWS else None
    return Votes(tuple(counts), broken, split_pairs, stored)


def _device_kind(x: Tensor) -> str:
    """The key of limits that depend on the device."""
    return "cpu" if x.device.type == "cpu" else "other"


class MarginFit(NamedTuple):
    """The normal fit of an image.

    Attributes:
        value, lower, upper, std_error: P[N(m, S) > 0], corrected for skewness, with its jackknife
            interval and standard error.
        error: numerical error of the CDF, including omitted classes.
        correction: the part of the value that corrects for skewness; exactly 0 without visible
            skewness.
        deciding: index of the margin with the smallest m / s.
        skewness, kurtosis: of that margin.
        normal: whether both pass the normality test, and the margin varies.
    """

    value: float
    lower: float
    upper: float
    std_error: float
    error: float
    correction: float
    deciding: float
    skewness: float
    kurtosis: float
    normal: float

    @property
    def shape(self) -> NormalFit:
        """Shape of the deciding margin, and the correction, if any."""
        correction = round(self.correction, 9) if self.normal and self.correction else None
        return NormalFit(round(self.skewness, 6), round(self.kurtosis, 6), correction)

    def result(self, votes: Votes, *, flips_to: int) -> Result:
        """The result, with the votes of the same copies, which gates and the accuracy under noise
        use."""
        return Result(
            value=self.value,
            lower=self.lower,
            upper=self.upper,
            std_error=self.std_error,
            flips_to=flips_to,
            forwards=1 + votes.draws,
            interval=LogitGaussian.interval,
            note=f"normal CDF within {self.error:.1g}" if self.error > _VISIBLE else "",
            votes=votes,
            fit=self.shape,
        )


class MarginStatistics(NamedTuple):
    """The statistics of the margins for the fit, an entry per image.

    Attributes:
        mean, covariance: of the competing margins, from all pairs and without each group (batch, 1
            + groups, k), (..., k, k).
        shift: :func:`~robaudit.numerics.margins.reflection_shift`, from the same pairs (batch, 1 +
            groups).
        pairs: number of pairs (batch,), float64.
        mean_variance: variance of the deciding margin's mean, relative to the margin's variance
            (batch,).
        deciding: index of the margin with the smallest m / s (batch,).
        omitted: by how much at most the margins that do not compete lower the probability
            (batch,).
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
    def from_margins(cls, g: Tensor) -> MarginStatistics:
        """From margins (batch, draws, k), antithetic pairs in turn; their number is a multiple of
        8."""
        # NaN counts as a failure, as everywhere; infinite margins keep their sign.
        even, odd = halves(torch.nan_to_num(g, nan=-1e30, posinf=1e30, neginf=-1e30))
        mean = mean_over(even, 1)
        v_even = variance_over(even, 1)
        variance = v_even + mean_over(odd.square(), 1)
        varies = variance > 0
        # A margin that does not vary never fails if it is positive, and always otherwise.
        constant = torch.where(mean > 0, torch.inf, -torch.inf)
        z = torch.where(varies, mean / variance.sqrt(), constant)
        order = z.argsort(dim=1, stable=True)
        deciding = order[:, :1]  # (batch, 1)
        # Only the even part leaves an error in the mean of antithetic pairs.
        divisor = torch.where(varies, variance, 1.0)
        even_share = torch.where(varies, v_even / divisor, 0.0)

        omitted = _omitted(even, odd, z, order)

        h = even.shape[1]
        competing = order[:, :COMPETITIVE, None].transpose(1, 2)  # (batch, 1, k)
        competing = competing.expand(-1, h, -1)
        even = even.gather(2, competing)
        odd = odd.gather(2, competing)
        values_of_image = GROUPS * even[0].numel()
        images_at_once = max(1, _VALUES[_device_kind(g)] // values_of_image)
        pieces = zip(even.split(images_at_once), odd.split(images_at_once), strict=True)
        parts = [_with_and_without_groups(*piece) for piece in pieces]
        mean, covariance, shift = (torch.cat(part) for part in zip(*parts, strict=True))

        pairs = torch.full_like(omitted, h)
        # After the selection the deciding margin is the first.
        skewness, kurtosis, p_value = shape_of_pairs(even[:, :, 0], odd[:, :, 0])
        # A margin that is the same in all copies, as of tied logits, has no distribution to fit.
        deciding_varies = variance.gather(1, deciding)[:, 0] > 0
        p_value = torch.where(deciding_varies, p_value, 0.0)
        return cls(
            mean=mean,
            covariance=covariance,
            shift=shift,
            pairs=pairs,
            mean_variance=even_share.gather(1, deciding)[:, 0] / pairs,
            deciding=deciding[:, 0],
            omitted=omitted,
            skewness=skewness,
            kurtosis=kurtosis,
            p_value=p_value,
        )


def _omitted(even: Tensor, odd: Tensor, z: Tensor, order: Tensor) -> Tensor:
    """By how much at most the margins that do not compete lower the probability that all are
    positive.

    Args:
        even, odd: the parts of the pairs (batch, pairs, k).
        z: m / s of each margin (batch, k).
        order: the margins, the smallest m / s first (batch, k).

    Returns:
        (batch,): sum Phi(-z) where it is small, and otherwise the part of it in which the competing
        margins are positive.
    """
    if order.shape[1] <= COMPETITIVE:
        return torch.zeros_like(z[:, 0])
    ordered_z = z.gather(1, order)
    omitted = total(normal_cdf(-ordered_z[:, COMPETITIVE:]))
    for i in (omitted > _OMITTED).nonzero()[:, 0].tolist():
        chosen = order[i]
        correlation = _correlation(even[i, :, chosen], odd[i, :, chosen])
        failures = omitted_failures(
            ordered_z[i : i + 1, :COMPETITIVE],
            correlation[None, :, :COMPETITIVE],
            ordered_z[i : i + 1, COMPETITIVE:],
            correlation[None, :, COMPETITIVE:],
        )
        omitted[i] = torch.fmin(omitted[i], failures[0])
    return omitted


def _correlation(even: Tensor, odd: Tensor) -> Tensor:
    """Correlations of the competing margins with all margins, (competing, k), as in
    :func:`~robaudit.numerics.margins.pair_moments`.

    Args:
        even, odd: the parts of an image's pairs (pairs, k), the competing margins first.
    """
    h = len(even)
    centred = even - mean_over(even, 0)
    # Both parts as rows of one matrix, whose products are the covariance.
    parts = torch.cat([centred / math.sqrt(h - 1), odd / math.sqrt(h)])
    lengths = total(parts.square(), 0).sqrt()
    parts = parts / torch.where(lengths > 0, lengths, 1.0)
    correlation = product(parts[None, :, :COMPETITIVE].transpose(1, 2), parts[None])[0]
    correlation.diagonal().fill_(1.0)
    return correlation


def _with_and_without_groups(even: Tensor, odd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and reflection shift from all pairs, and without each group of pairs.

    Args:
        even, odd: the parts of the pairs (batch, pairs, k).

    Returns:
        (batch, 1 + groups, k), (batch, 1 + groups, k, k) and (batch, 1 + groups).
    """
    all_pairs = (even, odd)
    fewer_pairs = (without_each_group(even, GROUPS), without_each_group(odd, GROUPS))
    means = []
    covariances = []
    shifts = []
    for even_part, odd_part in (all_pairs, fewer_pairs):
        # rows of a group are adjacent: (1 or groups) * batch
        groups_first = (-1, len(even))
        moments = pair_moments(even_part, odd_part)
        means.append(moments.mean.unflatten(0, groups_first))
        covariances.append(moments.covariance.unflatten(0, groups_first))
        shifts.append(reflection_shift(even_part, odd_part).unflatten(0, groups_first))
    mean, covariance, shift = (
        torch.cat(parts).transpose(0, 1) for parts in (means, covariances, shifts)
    )
    return mean, covariance, shift


def fit_margins(parts: Sequence[MarginStatistics]) -> list[MarginFit]:
    """Fit normal margins and evaluate the CDF, corrected for joint skewness, with a
    delete-one-group jackknife over the pairs.

    The correction is :func:`~robaudit.numerics.margins.reflection_shift`, D, times max(0, 1 - 2
    se_D^2 / D^2): a value that passes for normal is unchanged, bit by bit. The interval contains
    the value's interval and the same interval around the fully corrected value.

    Only the competing classes enter the CDF: at most 64, by smallest m / s. What the others can
    take from it (:func:`~robaudit.methods.average_case.omitted.omitted_failures`) is added to
    ``error``, up to the value itself. On the probit scale
    the standard error is the larger of the jackknife's and the delta method's sqrt(V_even / (h s^2)
    + z^2 / (4 h)) for h pairs: normal draws give no smaller error.
    """
    from scipy.special import stdtrit

    s = MarginStatistics(*map(torch.cat, zip(*parts, strict=True)))
    p, errors = _probabilities(s)
    plain = p[:, 0]
    left_out = p[:, 1:].T  # (groups, images)
    # p is at least 0.
    error = errors[:, 0] + torch.minimum(s.omitted, plain)

    shift = s.shift[:, 0]
    shifts_left_out = s.shift[:, 1:].T
    weight = _shrinkage(shift, _jackknife(shifts_left_out))
    value = _shifted(plain, weight * shift)
    fully_corrected = _shifted(plain, shift)

    delta = _delta(s.mean_variance, s.pairs, _probit(plain))
    corrected_left_out = _shifted(left_out, weight * shifts_left_out)
    spread = torch.maximum(_jackknife(_probit(corrected_left_out)), delta)
    reach = float(stdtrit(GROUPS - 1, 0.975)) * spread
    centres = torch.stack([_probit(value), _probit(fully_corrected)])
    lowest = normal_cdf(centres - reach).amin(0) - error
    highest = normal_cdf(centres + reach).amax(0) + error
    lower = torch.minimum(lowest, value).clamp_min(0)
    upper = torch.maximum(highest, value).clamp_max(1)
    # From the probit scale to p by the density of z, at the value and at the plain fit.
    sampling_error = torch.maximum(
        _density(centres[0]) * spread,
        _density(_probit(plain)) * delta,
    )
    # The numerical error is three standard errors.
    std_error = hypot(sampling_error, error / 3)

    normal = s.p_value > FALSE_ALARMS
    columns = (
        value,
        lower,
        upper,
        std_error,
        error,
        value - plain,
        s.deciding,
        s.skewness,
        s.kurtosis,
        normal,
    )
    # One table: on CUDA a single transfer to the host.
    table = torch.stack([column.double() for column in columns], 1)
    return [MarginFit(*row) for row in table.tolist()]


def _probabilities(s: MarginStatistics) -> tuple[Tensor, Tensor]:
    """P[N(m, S) > 0] from all pairs and without each group, and its numerical error, (images, 1 +
    groups) each."""
    tolerance = torch.full_like(s.shift, _CDF_LEFT_OUT)
    tolerance[:, 0] = _CDF
    # One call for all images and groups: a call costs more than its rows.
    z, r = standardise(s.mean.flatten(0, 1), s.covariance.flatten(0, 1))
    p, error = mvn_cdf(z, r, tolerance=tolerance.flatten())
    return p.clamp(0, 1).view(s.shift.shape), error.view(s.shift.shape)


def _jackknife(left_out: Tensor) -> Tensor:
    """The jackknife standard error from the values without each group: (groups, batch) ->
    (batch,)."""
    groups = len(left_out)
    # Efron 1982: (g - 1) / g times the sum of squares, which is g - 1 times the sample variance
    return ((groups - 1) ** 2 / groups * variance_over(left_out, 0)).sqrt()


def _shrinkage(shift: Tensor, error: Tensor) -> Tensor:
    """The shrinkage factor of a shift, max(0, 1 - 2 error^2 / shift^2): exactly 0 below 1.4
    standard errors and for rounding errors."""
    # Where the shift is rounding, the quotient is not used; clamped, it stays finite.
    square = shift.square().clamp_min(_ROUNDING**2)
    factor = 1 - 2 * error.square() / square
    return torch.where(shift.abs() > _ROUNDING, factor, 0.0).clamp_min(0)


def _shifted(value: Tensor, shift: Tensor) -> Tensor:
    """value + shift, at most half way to 0 or 1, and at most 3 p (1 - p): skewness changes a small
    tail by a multiple of its size."""
    most = _TAIL_MULTIPLE * value * (1 - value)
    shift = torch.maximum(torch.minimum(shift, most), -most)
    half_way_down = -value / 2
    half_way_up = (1 - value) / 2
    return value + torch.minimum(torch.maximum(shift, half_way_down), half_way_up)


def _probit(p: Tensor) -> Tensor:
    """Phi^-1(p), finite."""
    y: Tensor = torch.special.ndtri(p.clamp(_EDGE, 1 - _EDGE))
    return y


def _density(y: Tensor) -> Tensor:
    """The density of N(0, 1)."""
    return torch.exp(-y.square() / 2) / math.sqrt(2 * math.pi)


def _delta(mean_variance: Tensor, pairs: Tensor, centre: Tensor) -> Tensor:
    """The standard error on the probit scale for a number of pairs of normal draws."""
    # Delta method for z = m / s: Var z = Var m / s^2 + z^2 Var(s) / s^2, and Var(s) / s^2 is
    # 1 / (2 n) for n = 2 h normal draws.
    return (mean_variance + centre.square() / (4 * pairs)).sqrt()


def vote_error(kept: Tensor) -> float:
    """The standard error of the share of antithetic copies that keep the class (draws,), pairs in
    turn.

    They carry as much information as draws / (1 + rho) independent copies, rho > 0 the correlation
    of a pair's two indicators; draws / 2 if all copies agree.
    """
    kept = kept.double()
    n = len(kept)
    p = float(kept.mean())
    variance = p * (1 - p)
    rho = 1.0
    if variance:
        covariance = float(((kept[0::2] - p) * (kept[1::2] - p)).mean())
        rho = covariance / variance
    effective_draws = n / (1 + max(0.0, rho))
    # Shares of 0 and 1 get a positive error, too.
    return math.sqrt(max(variance, 1 / (4 * n)) / effective_draws)


def contradicted(value: float, votes: Votes, predicted: int) -> bool:
    """Whether the value of a fit lies outside the interval of the votes of the same copies.

    Args:
        value: of the fit.
        votes: of the copies, in antithetic pairs.
        predicted: the class of the clean image.
    """
    lower, upper = antithetic_share(votes.for_class(predicted), votes.split or 0, votes.draws, SURE)
    return not lower <= value <= upper


def by_votes(votes: Votes, kept: Tensor, predicted: int, fit: MarginFit | None = None) -> Result:
    """The result from the votes, for an image whose margins are not normal, or whose fit the votes
    rule out.

    Args:
        votes: of the noisy copies.
        kept: whether each copy kept the class of the clean image (draws,), bool, pairs in turn.
        predicted: the class of the clean image.
        fit: the rejected fit; None under noise that does not give normal margins.
    """
    n = len(kept)
    p = float(kept.double().mean())
    # The value is not corrected: its fit is not used.
    shape = None if fit is None else fit._replace(correction=0.0).shape
    lower, upper = antithetic_share(round(p * n), votes.split or 0, n)
    note = ""
    if fit is not None:
        note = f"{_why_rejected(fit)}: decided by votes"
    return Result(
        value=p,
        lower=min(p, float(lower)),
        upper=max(p, float(upper)),
        std_error=vote_error(kept),
        flips_to=flip_by_votes(votes.counts, predicted),
        forwards=1 + n,
        interval=Interval(IntervalKind.ANTITHETIC),
        note=note,
        votes=votes,
        fit=shape,
    )


def _why_rejected(fit: MarginFit) -> str:
    """Why a fit gives no value."""
    # Exactly 0 only for a margin without variance, which has no shape.
    if fit.skewness == fit.kurtosis == 0.0:
        return "the margin is the same in all copies"
    if fit.normal:
        return f"the fit of the margins, {fit.value:.3f}, is far off the votes"
    return f"margins are not normal (skewness {fit.skewness:.2f}, kurtosis {fit.kurtosis:.2f})"
