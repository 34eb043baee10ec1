"""Scores of a set of radii: mean and worst case, relative to the difficulty of the images, and on
easy against hard images.

A misclassified image counts with radius 0, not with the radius of its row: rows are relative to the
class predicted on the clean image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from robaudit.errors import NothingLeftError, RunError
from robaudit.estimates import Bounds, Estimate
from robaudit.levels import LevelChoice
from robaudit.methods.radius.difficulties import Difficulties
from robaudit.numerics.image_intervals import (
    ROW_CONFIDENCE,
    Floats,
    MeasuredImages,
    opened,
    population_mean,
)
from robaudit.quantities import RADIUS, TOLERANCE, IntervalKind
from robaudit.records import Inline, Record, published
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run, measuring
from robaudit.runs.table import Columns, common_ids
from robaudit.stats.bootstrap import (
    BOOTSTRAP,
    Ends,
    PairedDifference,
    differences,
    minus,
    percentiles,
)


class Score(StrEnum):
    """A score of n radii r with difficulties g and margins m."""

    R_M = "r_m"
    R_W = "r_w"
    R_W_CORRECT = "r_w_correct"
    R_NU = "r_nu"
    MEDIAN_RATIO = "median_ratio"
    SLOPE = "slope"
    R_SQUARED = "r_squared"
    R_MARGIN = "r_margin"
    R_M_EASY = "r_m_easy"
    R_M_HARD = "r_m_hard"
    R_NU_EASY = "r_nu_easy"
    R_NU_HARD = "r_nu_hard"
    VARIATION_R_M = "relative_variation_r_m"
    VARIATION_R_NU = "relative_variation"
    EASY_LESS_HARD_R_M = "easy_less_hard_r_m"
    EASY_LESS_HARD_R_NU = "easy_less_hard"


RADII = (RADIUS.name, TOLERANCE.name)
"""The quantities that have scores."""
_LEAST = 1e-9
"""Differences of logits up to this are rounding: the image is on the boundary, and ratios leave it
out."""
_EXACT = (IntervalKind.EXACT, IntervalKind.UPPER_BOUND, IntervalKind.CENSORED)
Mask = NDArray[np.bool_]


MEANINGS: Mapping[Score, str] = {
    Score.R_M: "mean radius, 0 where misclassified",
    Score.R_W: "smallest radius, 0 where misclassified",
    Score.R_W_CORRECT: "smallest radius of a correct image",
    Score.R_NU: "mean of r/g, 0 where misclassified",
    Score.MEDIAN_RATIO: "median of r/g, correct images with g > 0",
    Score.SLOPE: "sum(r g)/sum(g^2), correct images with g > 0",
    Score.R_SQUARED: "of the line r = slope g",
    Score.R_MARGIN: "mean of r/margin, 0 where misclassified",
    Score.R_M_EASY: "r_m of the easier half",
    Score.R_M_HARD: "r_m of the harder half",
    Score.R_NU_EASY: "r_nu of the easier half",
    Score.R_NU_HARD: "r_nu of the harder half",
    Score.VARIATION_R_M: "|easy - hard|/(easy + hard) of r_m",
    Score.VARIATION_R_NU: "|easy - hard|/(easy + hard) of r_nu",
    Score.EASY_LESS_HARD_R_M: "easy - hard of r_m",
    Score.EASY_LESS_HARD_R_NU: "easy - hard of r_nu",
}
_SMALLEST = (Score.R_W, Score.R_W_CORRECT)
_VARIATIONS = {
    Score.VARIATION_R_M: (Score.R_M_EASY, Score.R_M_HARD),
    Score.VARIATION_R_NU: (Score.R_NU_EASY, Score.R_NU_HARD),
}
_LESS = {
    Score.EASY_LESS_HARD_R_M: (Score.R_M_EASY, Score.R_M_HARD),
    Score.EASY_LESS_HARD_R_NU: (Score.R_NU_EASY, Score.R_NU_HARD),
}
_OF_USABLE = (Score.MEDIAN_RATIO, Score.SLOPE, Score.R_SQUARED)
_OF_DIFFICULTY = frozenset(Score) - {Score.R_M, *_SMALLEST}


@dataclass(frozen=True, slots=True)
class Radii:
    """The radii of one result.

    Attributes:
        key: of the result.
        ids: of the images (n,).
        values, lowers, uppers: radii and their bounds (n,): upper bounds and exact radii count as
            they are, censored radii have no upper end.
        g: difficulties of the clean images (n,), NaN where unknown; ``margins``: z_y - max of the
            others.
        order: sort key of the images (n,), highest for the easiest.
        correct: whether the clean image is classified correctly (n,).
        unlabelled, not_finite: images left out.
        upper_bounds: whether some values come from a search: the true radius may be smaller.
        measured: whether some have an interval of their own, from draws.
    """

    key: Annotated[GroupKey, Inline()]
    ids: tuple[str, ...]
    values: Floats
    lowers: Floats
    uppers: Floats
    g: Floats
    margins: Floats
    order: Floats
    correct: Mask
    unlabelled: int = 0
    not_finite: int = 0
    upper_bounds: bool = False
    measured: bool = False

    @property
    def size(self) -> int:
        """Number of images."""
        return len(self.ids)

    @property
    def right(self) -> int:
        """Number of images that are classified correctly."""
        return int(self.correct.sum())

    @property
    def beyond(self) -> int:
        """Number of correct images whose radius is only known to be larger."""
        return int(self.censored.sum())

    @property
    def norm(self) -> str | None:
        """The norm of the radii, where they have one."""
        return self.key.norm or None

    @property
    def censored(self) -> Mask:
        """Whether the radius of a correct image is only known to be larger (n,)."""
        return self.correct & np.isinf(self.uppers)

    @property
    def cap(self) -> float:
        """The smallest lower bound of a censored image; infinite without any."""
        return float(self.lowers[self.censored].min(initial=math.inf))

    @property
    def usable(self) -> Mask:
        """Correct images with g > 0, beyond rounding (n,): those with a meaningful ratio r/g."""
        return self.correct & (self.g > _LEAST)

    @property
    def left_out(self) -> int:
        """Correct images with g <= 0, which the scores with r/g leave out."""
        return int((self.correct & (self.g <= _LEAST)).sum())

    @property
    def without_difficulty(self) -> int:
        """Images whose difficulty is not known; with any, the scores that need it are undefined."""
        return int(np.isnan(self.g).sum())

    def chosen(self, places: Sequence[int]) -> Radii:
        """A selection of the images."""
        at = np.asarray(places, dtype=np.int64)
        arrays = {
            name: getattr(self, name)[at]
            for name in ("values", "lowers", "uppers", "g", "margins", "order", "correct")
        }
        return replace(self, ids=tuple(self.ids[i] for i in places), **arrays)

    def of_images(self, ids: Sequence[str]) -> Radii:
        """These images, in this order."""
        places = {name: i for i, name in enumerate(self.ids)}
        return self.chosen([places[name] for name in ids])

    def only_correct(self) -> Radii:
        """The images that are classified correctly."""
        return self.chosen(np.flatnonzero(self.correct).tolist())


@dataclass(frozen=True, slots=True)
class ScoreValue(Record):
    """A score.

    Attributes:
        population: the score with its interval for the population (:func:`scores_of`), which
            contains the interval for these images; None where the score is not defined.
        measured: the score with its interval for these images: the value itself for uncensored
            radii, infinite above where a censored image contributes.
        why: the reason why it is not defined.
    """

    population: Annotated[Estimate | None, Inline("value", "lower", "upper")] = None
    measured: Annotated[Estimate | None, Inline(measured_lower="lower", measured_upper="upper")] = (
        None
    )
    why: Annotated[str, Field(serialization_alias="undefined")] = ""

    @property
    def value(self) -> float | None:
        """The number; None where it is not defined."""
        return None if self.population is None else self.population.value

    @property
    @published(after="measured_upper")
    def at_least(self) -> bool:
        """Whether the value is only a lower end."""
        return (
            self.measured is not None
            and self.measured.upper == math.inf
            and self.measured.lower != -math.inf
        )


@dataclass(frozen=True, slots=True)
class Scores(Record):
    """The scores of one result.

    Attributes:
        radii: what they are of.
        confidence: of the intervals.
        values: by score.
    """

    radii: Annotated[Radii, Inline(key="key", norm="norm")]
    confidence: float
    values: Annotated[Mapping[Score, ScoreValue], Field(serialization_alias="scores")]

    @property
    @published(after="confidence")
    def counts(
        self,
    ) -> Annotated[
        Radii,
        Inline(
            images="size",
            correct="right",
            censored="beyond",
            left_out="left_out",
            unlabelled="unlabelled",
            not_finite="not_finite",
            upper_bounds="upper_bounds",
        ),
    ]:
        """How many images are behind them."""
        return self.radii


# --- reading


def radii_of(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> list[Radii]:
    """The radii of each result that has some, in the run's order.

    The difficulty comes from the row, else from any other result of the image. Images are sorted by
    it: correct images by g of the label, misclassified images by the g of a result of `difficulty`
    with target: label, where the run has one, else last.

    Raises:
        RunError: the results named have no radii, or the run no labels.
        NothingLeftError: no labelled image has a finite radius.
    """
    lacking = (
        "has no radii to score",
        "add radius_attack, radius_exact or noise_tolerance to its estimators",
    )
    results = measuring(run, RADII, estimators, levels, called="radii", lacking=lacking)
    difficulties = Difficulties(run)
    return [_radii(columns, difficulties, str(run.path)) for columns in results]


def _radii(columns: Columns, difficulties: Difficulties, where: str) -> Radii:
    labelled = columns.take(columns.judged)
    if not len(labelled):
        raise RunError(
            where,
            "has no labels, and scores count misclassified images as 0",
            "audit labelled images",
        )
    rows = labelled.finite
    if not len(rows):
        raise NothingLeftError(
            where,
            f"{columns.key}: no labelled image has a finite value",
            "read the notes in samples.csv",
        )
    lowers, uppers = rows.ends
    of_search = rows.upper_bounds + rows.not_found > 0
    as_is = rows.of_kind(*_EXACT)
    plain = np.isnan(lowers) | as_is
    g, margins = difficulties.of_prediction(rows)
    return Radii(
        key=columns.key,
        ids=tuple(rows.names),
        values=rows.values,
        lowers=np.where(plain, rows.values, lowers),
        uppers=np.where(plain, np.where(rows.is_censored, np.inf, rows.values), uppers),
        g=g,
        margins=margins,
        order=difficulties.ease(rows),
        correct=rows.correct,
        unlabelled=len(columns) - len(labelled),
        not_finite=rows.not_finite,
        upper_bounds=of_search,
        measured=bool((~as_is).any()),
    )


# --- the scores


def scores_of(radii: Radii, confidence: float = ROW_CONFIDENCE) -> Scores:
    """All scores of one result.

    R_m = mean r, R_w = min r, R_nu = (1/|D|) sum r/g over the images D that are not correct with g
    <= 0, the median of r/g, the slope sum(r g)/sum(g^2) of the line through the origin with R^2 = 1
    - sum (r - slope g)^2 / sum (r - mean r)^2, R_margin = mean r/margin. The halves are of the
    images sorted by g; with an odd number the middle image is in neither.

    Intervals: R_m has the interval of a summary's mean; the others are percentiles of 2,000
    bootstrap replicates over images, the same for all results with the same number of images;
    censored radii count at their cap in lower ends, as infinite in upper ends. The interval of a
    relative variation is the interval of the signed variation, folded at 0. Smallest values have
    none, as no sample shows how small others are, nor do scores of a single image.

    Args:
        radii: at least one image.
        confidence: of the intervals.

    Source: Giraudon, Gripon, Loewe and Vermet, Towards an intrinsic definition of robustness for a
        classifier.
    """
    everyone = np.ones((1, len(radii.ids)))
    value = weighted(radii, everyone, radii.values, radii.values)
    bounds = weighted(radii, everyone, radii.lowers, radii.uppers)
    boot = percentiles(len(radii.ids), lambda drawn: _replicates(radii, drawn), confidence)
    boot[Score.R_M] = _mean_bounds(radii, confidence)
    scores = {}
    for score in Score:
        exact = float(value[score][0][0]) if score in value else math.nan
        why = _why(radii, score, exact)
        known = (math.nan, math.nan)
        if not why:
            numbers = (float(end[0]) for end in bounds[score])
            # both radii may be 0
            lower, upper = (
                0.0 if score in _VARIATIONS and math.isnan(end) else end for end in numbers
            )
            known = lower, upper
            why = (
                "undetermined: censored images in both halves"
                if known == (-math.inf, math.inf)
                else ""
            )
        scores[score] = (
            ScoreValue(why=why) if why else _value(radii, score, exact, known, boot.get(score))
        )
    return Scores(radii, confidence, scores)


def _value(
    radii: Radii, score: Score, exact: float, known: Bounds, ends: Bounds | None
) -> ScoreValue:
    """A score that is defined.

    Args:
        radii: the images.
        score: the score.
        exact: its value; a relative variation has its sign.
        known: its interval for these images.
        ends: the bootstrap interval; None where there is none.
    """
    if score is Score.R_SQUARED and radii.measured:  # the ends of the radii do not bound it
        return _score_value(exact, ends, None)
    if score in _VARIATIONS:
        exact = abs(exact)
        known = _folded_ends(known)
        ends = None if ends is None else _folded_ends(ends)
    if ends is None or score in _SMALLEST or _carriers(radii, score) < 2:
        return _score_value(exact, None, known)
    return _score_value(exact, (min(ends[0], known[0]), max(ends[1], known[1])), known)


def _score_value(value: float, population: Bounds | None, measured: Bounds | None) -> ScoreValue:
    return ScoreValue(
        Estimate.population(value, population, "over images"),
        Estimate.measured(value, measured, "ends of the radii"),
    )


def _carriers(radii: Radii, score: Score) -> int:
    """The number of images behind a score; the variation of a single image is unknown."""
    return int(radii.usable.sum()) if score in _OF_USABLE else len(radii.ids)


def _why(radii: Radii, score: Score, exact: float) -> str:
    """Why a score is not defined; empty where it is."""
    if not math.isnan(exact):
        open_ = score is Score.R_SQUARED and bool((radii.usable & radii.censored).any())
        return "undetermined: censored images" if open_ else ""
    if score in _OF_DIFFICULTY and radii.without_difficulty:
        return (
            f"the difficulty of {radii.without_difficulty} images is unknown: add difficulty "
            "to the estimators"
        )
    if not radii.correct.any():
        return "every image is misclassified"
    if score in _OF_USABLE and not radii.usable.any():
        return "no correct image has g > 0"
    return "its denominator is 0 for these images"


def _statistics(radii: Radii, drawn: Floats, r: Floats) -> dict[Score, Floats]:
    """The scores of weighted images, without the differences of the halves; NaN where undefined.

    Args:
        radii: the images (n,).
        drawn: their weights (replicates, n).
        r: their radii, possibly infinite.

    Returns:
        (replicates,) each.
    """
    total = drawn.sum(1)
    zero = np.zeros_like(r)
    correct = radii.correct
    usable = radii.usable
    counted = np.where(correct, r, 0.0)
    scores = {Score.R_M: _dot(drawn, counted) / total}
    if len(drawn) == 1:  # replicates do not tell how small others are
        present = (drawn > 0) & correct
        scores[Score.R_W] = np.where(drawn > 0, counted, np.inf).min(1)
        scores[Score.R_W_CORRECT] = np.where(
            present.any(1), np.where(present, r, np.inf).min(1), np.nan
        )
    if radii.without_difficulty:
        return scores
    ratio = np.divide(r, radii.g, out=zero.copy(), where=usable)
    in_ratio = (~correct | usable).astype(np.float64)
    rg = np.where(usable, r * np.where(usable, radii.g, 1.0), 0.0)
    gg = np.where(usable, radii.g**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores[Score.R_NU] = _dot(drawn, ratio) / (drawn @ in_ratio)
        scores[Score.SLOPE] = slope = _dot(drawn, rg) / (drawn @ gg)
        scores[Score.R_SQUARED] = _determination(drawn, r, usable, rg, slope)
        if not np.isnan(radii.margins).any():
            apart = correct & (radii.margins > _LEAST)
            per_margin = np.divide(r, radii.margins, out=zero.copy(), where=apart)
            scores[Score.R_MARGIN] = _dot(drawn, per_margin) / (
                drawn @ (~correct | apart).astype(np.float64)
            )
    scores[Score.MEDIAN_RATIO] = _median(drawn * usable, ratio)
    easiest = np.argsort(-radii.order, kind="stable")
    ordered = drawn[:, easiest]
    half = np.floor(total / 2)[:, None]
    before = ordered.cumsum(1) - ordered
    easy = np.clip(half - before, 0.0, ordered)
    hard = np.clip(before + ordered - (total[:, None] - half), 0.0, ordered)
    with np.errstate(divide="ignore", invalid="ignore"):
        for part, mean, aware in (
            (easy, Score.R_M_EASY, Score.R_NU_EASY),
            (hard, Score.R_M_HARD, Score.R_NU_HARD),
        ):
            scores[mean] = _dot(part, counted[easiest]) / half[:, 0]
            scores[aware] = _dot(part, ratio[easiest]) / (part @ in_ratio[easiest])
    return scores


def weighted(radii: Radii, drawn: Floats, lowers: Floats, uppers: Floats) -> dict[Score, Ends]:
    """The ends of the scores of weighted images, from the ends of their radii; relative variations
    are (easy - hard)/(easy + hard), with the sign that the score drops."""
    least = _statistics(radii, drawn, lowers)
    most = least if uppers is lowers else _statistics(radii, drawn, uppers)
    scores = {score: (values, most[score]) for score, values in least.items()}
    if Score.R_M_EASY in least:
        for score, (easy, hard) in _VARIATIONS.items():
            scores[score] = _shares(least[easy], most[hard]), _shares(most[easy], least[hard])
        for score, (easy, hard) in _LESS.items():
            scores[score] = minus((least[easy], most[easy]), (least[hard], most[hard]))
    return scores


def _replicates(radii: Radii, drawn: Floats) -> dict[Score, Ends]:
    """The ends of the scores of replicates, which differ where censored images contribute."""
    open_ = np.where(radii.censored, np.inf, radii.values) if radii.censored.any() else radii.values
    return weighted(radii, drawn, radii.values, open_)


def _shares(up: Floats, down: Floats) -> Floats:
    """(up - down)/(up + down), with its limit where either is infinite, 0 where both are; NaN where
    both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        finite = (up - down) / (up + down)
    return np.where(
        np.isinf(up) | np.isinf(down), np.isinf(up).astype(np.float64) - np.isinf(down), finite
    )


