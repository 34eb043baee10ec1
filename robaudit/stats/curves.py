"""Error curves against attacks, noise and linear corruption, and the one number that sums each up: ASR, AMS, gamma at 50 %.

Errors are relative to the label, and those of all images: a misclassified image is an error at every strength. Images without a label
are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.documents import Document, json_number
from robaudit.errors import RunError
from robaudit.levels import GAUSSIAN, LevelChoice
from robaudit.names import ResultName
from robaudit.quantities import RADIUS
from robaudit.stats.bootstrap import Difference, Ends, difference, minus, percentiles
from robaudit.stats.frame import NO_CLASS, Columns, Results, common_names
from robaudit.stats.intervals import Bounds, Floats
from robaudit.text import Names

LINEAR = "linear"
"""The kind of noise that fades an image into grey noise; its level is 1 - gamma."""
CUTOFF = 0.03
"""How far below chance the accuracy may still be when a noise curve ends: at an error of (C - 1) / C less this."""
HALF = 0.5
HUMANS = 0.25
"""The gamma at which people name half of the images correctly (Jang et al. 2021)."""
_ROUNDING = 1e-9
_SUM = "sum"  # beside the points of a curve


Ints = NDArray[np.int64]


class CurveKind(StrEnum):
    """What is done to the images."""

    L2 = "l2"
    LINF = "linf"
    NOISE = "noise"
    LINEAR = "linear"


class Relation(StrEnum):
    """How the true number is related to the value."""

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
class Summary:
    """A curve in one number.

    Attributes:
        value: the number; None where it is not defined, ``why`` says the reason.
        relation: whether the true one is at least or at most this, because the curve ends too early.
        lower, upper: 95 % percentile bootstrap interval for the population, infinite where the end of the curve leaves it open; None
            where there is none.
    """

    value: float | None
    relation: Relation = Relation.IS
    lower: float | None = None
    upper: float | None = None
    why: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON values; an infinite end is null."""
        ends = {"lower": json_number(self.lower), "upper": json_number(self.upper)}
        return {"value": self.value, "relation": self.relation.value or "=", **ends, "undefined": self.why}


