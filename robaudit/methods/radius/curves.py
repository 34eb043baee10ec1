"""Error curves against attacks, noise and linear corruption, each with its summary in one number:
ASR, AMS, gamma at 50 %.

Errors are relative to the label, over all images: a misclassified image is an error at every
strength. Images without a label are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer

from robaudit.errors import RunError
from robaudit.estimates import Bounds, Estimate
from robaudit.levels import GAUSSIAN, LevelChoice
from robaudit.numerics.image_intervals import Floats
from robaudit.quantities import RADIUS
from robaudit.records import Inline, Record, published
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.runs.table import NO_CLASS, Columns, common_names
from robaudit.stats.bootstrap import (
    BOOTSTRAP,
    Ends,
    PairedDifference,
    differences,
    minus,
    percentiles,
)

LINEAR = "linear"
"""The kind of noise that fades an image into grey noise; its level is 1 - gamma."""
CUTOFF = 0.03
"""A noise curve ends at an error of (C - 1) / C less this, with an accuracy slightly above chance,
which noise only approaches."""
HALF = 0.5
"""The accuracy at which gamma is read off."""
HUMANS = 0.25
"""The gamma at which people name half of the images correctly (Jang et al. 2021)."""
_ROUNDING = 1e-9  # an error that equals this limit in exact numbers reaches it
_DIGITS = 12  # 3 * 0.05 is 0.15000000000000002 in binary; at 12 digits it is 0.15
_SUM = "sum"  # the key of the summary, beside the indices of the points


Ints = NDArray[np.int64]


class CurveKind(StrEnum):
    """The perturbation of the images."""

    L2 = "l2"
    LINF = "linf"
    NOISE = "noise"
    LINEAR = "linear"


class ValueRelation(StrEnum):
    """How the true number compares with the value."""

    IS = ""
    AT_LEAST = ">="
    AT_MOST = "<="


NAMES: Mapping[CurveKind, str] = {
    CurveKind.L2: "ASR l2",
    CurveKind.LINF: "ASR linf",
    CurveKind.NOISE: "AMS",
    CurveKind.LINEAR: "gamma at 50 %",
}
"""The names of the summaries."""
HIGHER_IS_BETTER = (CurveKind.L2, CurveKind.LINF, CurveKind.NOISE)


@dataclass(frozen=True, slots=True)
class CurveSummary(Record):
    """A curve in one number.

    Attributes:
        name: of the number.
        estimate: the number with its 95 % percentile bootstrap interval for the population. An end
            is infinite where the end of the curve leaves it open. None where the number is not
            defined.
        relation: whether the true number is at least or at most the value, because the curve ends
            too early.
        why: the reason why it is not defined.
    """

    name: str = field(default="", kw_only=True)
    estimate: Annotated[Estimate | None, Inline("value")]
    relation: Annotated[
        ValueRelation, PlainSerializer(lambda relation: relation.value or "=", return_type=str)
    ] = ValueRelation.IS
    why: Annotated[str, Field(serialization_alias="undefined")] = ""

    @property
    def value(self) -> float | None:
        """The number; None where it is not defined."""
        return None if self.estimate is None else self.estimate.value

    @property
    @published(after="relation")
    def ends(self) -> Annotated[Estimate | None, Inline("lower", "upper")]:
        """The interval."""
        return self.estimate


@dataclass(frozen=True, slots=True)
class CurvePoint(Record):
    """An error and its place on a curve."""

    at: float
    error: Annotated[Estimate, Inline(error="value", lower="lower", upper="upper")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCurve(Record):
    """Errors by strength.

    Attributes:
        kind: the perturbation of the images.
        source: the name of the result behind it, such as ``radius_pgd:norm=l2``.
        images: number of images with a label.
        unlabelled: number of images left out.
        draws: number of noisy copies of each image; 0 for attacks.
        summary: the curve in one number.
        used: number of points behind the summary: noise curves end by a rule.
        places: radius, sigma or gamma (points,); the first belongs to the clean images.
        errors: share of the images (of their noisy copies) that are classified wrongly (points,).
        lower, upper: 95 % bootstrap interval of each error, pointwise (points,); the error itself
            for a single image.
    """

    kind: Annotated[CurveKind, Field(exclude=True)]
    source: str
    images: int
    unlabelled: int
    draws: Annotated[int, PlainSerializer(lambda draws: draws or None, return_type=int | None)] = 0
    summary: CurveSummary
    used: Annotated[int, Field(serialization_alias="points_used")] = 0
    places: Annotated[Floats, Field(exclude=True)]
    errors: Annotated[Floats, Field(exclude=True)]
    lower: Annotated[Floats, Field(exclude=True)]
    upper: Annotated[Floats, Field(exclude=True)]

    @property
    @published(after="points_used")
    def points(self) -> tuple[CurvePoint, ...]:
        """The points with their intervals."""
        columns = (self.places, self.errors, self.lower, self.upper)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(
            CurvePoint(at, Estimate.population(error, (lower, upper), BOOTSTRAP))
            for at, error, lower, upper in rows
        )


Curves = Mapping[CurveKind, ErrorCurve]
"""The curves of a run, at least one, in the order of the kinds."""


# --- summaries


def asr(errors: Floats | Sequence[float], step: float) -> Floats:
    """Average successful radius of an attack, sum_j (j + 1/2) D (A_{j+1} - A_j).

    It is the mean over all images of the middle between the last two radii. Images that are
    misclassified, or that the attack did not change, add 0.

    Args:
        errors: A_0 (clean), A_1, ... at the radii 0, D, 2D, ... (..., points).
        step: D.

    Source: Smoothed robustness analysis, section 3.4.
    """
    # Smoothed robustness analysis, section 3.4: sum_j (j + 1/2) D (A_{j+1} - A_j).
    rises = np.diff(np.asarray(errors, dtype=np.float64))
    middles = np.arange(rises.shape[-1]) + 0.5
    radius: Floats = (rises * middles).sum(-1) * step
    return radius


def ends_at(errors: Floats, classes: int) -> Ints:
    """The first point after the clean point with an error of at least (C - 1) / C - .03; -1 if
    there is none.

    Args:
        errors: e_0 (clean), e_1, ... (..., points).
        classes: C.

    Source: as for :func:`ams`; the paper prints the rule with the sign reversed.
    """
    # At chance the error is (C - 1) / C.
    reached = errors[..., 1:] >= (classes - 1) / classes - CUTOFF - _ROUNDING
    if not reached.shape[-1]:
        return np.full(errors.shape[:-1], -1)
    first: Ints = np.where(reached.any(-1), reached.argmax(-1) + 1, -1)
    return first


def ams(errors: Floats, last: Ints | int, step: float) -> Floats:
    """Average misclassification standard deviation: the sum of :func:`asr` over normalised errors.

    With a_j = (e_j - e_0) / (max e - e_0), e'_j = e_j / ((1 - a_j) + a_j e_j): the clean error
    stays, the largest becomes 1. If the curve ends early, before its largest error, every e'_j is
    too large, and the sum is at most the sum of the whole curve.

    Args:
        errors: e_0 (clean), e_1, ... at the standard deviations 0, D, 2D, ... (..., points).
        last: the point where each curve ends (...).
        step: D.

    Returns:
        (...), at least 0: the sum is negative where a curve ends with fewer errors than it began
        with; 0 where all clean images are misclassified; NaN where no noise adds errors.

    Source: Smoothed robustness analysis, section 3.4.
    """
    end = np.asarray(last)[..., None]
    inside = np.arange(errors.shape[-1]) <= end
    first = errors[..., :1]
    largest = np.where(inside, errors, -np.inf).max(-1, keepdims=True)
    rise = largest - first
    # Smoothed robustness analysis, section 3.4: a_j, then e'_j.
    with np.errstate(divide="ignore", invalid="ignore"):
        a = (errors - first) / rise
        normal = errors / ((1 - a) + a * errors)
    # Points after the end of a curve repeat its last error, and so add nothing to the sum.
    normal = np.where(inside, normal, np.take_along_axis(normal, end, -1))
    flat = rise[..., 0] <= 0
    without_rise = np.where(first[..., 0] >= 1, 0.0, np.nan)
    result: Floats = np.where(flat, without_rise, np.maximum(asr(normal, step), 0.0))
    return result


def gamma_at_half(gammas: Floats, accuracy: Floats) -> Floats:
    """The gamma at which the accuracy first falls below one half, by linear interpolation.

    Args:
        gammas: descending from 1 (points,).
        accuracy: at each of them (..., points).

    Returns:
        (...); infinite where it is below one half at the first point, minus infinity where it is
        nowhere below.
    """
    below = accuracy < HALF
    at = np.where(below.any(-1), below.argmax(-1), -1)
    # The two points around the crossing; any two where there is none.
    after = np.maximum(at, 1)[..., None]
    high = np.take_along_axis(accuracy, after - 1, -1)[..., 0]
    low = np.take_along_axis(accuracy, after, -1)[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (high - HALF) / (high - low)
    before = gammas[after[..., 0] - 1]
    behind = gammas[after[..., 0]]
    without_crossing = np.where(at == 0, np.inf, -np.inf)
    gamma: Floats = np.where(at > 0, before + share * (behind - before), without_crossing)
    return gamma


# --- reading


def curves_of(
    run: Run, *, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> Curves:
    """The curves of a run.

    Attacks: radii on a grid (`radius_pgd`), the first result of each norm. Noise and linear
    corruption: the first result with votes under the first noise of its kind; the levels of
    Gaussian noise must be D, 2D, ...

    Args:
        run: a finished run.
        estimators, levels: only these results.

    Raises:
        RunError: it has no labels, or no results for a curve.
    """
    sources = _sources(run, estimators, levels)
    curves = {kind: _curve(kind, columns)[0] for kind, columns in sources.items()}
    if not curves:
        remedy = (
            "audit with radius_pgd, or with mc under gaussian noise at sigma D, 2D, ...: "
            "configs/curves.yaml has all curves"
        )
        raise RunError(str(run.path), "has no results for curves", remedy)
    return curves


def curve_changes(
    base: Run,
    new: Run,
    *,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
) -> dict[CurveKind, PairedDifference]:
    """The differences of the summaries of two runs, new - base, by kind of curve.

    They are on the labelled images that both runs have, with intervals and p-values
    (:func:`robaudit.stats.bootstrap.differences`), for the curves that both have with defined
    summaries.

    Raises:
        RunError: as :func:`curves_of`.
    """
    base_sources = _sources(base, estimators, levels)
    new_sources = _sources(new, estimators, levels)
    changes: dict[CurveKind, PairedDifference] = {}
    for kind, base_columns in base_sources.items():
        if kind not in new_sources:
            continue
        new_columns = new_sources[kind]
        judged = [columns.take(columns.judged) for columns in (*base_columns, *new_columns)]
        names = common_names(judged)
        if not names:
            continue
        first, first_sum = _curve(kind, [columns.of_images(names) for columns in base_columns])
        second, second_sum = _curve(kind, [columns.of_images(names) for columns in new_columns])
        if first.summary.value is not None and second.summary.value is not None:
            value = second.summary.value - first.summary.value
            change = partial(_change, kind, first_sum, second_sum)
            changes |= differences(len(names), change, {kind: value})
    return changes


def _sources(
    run: Run, estimators: Sequence[str], levels: LevelChoice | Sequence[float]
) -> dict[CurveKind, list[Columns]]:
    """The results behind each curve of a run: one of an attack, or votes by level from weak to
    strong.

    Raises:
        RunError: it has no labels.
    """
    kinds = {entry["name"]: entry["kind"] for entry in run.info.spec.get("noise", ())}
    sources: dict[CurveKind, list[Columns]] = {}
    for columns in run.groups(estimators, levels).values():
        key = columns.key
        attacked = _attacked(columns)
        if attacked is not None:
            sources.setdefault(attacked, [columns])
            continue
        noisy = _NOISY.get(kinds.get(key.noise, ""))
        if noisy is None or not columns.draws.any():
            continue
        results = sources.setdefault(noisy, [])
        # A curve has one estimator and one noise: those of its first result.
        if not results or _same_curve(results[0].key, key):
            results.append(columns)
    labelled = [(columns.label != NO_CLASS).any() for columns in run.table.values()]
    if not any(labelled):
        raise RunError(
            str(run.path),
            "has no labels, and the errors of curves are relative to them",
            "audit labelled images",
        )
    ordered = {}
    for kind in CurveKind:
        if kind not in sources:
            continue
        results = sorted(sources[kind], key=lambda columns: columns.key.at.number)
        # AMS is a sum over equal steps.
        if kind is not CurveKind.NOISE or _even([columns.key.at.number for columns in results]):
            ordered[kind] = results
    return ordered


def _same_curve(first: GroupKey, key: GroupKey) -> bool:
    """Whether two results under noise have the same estimator and noise."""
    return (first.estimator, first.noise) == (key.estimator, key.noise)


Sum = Callable[[Floats], Ends]
"""A function from the weights of the images to the lower and upper end of a curve's summary."""