def _mean_bounds(radii: Radii, confidence: float) -> Bounds:
    """The interval of the mean radius for the population, as in a summary."""
    counted, lowers, uppers = (
        np.where(radii.correct, r, 0.0) for r in (radii.values, radii.lowers, radii.uppers)
    )
    images = MeasuredImages(
        counted, np.where(np.isinf(lowers), counted, lowers), uppers, 0.0, math.inf
    )
    return opened(images, population_mean(images, confidence, light_tails=True))


def _folded(low: Floats, high: Floats) -> Ends:
    """The ends of absolute values from the ends of the signed values."""
    least = np.minimum(np.abs(low), np.abs(high))
    most = np.maximum(np.abs(low), np.abs(high))
    return np.where((low <= 0) & (high >= 0), 0.0, least), most


def _folded_ends(ends: Bounds) -> Bounds:
    low, high = _folded(*(np.array(end) for end in ends))
    return float(low), float(high)


def _dot(drawn: Floats, values: Floats) -> Floats:
    """Weighted sums; infinite where an infinite value has a weight."""
    if np.isfinite(values).all():
        return drawn @ values
    finite = drawn @ np.where(np.isfinite(values), values, 0.0)
    return np.where((drawn[:, np.isinf(values)] > 0).any(1), np.inf, finite)