@dataclass(frozen=True, slots=True)
class Curve:
    """Errors by strength.

    Attributes:
        kind: what is done to the images.
        source: the result behind it, such as ``radius_pgd:norm=l2``.
        places: radius, sigma or gamma (points,); the first is that of the clean images.
        errors: share of the images (of their noisy copies) that are classified wrongly (points,).
        lower, upper: 95 % bootstrap interval of each error by itself (points,); the error itself where there is a single image.
        summary: in one number.
        images: with a label.
        unlabelled: images left out.
        draws: noisy copies of each image; 0 for attacks.
        used: how many points the summary is made of: noise curves end by a rule.
    """

    kind: CurveKind
    source: str
    places: Floats
    errors: Floats
    lower: Floats
    upper: Floats
    summary: Summary
    images: int
    unlabelled: int
    draws: int = 0
    used: int = 0

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        points = zip(self.places.tolist(), self.errors.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        return {
            "source": self.source,
            "images": self.images,
            "unlabelled": self.unlabelled,
            "draws": self.draws or None,
            "summary": {"name": NAMES[self.kind], **self.summary.document()},
            "points_used": self.used,
            "points": [dict(zip(("at", "error", "lower", "upper"), point, strict=True)) for point in points],
        }


@dataclass(frozen=True, slots=True)
class Curves(Document):
    """The curves of a run, in the order of :class:`CurveKind`.

    Attributes:
        name: of the model, for people.
        path: of the run.
        curves: at least one.
    """

    name: str
    path: str
    curves: Mapping[CurveKind, Curve]

    def document(self, names: Names | None = None) -> dict[str, Any]:
        """As JSON values."""
        return {"path": self.path, "curves": {kind.value: curve.document() for kind, curve in self.curves.items()}}


# --- summaries


def asr(errors: Floats | Sequence[float], step: float) -> float:
    """Average successful radius, of the images that an attack changed: sum_j (j + 1/2) D (A_{j+1} - A_j).

    Args:
        errors: A_0 (clean), A_1, ... at the radii 0, D, 2D, ...
        step: D.

    Source: Smoothed robustness analysis, section 3.4.
    """
    found = np.asarray(errors, dtype=np.float64)
    return float(_half_steps(found, step))


def ends_at(errors: Floats, classes: int) -> Ints:
    """The first point after the clean one with an error of at least (C - 1) / C - .03; -1 where there is none.

    Args:
        errors: e_0 (clean), e_1, ... (..., points).
        classes: C.

    Source: as for :func:`ams`; the paper prints the rule with the sign reversed.
    """
    there = errors[..., 1:] >= (classes - 1) / classes - CUTOFF - _ROUNDING
    found: Ints = np.where(there.any(-1), there.argmax(-1) + 1, -1) if there.shape[-1] else np.full(errors.shape[:-1], -1)
    return found


def ams(errors: Floats | Sequence[float], step: float) -> float:
    """Average misclassification standard deviation: the same sum over normalised errors.

    With a_j = (e_j - e_0) / (max e - e_0), e'_j = e_j / ((1 - a_j) + a_j e_j): the clean error stays, the largest becomes 1. If the curve
    ends early, before its largest error, every e'_j is too large, and the sum at most what the whole curve gives.

    Args:
        errors: e_0 (clean), e_1, ... at the standard deviations 0, D, 2D, ..., up to the point where the curve ends.
        step: D.

    Returns:
        At least 0, which the sum falls short of where a curve ends with fewer errors than it began with; 0 where all clean images are
        misclassified; NaN where no noise adds errors.

    Source: Smoothed robustness analysis, section 3.4.
    """
    found = np.asarray(errors, dtype=np.float64)
    return float(_ams(found, np.asarray(len(found) - 1), step))


def _ams(errors: Floats, last: Ints, step: float) -> Floats:
    """:func:`ams` of many curves (..., points), each up to its point ``last`` (...)."""
    points = np.arange(errors.shape[-1])
    inside = points <= last[..., None]
    first = errors[..., :1]
    rise = np.where(inside, errors, -np.inf).max(-1, keepdims=True) - first
    with np.errstate(divide="ignore", invalid="ignore"):
        a = (errors - first) / rise
        normal = errors / ((1 - a) + a * errors)
    normal = np.where(inside, normal, np.take_along_axis(normal, last[..., None], -1))
    flat = rise[..., 0] <= 0
    found: Floats = np.where(flat, np.where(first[..., 0] >= 1, 0.0, np.nan), np.maximum(_half_steps(normal, step), 0.0))
    return found


def _half_steps(errors: Floats, step: float) -> Floats:
    found: Floats = (np.diff(errors) * (np.arange(errors.shape[-1] - 1) + 0.5)).sum(-1) * step
    return found


def gamma_at_half(gammas: Floats, accuracy: Floats) -> Floats:
    """Where the accuracy first falls below one half, by linear interpolation.

    Args:
        gammas: descending from 1 (points,).
        accuracy: at each of them (..., points).

    Returns:
        (...); infinite where it is below one half at the first point, minus infinity where it never is.
    """
    below = accuracy < HALF
    at = np.where(below.any(-1), below.argmax(-1), -1)
    after = np.maximum(at, 1)[..., None]
    high, low = (np.take_along_axis(accuracy, place, -1)[..., 0] for place in (after - 1, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (high - HALF) / (high - low)
    before, behind = gammas[after[..., 0] - 1], gammas[after[..., 0]]
    found: Floats = np.where(at > 0, before + share * (behind - before), np.where(at == 0, np.inf, -np.inf))
    return found


# --- reading


def curves_of(
    run: Results,
    name: str | None = None,
    only: Collection[CurveKind] = tuple(CurveKind),
    *,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
) -> Curves:
    """The curves that a run has rows for.

    Attacks: radii on a grid (`radius_pgd`), the first result of each norm. Noise and linear corruption: the first result with votes under
    the first noise of its kind; the levels of Gaussian noise must be D, 2D, ...

    Args:
        run: a finished run.
        name: of its model; None: the run's.
        only: these curves.
        estimators, levels: only these results.

    Raises:
        RunError: it has no labels, or nothing that a curve is made of.
    """
    there = _sources(run, estimators, levels)
    found = {kind: _curve(kind, there[kind])[0] for kind in there if kind in only}
    if not found:
        if there:
            asked = " or ".join(kind.value for kind in CurveKind if kind in only)
            raise RunError(str(run.path), f"has no curve {asked}", f"it has {', '.join(there)}")
        remedy = "audit with radius_pgd, or with mc under gaussian noise at sigma D, 2D, ...: configs/curves.yaml has all curves"
        raise RunError(str(run.path), "has nothing that curves are made of", remedy)
    return Curves(name or str(run.info["name"]), str(run.path), found)


def curve_changes(
    base: Results, new: Results, *, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> dict[CurveKind, Difference]:
    """The differences of the summaries of two runs, new - base, on the labelled images that both have, with intervals and p-values
    (:func:`robaudit.stats.bootstrap.differences`); of the curves that both have and whose summaries are defined.

    Raises:
        RunError: as :func:`curves_of`.
    """
    before, now = (_sources(run, estimators, levels) for run in (base, new))
    found = {}
    for kind in before:
        if kind not in now:
            continue
        names = common_names([one.take(one.judged) for one in (*before[kind], *now[kind])])
        if not names:
            continue
        sides = [_curve(kind, [one.of_images(names) for one in side[kind]]) for side in (before, now)]
        (first, first_sum), (second, second_sum) = sides
        if first.summary.value is None or second.summary.value is None:
            continue
        value = second.summary.value - first.summary.value
        found[kind] = difference(len(names), partial(_change, first_sum, second_sum), value)
    return found


def _sources(run: Results, estimators: Sequence[str], levels: LevelChoice | Sequence[float]) -> dict[CurveKind, list[Columns]]:
    """What each curve of a run is made of: the results of an attack, or the votes by level, from weak to strong.

    Raises:
        RunError: it has no labels.
    """
    kinds = {entry["name"]: entry["kind"] for entry in run.info["spec"].get("noise", ())}
    found: dict[CurveKind, list[Columns]] = {}
    for columns in run.groups(estimators, levels).values():
        key = columns.key
        if (kind := _attacked(columns)) is not None:
            found.setdefault(kind, [columns])
        elif (what := _NOISY.get(kinds.get(key.noise, ""))) is not None and columns.draws.any():
            some = found.setdefault(what, [])
            if not some or (some[0].key.estimator, some[0].key.noise) == (key.estimator, key.noise):
                some.append(columns)
    if not any((one.label != NO_CLASS).any() for one in run.frame.values()):
        raise RunError(str(run.path), "has no labels, and the errors of curves are relative to them", "audit labelled images")
    ordered = {kind: sorted(found[kind], key=lambda one: one.key.at.level) for kind in CurveKind if kind in found}
    return {kind: some for kind, some in ordered.items() if kind is not CurveKind.NOISE or _even([one.key.at.level for one in some])}


Sum = Callable[[Floats], Ends]
"""The summary of a curve, from below and from above, from the weights of the images."""


def _change(base: Sum, new: Sum, drawn: Floats) -> Ends:
    return minus(new(drawn), base(drawn))


def _curve(kind: CurveKind, columns: Sequence[Columns]) -> tuple[Curve, Sum]:
    return _attack_curve(kind, columns[0]) if kind in (CurveKind.L2, CurveKind.LINF) else _noisy_curve(kind, columns)


_NOISY = {GAUSSIAN: CurveKind.NOISE, LINEAR: CurveKind.LINEAR}


def _attacked(columns: Columns) -> CurveKind | None:
    """The curve that the results of an attack belong to."""
    if columns.key.quantity != RADIUS.name or np.isnan(columns.step).all():
        return None
    norm = ResultName.parse(columns.key.estimator).norm
    return next((kind for kind in (CurveKind.L2, CurveKind.LINF) if norm is not None and kind.value == norm.value), None)


def _even(levels: Sequence[float]) -> bool:
    """Whether the levels are D, 2D, ..."""
    return bool(np.allclose(levels, levels[0] * np.arange(1, len(levels) + 1), rtol=1e-6, atol=0.0))


def _attack_curve(kind: CurveKind, columns: Columns) -> tuple[Curve, Sum]:
    """A_j: misclassified, or changed at a radius of at most j D."""
    source, kept = columns.key.estimator, columns.take(columns.judged)
    unlabelled, correct = len(columns) - len(kept), kept.correct
    step = float(np.nanmax(columns.step))
    ball = np.where(correct, np.rint(kept.values / step), 0).astype(np.int64)
    open_ = correct & kept.is_censored
    last = int(ball.max(initial=0))
    places = np.round(step * np.arange(last + 1), 12)
    wrong = (ball[:, None] <= np.arange(last + 1)) & ~open_[:, None]  # (images, points)
    radius = np.where(open_, ball * step, np.maximum(ball - 0.5, 0.0) * step)
    bands = _Bands(wrong.astype(np.float64))
    beyond = np.where(open_, np.inf, radius)

    def total(drawn: Floats) -> Ends:
        return _mean(drawn, radius), _mean(drawn, beyond)

    ends = percentiles(len(kept), lambda drawn: {**bands.replicates(drawn), _SUM: total(drawn)})
    errors = bands.errors
    value = asr(errors, step) + (1.0 - float(errors[-1])) * last * step
    relation = Relation.AT_LEAST if open_.any() else Relation.IS
    summary = Summary(value, relation, *(ends[_SUM] or (None, None)))
    return Curve(kind, source, places, errors, *bands.ends(ends), summary, len(kept), unlabelled, used=last + 1), total


def _mean(drawn: Floats, values: Floats) -> Floats:
    """Weighted means (replicates,); infinite where an infinite value has weight."""
    finite = np.where(np.isinf(values), 0.0, values)
    open_ = drawn @ np.isinf(values).astype(np.float64) > 0
    found: Floats = np.where(open_, np.inf, drawn @ finite / drawn.sum(1))
    return found


def _noisy_curve(kind: CurveKind, by_level: Sequence[Columns]) -> tuple[Curve, Sum]:
    """The errors of the noisy copies, and behind the clean ones."""
    source, levels = by_level[0].key.estimator, [one.key.at.level for one in by_level]
    per_level = [one.take(one.judged) for one in by_level]
    kept = per_level[0]
    unlabelled, draws = len(by_level[0]) - len(kept), int(kept.draws.max())
    wrong = np.stack([~kept.correct, *(one.label_errors for one in per_level)]).astype(np.float64).T
    bands = _Bands(wrong)
    if kind is CurveKind.LINEAR:
        gammas = np.round(1.0 - np.array([0.0, *levels]), 12)

        def half(drawn: Floats) -> Ends:
            found = np.minimum(gamma_at_half(gammas, 1.0 - bands.means(drawn)), 1.0)
            return np.where(np.isinf(found), 0.0, found), np.where(np.isinf(found), gammas[-1], found)

        ends = percentiles(len(kept), lambda drawn: {**bands.replicates(drawn), _SUM: half(drawn)})
        summary = _half_summary(float(gamma_at_half(gammas, 1.0 - bands.errors)), ends[_SUM], float(gammas[-1]))
        return Curve(kind, source, gammas, bands.errors, *bands.ends(ends), summary, len(kept), unlabelled, draws, len(gammas)), half
    step, classes = levels[0], kept.classes
    places = np.array([0.0, *levels])

    def total(drawn: Floats) -> Ends:
        curves = bands.means(drawn)
        last = ends_at(curves, classes)
        low = _ams(curves, np.where(last < 0, len(levels), last), step)
        return low, np.where((last < 0) & ~np.isnan(low), np.inf, low)

    ends = percentiles(len(kept), lambda drawn: {**bands.replicates(drawn), _SUM: total(drawn)})
    last = int(ends_at(bands.errors, classes))
    stop = len(levels) if last < 0 else last
    value = float(_ams(bands.errors, np.asarray(stop), step))
    if math.isnan(value):
        summary = Summary(None, why=f"noise up to sigma {levels[-1]:g} adds no errors")
    else:
        relation = Relation.AT_LEAST if last < 0 and bands.errors[0] < 1 else Relation.IS
        summary = Summary(value, relation, *(ends[_SUM] or (None, None)))
    return Curve(kind, source, places, bands.errors, *bands.ends(ends), summary, len(kept), unlabelled, draws, stop + 1), total


def _half_summary(value: float, ends: Bounds | None, least: float) -> Summary:
    """Gamma at 50 %; from the least gamma measured to 1."""
    lower, upper = ends or (None, None)
    if not math.isinf(value):
        return Summary(value, Relation.IS, lower, upper)
    return Summary(1.0, Relation.AT_LEAST, lower, upper) if value > 0 else Summary(least, Relation.AT_MOST, lower, upper)


class _Bands:
    """The mean error at each point, and its bootstrap replicates.

    Args:
        wrong: share of errors (images, points).
    """

    def __init__(self, wrong: Floats) -> None:
        self._wrong = wrong
        self.errors: Floats = wrong.mean(0)

    def means(self, drawn: Floats) -> Floats:
        """(replicates, points)."""
        found: Floats = drawn @ self._wrong / drawn.sum(1, keepdims=True)
        return found

    def replicates(self, drawn: Floats) -> dict[Any, Floats]:
        """By point."""
        return dict(enumerate(self.means(drawn).T))

    def ends(self, found: Mapping[Any, Bounds | None]) -> tuple[Floats, Floats]:
        """Lower and upper ends at each point; the error itself where there are none."""
        bounds = [found[i] or (float(error), float(error)) for i, error in enumerate(self.errors)]
        lower, upper = zip(*bounds, strict=True)
        return np.array(lower), np.array(upper)
