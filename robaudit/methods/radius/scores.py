"""Scores of a set of radii: mean and worst case, relative to the difficulty of the images, and on
easy against hard images.

A misclassified image counts with radius 0. The radius of its row is another number: it is relative
to the class predicted on the clean image.
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
# Differences of logits up to this are rounding: the image is on the boundary, and ratios leave it
# out.
_LEAST = 1e-9
# Kinds of interval whose value counts as it is: exact radii, and bounds from a search.
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
# Scores of both halves, and the two that each is made from.
_VARIATIONS = {
    Score.VARIATION_R_M: (Score.R_M_EASY, Score.R_M_HARD),
    Score.VARIATION_R_NU: (Score.R_NU_EASY, Score.R_NU_HARD),
}
_DIFFERENCES = {
    Score.EASY_LESS_HARD_R_M: (Score.R_M_EASY, Score.R_M_HARD),
    Score.EASY_LESS_HARD_R_NU: (Score.R_NU_EASY, Score.R_NU_HARD),
}
_OF_USABLE = (Score.MEDIAN_RATIO, Score.SLOPE, Score.R_SQUARED)
_OF_DIFFICULTY = frozenset(Score) - {Score.R_M, *_SMALLEST}


@dataclass(frozen=True, slots=True)
class Radii:
    """The radii of a result.

    Attributes:
        key: of the result.
        ids: of the images (n,).
        values, lowers, uppers: radii and their bounds (n,). Upper bounds and exact radii count as
            they are; censored radii have no upper end.
        g: difficulties of the clean images (n,), NaN where unknown.
        margins: z_y - max_{j != y} z_j of the clean images (n,), NaN where unknown.
        order: sort key of the images (n,), highest for the easiest.
        correct: whether the clean image is classified correctly (n,).
        unlabelled, not_finite: number of images left out.
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
        """The correct images with g > 0, beyond rounding (n,), whose ratio r/g has a meaning."""
        return self.correct & (self.g > _LEAST)

    @property
    def left_out(self) -> int:
        """Number of correct images with g <= 0, which the scores with r/g leave out."""
        return int((self.correct & (self.g <= _LEAST)).sum())

    @property
    def without_difficulty(self) -> int:
        """Number of images without a known difficulty; with any, its scores are undefined."""
        return int(np.isnan(self.g).sum())

    def chosen(self, places: Sequence[int]) -> Radii:
        """A selection of the images."""
        at = np.asarray(places, dtype=np.int64)
        return replace(
            self,
            ids=tuple(self.ids[i] for i in places),
            values=self.values[at],
            lowers=self.lowers[at],
            uppers=self.uppers[at],
            g=self.g[at],
            margins=self.margins[at],
            order=self.order[at],
            correct=self.correct[at],
        )

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
            contains the interval for these images. None where the score is not defined.
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
        if self.measured is None:
            return False
        return self.measured.upper == math.inf and self.measured.lower != -math.inf