def _determination(drawn: Floats, r: Floats, usable: Mask, rg: Floats, slope: Floats) -> Floats:
    """1 - sum (r - slope g)^2 / sum (r - mean r)^2 of the usable images."""
    if not np.isfinite(r[usable]).all():
        return np.zeros(len(drawn))
    radii = np.where(usable, r, 0.0)
    count = drawn @ usable.astype(np.float64)
    # so that little is lost to rounding
    centre = float(radii[usable].mean()) if usable.any() else 0.0
    away = np.where(usable, r - centre, 0.0)
    squares = drawn @ away**2 - (drawn @ away) ** 2 / count
    total = drawn @ radii**2
    rest = np.maximum(total - slope * (drawn @ rg), 0.0)
    return np.where(
        squares > 1e-12 * total, 1.0 - rest / np.where(squares > 0, squares, 1.0), np.nan
    )


def _median(drawn: Floats, values: Floats) -> Floats:
    """Weighted medians, the mean of the two middle values where their number is even; NaN without
    weights."""
    at = np.argsort(values, kind="stable")
    reached = drawn[:, at].cumsum(1)
    half = reached[:, -1:] / 2
    low = values[at][(reached >= half).argmax(1)]
    high = values[at][(reached > half).argmax(1)]
    middle = np.where(low == high, low, (low + high) / 2)
    return np.where(reached[:, -1] > 0, middle, np.nan)