def _change(kind: CurveKind, base: Sum, new: Sum, drawn: Floats) -> dict[CurveKind, Ends]:
    """The ends of the difference of two summaries in each replicate."""
    return {kind: minus(new(drawn), base(drawn))}


_NOISY = {GAUSSIAN: CurveKind.NOISE, LINEAR: CurveKind.LINEAR}


def _attacked(columns: Columns) -> CurveKind | None:
    """The kind of curve for the results of an attack; None for other results."""
    if columns.key.quantity != RADIUS.name or np.isnan(columns.step).all():
        return None
    for kind in (CurveKind.L2, CurveKind.LINF):
        if kind.value == columns.key.norm:
            return kind
    return None


def _even(levels: Sequence[float]) -> bool:
    """Whether the levels are D, 2D, ..."""
    multiples = levels[0] * np.arange(1, len(levels) + 1)
    return bool(np.allclose(levels, multiples, rtol=1e-6, atol=0.0))


def _curve(kind: CurveKind, columns: Sequence[Columns]) -> tuple[ErrorCurve, Sum]:
    """A curve, and its summary as a function of the weights of the images."""
    labelled = [result.take(result.judged) for result in columns]
    make = {CurveKind.NOISE: _noise, CurveKind.LINEAR: _linear}.get(kind, _attack)
    places, wrong, total, summed = make(labelled)

    def statistics(drawn: Floats) -> dict[int | str, Floats | Ends]:
        points: dict[int | str, Floats | Ends] = dict(enumerate(_errors(wrong, drawn).T))
        points[_SUM] = total(drawn)
        return points

    ends = percentiles(len(wrong), statistics)
    errors: Floats = wrong.mean(0)
    # A single image has no bootstrap interval.
    bounds = [ends[i] or (float(error), float(error)) for i, error in enumerate(errors)]
    lower, upper = zip(*bounds, strict=True)
    summary, used = summed(errors, ends[_SUM])
    return ErrorCurve(
        kind=kind,
        source=columns[0].key.estimator,
        places=places,
        errors=errors,
        lower=np.array(lower),
        upper=np.array(upper),
        summary=replace(summary, name=NAMES[kind]),
        images=len(wrong),
        unlabelled=len(columns[0]) - len(wrong),
        draws=0 if make is _attack else int(labelled[0].draws.max()),
        used=used,
    ), total