@dataclass(frozen=True, slots=True)
class Scores(Record):
    """The scores of one result.

    Attributes:
        radii: the radii behind the scores.
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
        """Numbers of the images behind the scores."""
        return self.radii


# --- reading


def radii_of(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> list[Radii]:
    """The radii of each result that has some, in the run's order.

    The difficulty comes from the row, else from any other result of the image. Images are sorted by
    it. Correct images have g of the label. So have misclassified ones if the run has a result of
    `difficulty` with target: label; else they come last.

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
    """The radii of a result; ``where``: the run, for messages."""
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
    # Other rows have an interval from draws (noise_tolerance), which the scores take over.
    plain = np.isnan(lowers) | as_is
    plain_uppers = np.where(rows.is_censored, np.inf, rows.values)
    g, margins = difficulties.of_prediction(rows)
    return Radii(
        key=columns.key,
        ids=tuple(rows.names),
        values=rows.values,
        lowers=np.where(plain, rows.values, lowers),
        uppers=np.where(plain, plain_uppers, uppers),
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
    """All scores of a result.

    R_m = mean r and R_w = min r. R_nu = (1/|D|) sum r/g, over the images D without the correct ones
    with g <= 0. Then the median of r/g, and the slope sum(r g)/sum(g^2) of the line through the
    origin, with R^2 = 1 - sum (r - slope g)^2 / sum (r - mean r)^2. R_margin = mean r/margin. The
    halves are of the images sorted by g; with an odd number the middle image is in neither.

    Intervals: R_m has the interval of a summary's mean. The others are percentiles of 2,000
    bootstrap replicates over images, the same for all results with the same number of images.
    Censored radii count at their cap in lower ends, as infinite in upper ends. The interval of a
    relative variation is the interval of the signed variation, folded at 0. Smallest values have no
    interval, as no sample shows how small others are, nor have scores of a single image.

    Args:
        radii: at least one image.
        confidence: of the intervals.

    Source: Giraudon, Gripon, Loewe and Vermet, Towards an intrinsic definition of robustness for a
    classifier.
    """
    everyone = np.ones((1, len(radii.ids)))  # each image once
    value = weighted(radii, everyone, radii.values, radii.values)
    bounds = weighted(radii, everyone, radii.lowers, radii.uppers)
    boot = percentiles(len(radii.ids), lambda drawn: _replicates(radii, drawn), confidence)
    # The mean has the interval of a summary: Gaffke's bound below, Student's t above.
    boot[Score.R_M] = _mean_bounds(radii, confidence)
    scores = {}
    for score in Score:
        exact = float(value[score][0][0]) if score in value else math.nan
        why = _why(radii, score, exact)
        if why:
            scores[score] = ScoreValue(why=why)
            continue
        known = _ends_of_radii(score, bounds[score])
        if known == (-math.inf, math.inf):
            scores[score] = ScoreValue(why="undetermined: censored images in both halves")
        else:
            scores[score] = _value(radii, score, exact, known, boot.get(score))
    return Scores(radii, confidence, scores)


def _ends_of_radii(score: Score, bounds: Ends) -> Bounds:
    """The interval of a score for these images, from the ends of their radii."""
    lower, upper = (float(end[0]) for end in bounds)
    # At the ends of the radii both halves may have a mean of 0, which do not differ.
    if score in _VARIATIONS:
        lower = 0.0 if math.isnan(lower) else lower
        upper = 0.0 if math.isnan(upper) else upper
    return lower, upper


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
    # The ends of the radii do not bound R^2: it does not grow with them.
    if score is Score.R_SQUARED and radii.measured:
        return _score_value(exact, ends, None)
    if score in _VARIATIONS:
        exact = abs(exact)
        known = _folded_ends(known)
        ends = None if ends is None else _folded_ends(ends)
    if ends is None or score in _SMALLEST or _carriers(radii, score) < 2:
        return _score_value(exact, None, known)
    # The interval for the population contains the one for these images.
    population = (min(ends[0], known[0]), max(ends[1], known[1]))
    return _score_value(exact, population, known)


def _score_value(value: float, population: Bounds | None, measured: Bounds | None) -> ScoreValue:
    """A score with its interval for the population, and for these images."""
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
    correct = radii.correct
    usable = radii.usable
    counted = np.where(correct, r, 0.0)
    scores = {Score.R_M: _dot(drawn, counted) / total}
    # Only for the images themselves: replicates do not tell how small others are.
    if len(drawn) == 1:
        present = (drawn > 0) & correct
        smallest = np.where(present, r, np.inf).min(1)
        scores[Score.R_W] = np.where(drawn > 0, counted, np.inf).min(1)
        scores[Score.R_W_CORRECT] = np.where(present.any(1), smallest, np.nan)
    if radii.without_difficulty:
        return scores
    # Giraudon et al.: R_nu = (1/|D|) sum r/g. A misclassified image is in D with a ratio of 0, a
    # correct one with g <= 0 is not in D.
    ratio = np.divide(r, radii.g, out=np.zeros_like(r), where=usable)
    in_ratio = (~correct | usable).astype(np.float64)
    rg = np.where(usable, r * np.where(usable, radii.g, 1.0), 0.0)
    gg = np.where(usable, radii.g**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores[Score.R_NU] = _dot(drawn, ratio) / (drawn @ in_ratio)
        slope = _dot(drawn, rg) / (drawn @ gg)
        scores[Score.SLOPE] = slope
        scores[Score.R_SQUARED] = _determination(drawn, r, usable, rg, slope)
        if not np.isnan(radii.margins).any():
            apart = correct & (radii.margins > _LEAST)
            per_margin = np.divide(r, radii.margins, out=np.zeros_like(r), where=apart)
            in_margin = (~correct | apart).astype(np.float64)
            scores[Score.R_MARGIN] = _dot(drawn, per_margin) / (drawn @ in_margin)
    scores[Score.MEDIAN_RATIO] = _median(drawn * usable, ratio)
    easiest = np.argsort(-radii.order, kind="stable")
    easy, hard = _halves(drawn[:, easiest], total)
    with np.errstate(divide="ignore", invalid="ignore"):
        for part, mean, aware in (
            (easy, Score.R_M_EASY, Score.R_NU_EASY),
            (hard, Score.R_M_HARD, Score.R_NU_HARD),
        ):
            scores[mean] = _dot(part, counted[easiest]) / np.floor(total / 2)
            scores[aware] = _dot(part, ratio[easiest]) / (part @ in_ratio[easiest])
    return scores


def _halves(ordered: Floats, total: Floats) -> tuple[Floats, Floats]:
    """The weights of the images in the easier and in the harder half (replicates, n).

    A replicate may draw an image several times, some for each half. Of an odd number of draws the
    middle one is in neither half.

    Args:
        ordered: the weights, the easiest image first (replicates, n).
        total: their sums (replicates,).
    """
    half = np.floor(total / 2)[:, None]
    before = ordered.cumsum(1) - ordered
    easy = np.clip(half - before, 0.0, ordered)
    hard = np.clip(before + ordered - (total[:, None] - half), 0.0, ordered)
    return easy, hard


def weighted(radii: Radii, drawn: Floats, lowers: Floats, uppers: Floats) -> dict[Score, Ends]:
    """The ends of the scores of weighted images, from the ends of their radii.

    Relative variations are (easy - hard)/(easy + hard) here, with the sign that the score drops.
    """
    # Means and ratios grow with the radii, so each end of a score is at an end of all radii.
    least = _statistics(radii, drawn, lowers)
    most = least if uppers is lowers else _statistics(radii, drawn, uppers)
    scores = {score: (values, most[score]) for score, values in least.items()}
    if Score.R_M_EASY in least:
        # A variation grows with the radii of the easy half and falls with those of the hard one.
        for score, (easy, hard) in _VARIATIONS.items():
            lower = _relative(least[easy], most[hard])
            upper = _relative(most[easy], least[hard])
            scores[score] = lower, upper
        for score, (easy, hard) in _DIFFERENCES.items():
            easy_ends = (least[easy], most[easy])
            hard_ends = (least[hard], most[hard])
            scores[score] = minus(easy_ends, hard_ends)
    return scores


def _replicates(radii: Radii, drawn: Floats) -> dict[Score, Ends]:
    """The ends of the scores of replicates, which differ where censored images contribute."""
    # Uncensored, both ends are the same array, and weighted() computes the scores once.
    uppers = radii.values
    if radii.censored.any():
        uppers = np.where(radii.censored, np.inf, radii.values)
    return weighted(radii, drawn, radii.values, uppers)


def _relative(up: Floats, down: Floats) -> Floats:
    """(up - down)/(up + down), with its limit where either is infinite.

    It is 0 where both are infinite, NaN where both are 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        finite = (up - down) / (up + down)
    limit = np.isinf(up).astype(np.float64) - np.isinf(down)
    return np.where(np.isinf(up) | np.isinf(down), limit, finite)


def _mean_bounds(radii: Radii, confidence: float) -> Bounds:
    """The interval of the mean radius for the population, as in a summary."""
    counted, lowers, uppers = (
        np.where(radii.correct, r, 0.0) for r in (radii.values, radii.lowers, radii.uppers)
    )
    # A radius is at least 0, so an open lower end is no reason for an open interval.
    lowers = np.where(np.isinf(lowers), counted, lowers)
    images = MeasuredImages(
        values=counted,
        lowers=lowers,
        uppers=uppers,
        low=0.0,
        high=math.inf,
    )
    return opened(images, population_mean(images, confidence, light_tails=True))


def _folded(low: Floats, high: Floats) -> Ends:
    """The ends of absolute values from the ends of the signed values."""
    far_low = np.abs(low)
    far_high = np.abs(high)
    around_zero = (low <= 0) & (high >= 0)
    least = np.where(around_zero, 0.0, np.minimum(far_low, far_high))
    return least, np.maximum(far_low, far_high)


def _folded_ends(ends: Bounds) -> Bounds:
    """The interval of an absolute value from the interval of the signed value."""
    low, high = _folded(*(np.array(end) for end in ends))
    return float(low), float(high)


def _dot(drawn: Floats, values: Floats) -> Floats:
    """Weighted sums; infinite where an infinite value has a weight."""
    if np.isfinite(values).all():
        return drawn @ values
    finite = drawn @ np.where(np.isfinite(values), values, 0.0)
    infinite = (drawn[:, np.isinf(values)] > 0).any(1)
    return np.where(infinite, np.inf, finite)


def _determination(drawn: Floats, r: Floats, usable: Mask, rg: Floats, slope: Floats) -> Floats:
    """1 - sum (r - slope g)^2 / sum (r - mean r)^2 of the usable images."""
    # It is not defined with censored images, which _why says.
    if not np.isfinite(r[usable]).all():
        return np.zeros(len(drawn))
    radii = np.where(usable, r, 0.0)
    count = drawn @ usable.astype(np.float64)
    # sum (r - mean r)^2 = sum a^2 - (sum a)^2 / n for a = r - centre. A centre near the mean keeps
    # the two terms small, so that little is lost to rounding.
    centre = float(radii[usable].mean()) if usable.any() else 0.0
    away = np.where(usable, r - centre, 0.0)
    squares = drawn @ away**2 - (drawn @ away) ** 2 / count
    total = drawn @ radii**2
    # sum (r - slope g)^2 = sum r^2 - slope sum r g, as slope is the one of least squares.
    rest = np.maximum(total - slope * (drawn @ rg), 0.0)
    explained = 1.0 - rest / np.where(squares > 0, squares, 1.0)
    return np.where(squares > 1e-12 * total, explained, np.nan)


def _median(drawn: Floats, values: Floats) -> Floats:
    """Weighted medians; NaN without weights.

    They are the mean of the two middle values where the number of values is even.
    """
    at = np.argsort(values, kind="stable")
    reached = drawn[:, at].cumsum(1)
    half = reached[:, -1:] / 2
    low = values[at][(reached >= half).argmax(1)]
    high = values[at][(reached > half).argmax(1)]
    middle = np.where(low == high, low, (low + high) / 2)
    return np.where(reached[:, -1] > 0, middle, np.nan)


# --- two runs


def score_changes(base: Radii, new: Radii) -> dict[Score, PairedDifference]:
    """The differences of the scores of a result of two runs, new - base.

    They are on the images that both runs have, for scores that both have. Replicates draw the same
    images for both. An end is infinite on the side where a censored image leaves it open; where
    both are, there is no p-value.
    """
    ids = common_ids([base.ids, new.ids])
    if not ids:
        return {}
    base = base.of_images(ids)
    new = new.of_images(ids)
    base_scores = scores_of(base).values
    new_scores = scores_of(new).values

    def changed(drawn: Floats) -> dict[Score, Ends]:
        base_ends = _folded_variations(_replicates(base, drawn))
        new_ends = _folded_variations(_replicates(new, drawn))
        return {
            score: minus(new_ends[score], ends)
            for score, ends in base_ends.items()
            if score in new_ends
        }

    values = {}
    for score in Score:
        before = base_scores[score].value
        now = new_scores[score].value
        if before is not None and now is not None:
            values[score] = now - before
    changes = differences(len(ids), changed, values)
    return {
        score: _change(score, base_scores[score], new_scores[score], change)
        for score, change in changes.items()
    }


def _folded_variations(ends: dict[Score, Ends]) -> dict[Score, Ends]:
    """The ends of all scores, relative variations without their sign."""
    folded = dict(ends)
    for score in _VARIATIONS:
        if score in ends:
            folded[score] = _folded(*ends[score])
    return folded


def _change(
    score: Score, base: ScoreValue, new: ScoreValue, paired: PairedDifference
) -> PairedDifference:
    """The difference of a score, with an interval that contains the one for these images."""
    bounds = paired.estimate.bounds
    p = paired.p_value
    # No replicate has a smallest value. Its difference is open where a censored image leaves it so.
    if score in _SMALLEST:
        open_ = base.at_least or new.at_least
        bounds = (math.inf, -math.inf) if open_ else None
        p = 1.0 if open_ else None
    if bounds is None or p is None:
        return paired.without_interval()
    lower, upper = bounds
    before = None if base.measured is None else base.measured.bounds
    now = None if new.measured is None else new.measured.bounds
    if before is not None and now is not None:
        lower = min(lower, now[0] - before[1])
        upper = max(upper, now[1] - before[0])
    estimate = Estimate.population(paired.estimate.value, (lower, upper), BOOTSTRAP)
    if math.isinf(lower) and math.isinf(upper):
        return PairedDifference(estimate, None, paired.images)
    # A p-value must agree with the interval, which may have become wider.
    contradicts = lower <= 0.0 <= upper and p <= 0.05
    return PairedDifference(estimate, 1.0 if contradicts else p, paired.images)