# --- two runs


def score_changes(base: Radii, new: Radii) -> dict[Score, PairedDifference]:
    """The differences of the scores of a result of two runs, new - base, on the images that both
    have, where both are defined.

    Replicates draw the same images for both. An end is infinite on the side where a censored image
    leaves it open; where both are, there is no p-value.
    """
    ids = common_ids([base.ids, new.ids])
    if not ids:
        return {}
    both = base.of_images(ids), new.of_images(ids)
    first, second = (scores_of(radii).values for radii in both)

    def changed(drawn: Floats) -> dict[Score, Ends]:
        left, right = (_replicates(radii, drawn) for radii in both)
        for sides in (left, right):
            sides |= {score: _folded(*sides[score]) for score in _VARIATIONS if score in sides}
        return {score: minus(right[score], left[score]) for score in left if score in right}

    values = {
        score: new_.value - base_.value
        for score in Score
        if (base_ := first[score]).value is not None and (new_ := second[score]).value is not None
    }
    changes = differences(len(ids), changed, values)
    return {
        score: _change(score, first[score], second[score], change)
        for score, change in changes.items()
    }


def _change(
    score: Score, base: ScoreValue, new: ScoreValue, paired: PairedDifference
) -> PairedDifference:
    bounds = paired.estimate.bounds
    p = paired.p_value
    if score in _SMALLEST:  # no interval, except an open one with censored images
        bounds, p = ((math.inf, -math.inf), 1.0) if base.at_least or new.at_least else (None, None)
    if bounds is None or p is None:
        return paired.without_interval()
    lower, upper = bounds
    before, now = (
        None if score.measured is None else score.measured.bounds for score in (base, new)
    )
    if before is not None and now is not None:
        lower = min(lower, now[0] - before[1])
        upper = max(upper, now[1] - before[0])
    estimate = Estimate.population(paired.estimate.value, (lower, upper), BOOTSTRAP)
    if math.isinf(lower) and math.isinf(upper):
        return PairedDifference(estimate, None, paired.images)
    contradicts = lower <= 0.0 <= upper and p <= 0.05
    return PairedDifference(estimate, 1.0 if contradicts else p, paired.images)