Summed = Callable[[Floats, Bounds | None], tuple[CurveSummary, int]]
"""A function from a curve's errors and the ends of its interval to its summary and the number of
points behind it."""
_Parts = tuple[Floats, Floats, Sum, Summed]
"""The places of a curve's points (points,), the share of errors of each image (images, points), and
the two functions of its summary."""


def _summary(
    value: float, bounds: Bounds | None, relation: ValueRelation = ValueRelation.IS
) -> CurveSummary:
    """A summary that is defined."""
    return CurveSummary(Estimate.population(value, bounds, BOOTSTRAP), relation)


def _errors(wrong: Floats, drawn: Floats) -> Floats:
    """The mean error at each point (replicates, points) of weighted images.

    Args:
        wrong: the share of errors (images, points).
        drawn: the weights (replicates, images).
    """
    errors: Floats = drawn @ wrong / drawn.sum(1, keepdims=True)
    return errors


def _attack(columns: Sequence[Columns]) -> _Parts:
    """The parts of a curve against an attack, whose radii are on the grid D, 2D, ...

    A_j is the share of images that are misclassified, or changed at a radius of at most j D.
    """
    (labelled,) = columns
    correct = labelled.correct
    step = float(np.nanmax(labelled.step))
    # The number of the ball in which the class changed; 0 for a misclassified image.
    number = np.rint(labelled.values / step)
    ball = np.where(correct, number, 0).astype(np.int64)
    open_ = correct & labelled.is_censored
    points = np.arange(int(ball.max(initial=0)) + 1)
    wrong = (ball[:, None] <= points) & ~open_[:, None]
    # ASR is the mean of these: the middle between two balls, and the cap of a surviving image.
    radius = np.where(open_, ball * step, np.maximum(ball - 0.5, 0.0) * step)

    def total(drawn: Floats) -> Ends:
        mean = drawn @ radius / drawn.sum(1)
        survived = drawn @ open_.astype(np.float64) > 0
        return mean, np.where(survived, np.inf, mean)

    def summed(errors: Floats, ends: Bounds | None) -> tuple[CurveSummary, int]:
        # Images that survive all balls count as the cap.
        surviving = (1.0 - float(errors[-1])) * float(points[-1]) * step
        value = float(asr(errors, step)) + surviving
        relation = ValueRelation.AT_LEAST if open_.any() else ValueRelation.IS
        return _summary(value, ends, relation), len(points)

    return np.round(step * points, _DIGITS), wrong.astype(np.float64), total, summed


def _wrong(columns: Sequence[Columns]) -> Floats:
    """The errors of the clean images, then of the noisy copies by level (images, points)."""
    noisy = [result.label_errors for result in columns]
    points = np.stack([~columns[0].correct, *noisy])
    return points.astype(np.float64).T


def _noise(columns: Sequence[Columns]) -> _Parts:
    """The parts of a curve against Gaussian noise at sigma D, 2D, ..."""
    levels = [result.key.at.number for result in columns]
    classes = columns[0].classes
    wrong = _wrong(columns)
    step = levels[0]
    most = len(levels)

    def total(drawn: Floats) -> Ends:
        curves = _errors(wrong, drawn)
        last = ends_at(curves, classes)
        low = ams(curves, np.where(last < 0, most, last), step)
        # A replicate that the rule does not end is only known to have at least this sum.
        open_ = (last < 0) & ~np.isnan(low)
        return low, np.where(open_, np.inf, low)

    def summed(errors: Floats, ends: Bounds | None) -> tuple[CurveSummary, int]:
        last = int(ends_at(errors, classes))
        stop = most if last < 0 else last
        value = float(ams(errors, stop, step))
        if math.isnan(value):
            why = f"noise up to sigma {levels[-1]:g} adds no errors"
            return CurveSummary(None, why=why), stop + 1
        # If all clean images are misclassified, the sum is 0 for any further level.
        open_ = last < 0 and errors[0] < 1
        relation = ValueRelation.AT_LEAST if open_ else ValueRelation.IS
        return _summary(value, ends, relation), stop + 1

    return np.array([0.0, *levels]), wrong, total, summed


def _linear(columns: Sequence[Columns]) -> _Parts:
    """The parts of a curve against linear corruption, whose level is 1 - gamma."""
    levels = np.array([0.0, *(result.key.at.number for result in columns)])
    gammas = np.round(1.0 - levels, _DIGITS)
    wrong = _wrong(columns)
    least = float(gammas[-1])

    def total(drawn: Floats) -> Ends:
        crossing = np.minimum(gamma_at_half(gammas, 1.0 - _errors(wrong, drawn)), 1.0)
        # Without a crossing it is below the smallest gamma, and at least 0.
        beyond = np.isinf(crossing)
        return np.where(beyond, 0.0, crossing), np.where(beyond, least, crossing)

    def summed(errors: Floats, ends: Bounds | None) -> tuple[CurveSummary, int]:
        value = float(gamma_at_half(gammas, 1.0 - errors))
        if not math.isinf(value):
            summary = _summary(value, ends)
        elif value > 0:
            summary = _summary(1.0, ends, ValueRelation.AT_LEAST)
        else:
            summary = _summary(least, ends, ValueRelation.AT_MOST)
        return summary, len(gammas)

    return gammas, wrong, total, summed
