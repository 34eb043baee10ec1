"""Scores of radii, of one run or of several side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError, SpecError
from robaudit.report import numbers
from robaudit.report.differences import BOOTSTRAP_P, comparable, p_text, run_columns
from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, fitted, paneled
from robaudit.report.pictures.style import CROSS, DOT, FAINT, TRIANGLE
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.summary import about
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.intervals import LIKE_THESE, ROW_CONFIDENCE
from robaudit.stats.scores import (
    MEANINGS,
    RADII,
    Change,
    Radii,
    Score,
    ScoreChanges,
    Scores,
    ScoreValue,
    radii_of,
    score_changes,
    scores_of,
)
from robaudit.store.run import Run
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ScoresSection(Section[Scores]):
    """Scores of radii: mean and minimum, relative to how difficult the images are, and on easy against hard images."""

    title = "Radius and difficulty"
    words = (
        "The radius r of the nearest change of the prediction, and its growth with the difficulty g, the logit of the clean score: larger "
        "is easier. Misclassified images count as 0. Ratios to g compare networks with less dependence on the choice of images."
    )
    uses = Section.uses | {"only", "confidence"}

    def applies(self, run: Run) -> bool:
        """Whether it has labels and radii."""
        return run.info["clean_accuracy"] is not None and not set(RADII).isdisjoint(run.quantities)

    def records(self, run: Run, ask: Ask) -> list[Scores]:
        """The scores of each result."""
        return [scores_of(one, _confidence(ask)) for one in _radii(run, ask)]

    def tables(self, found: Sequence[Found[Scores]], ask: Ask) -> Iterator[Table]:
        """A line for each score; of several runs, with the differences from the first, on the images that both have; others alone."""
        compared, alone = _compared(found, ask)
        yield from (change_table(changes, (base, name)) for base, name, changes in compared)
        several = len(by_name(found)) > 1
        for one in alone:
            table = table_of(one.record)
            yield replace(table, heading=f"{one.name}: {table.heading}") if several else table

    def figure(self, found: Sequence[Found[Scores]], ask: Ask) -> Sketch:
        """Radii against the difficulty of the images, with the line of the slope: a panel for each of the first nine results and runs."""
        keys = [one.record.radii.key for one in found]
        every = sorted(found, key=lambda one: keys.index(one.record.radii.key))
        several = len(by_name(found)) > 1
        named = [(f"{one.name}: {one.record.radii.key}" if several else str(one.record.radii.key), one.record) for one in every]
        shown = named[:_MOST_PANELS]
        there = {mark for _, one in shown for mark, _ in _marked(one.radii)}

        return paneled(
            "Radius against difficulty",
            _caption(shown, [title for title, _ in named[_MOST_PANELS:]]),
            [one for _, one in shown],
            _panel,
            wide=2.2,
            high=_HIGH if len(shown) > 1 else 2.7,
            titles=[title for title, _ in shown],
            styles={name: style for name, style in _MARKS.items() if name in there},
        )

    def documents(self, found: Sequence[Found[Scores]], ask: Ask) -> list[dict[str, Any]]:
        """All scores; of several runs, each result against the first run's."""
        compared, alone = _compared(found, ask)
        return [{"run": name, "base": base, **changes.document()} for base, name, changes in compared] + super().documents(alone, ask)

    def sheet(self, found: Sequence[Found[Scores]], ask: Ask) -> list[dict[str, Any]]:
        """A line for each score of each result; of several runs, with the difference."""
        compared, alone = _compared(found, ask)
        lines = [
            {"run": name, "base": base, **changes.base.radii.key.document(), "score": score.value, **_columns(change)}
            for base, name, changes in compared
            for score, change in changes.changes.items()
        ]
        return lines + super().sheet(alone, ask)

    def lines(self, one: Found[Scores], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each score."""
        for score, value in one.record.values.items():
            yield {**one.record.radii.key.document(), "score": score.value, **value.document()}


def _columns(change: Change) -> dict[str, Any]:
    """A change as columns of CSV."""
    parts = ("value", "lower", "upper", "measured_lower", "measured_upper")
    sides = {f"{side}_{part}": getattr(of, part) for side, of in (("base", change.base), ("new", change.new)) for part in parts}
    parted = {"value": change.value, "lower": change.lower, "upper": change.upper, "p_value": change.p_value}
    return {**sides, "difference": parted}


def _confidence(ask: Ask) -> float:
    return ROW_CONFIDENCE if ask.confidence is None else ask.confidence


def _radii(run: Run, ask: Ask) -> list[Radii]:
    """The radii of a run, or of its correct images.

    Raises:
        SpecError: radii of misclassified images are asked for; they are 0.
        NothingLeftError: every image is misclassified.
    """
    found = radii_of(run, ask.estimators, ask.levels)
    if ask.only is None:
        return found
    if ask.only == "wrong":
        raise SpecError("--only wrong", "does not apply to the section scores: misclassified images count as 0", "use --only correct")
    for one in found:
        if not one.correct.any():
            raise NothingLeftError(str(run.path), f"{one.key}: every image is misclassified", "leave --only correct out")
    return [one.only_correct() for one in found]


def _compared(found: Sequence[Found[Scores]], ask: Ask) -> tuple[list[tuple[str, str, ScoreChanges]], list[Found[Scores]]]:
    """The results that the first run and each other have, compared, behind the names of both; and the records of the other runs."""
    (base, first), *others = by_name(found).items()
    compared = []
    for name, mine in others:
        runs = first[0].run, mine[0].run
        there = {one.record.radii.key: one.record.radii for one in mine} if comparable(*runs) else {}
        for one in first:
            if (other := there.get(one.record.radii.key)) is not None:
                changes = score_changes(one.record.radii, other, f"{runs[0].path} and {runs[1].path}", _confidence(ask))
                compared.append((base, name, changes))
    told = {base, *(name for _, name, _ in compared)} if compared else set()
    return compared, [one for one in found if one.name not in told]


def table_of(scores: Scores) -> Table:
    """A line for each score of one result."""
    shown = [(score, one) for score, one in scores.values.items() if one.value is not None]
    rows = [cells((score, text(one), MEANINGS[score])) for score, one in shown]
    heads = (Column("score"), Column(f"value [{_percent(scores)} interval]", number=True), Column("meaning", wrap=True))
    note = f"[ ] {_intervals(scores)}."
    return Table(str(scores.radii.key), heads, tuple(rows), (_about(scores.radii), _counts(scores.radii)), notes=(note, *notes(scores)))


def change_table(changes: ScoreChanges, names: Sequence[str]) -> Table:
    """A line for each score of one result in two runs, and their difference."""
    base, new = names
    shown = [(score, one) for score, one in changes.changes.items() if one.value is not None]
    rows = [
        cells((score, *(text(one) for one in (change.base, change.new)), difference(change), p_text(change.p_value)))
        for score, change in shown
    ]
    radii = changes.base.radii
    lines = [_about(radii), f"{_counts(radii)} in {base}; {_counts(changes.new.radii)} in {new}"]
    if changes.only_base or changes.only_new:
        lines.append(f"left out: {count(changes.only_base, 'image')} only in {base}, {changes.only_new:,} only in {new}")
    note = f"[ ] {_intervals(changes.base)}; of a difference: bootstrap, the same images drawn for both."
    remarks = dict.fromkeys([*notes(changes.base), *notes(changes.new)])
    return Table(
        str(radii.key), (Column("score"), *run_columns(names, tested=True)), tuple(rows), tuple(lines), notes=(note, BOOTSTRAP_P, *remarks)
    )


def text(one: ScoreValue) -> str:
    """The value with its interval for the population: a lower end where censored images leave it open above, "~" where they leave it
    open on both sides.
    """
    if one.value is None:
        return numbers.NONE
    known = one.measured_lower, one.measured_upper
    mark = ">= " if one.at_least else "~" if known == (0.0, 1.0) and 0.0 < one.value < 1.0 else ""
    return f"{mark}{one.value:.4g} {numbers.rough_interval(one.lower, one.upper, 4)}".rstrip()


def difference(change: Change) -> str:
    """The difference with its interval."""
    if change.value is None:
        return numbers.NONE
    if change.lower is None or change.upper is None:
        return f"{change.value:+.4g}"
    ends = ", ".join("..." if math.isinf(end) else f"{round(end, 12) + 0.0:+.4g}" for end in (change.lower, change.upper))
    return f"{change.value:+.4g} [{ends}]"


def notes(scores: Scores) -> Iterator[str]:
    """What the scores of a result leave out or open, and why some are missing."""
    radii = scores.radii
    if radii.upper_bounds:
        yield "Upper bounds: the true radii may be smaller than those found."
    if censored := int(radii.censored.sum()):
        yield f">= {censored:,} of {count(len(radii.ids), 'image')} only known to be beyond {radii.cap:.4g}."
    if radii.measured:
        yield "[ ] covers the spread of the values, not the interval of each image; --format json has the scores at its ends."
    if radii.left_out:
        yield f"{count(radii.left_out, 'correct image')} with g <= 0 left out of all ratios."
    if left := radii.unlabelled + radii.not_finite:
        yield f"{count(left, 'image')} left out: no label or no finite value."
    reasons: dict[str, list[str]] = {}
    for score, one in scores.values.items():
        if one.value is None:
            reasons.setdefault(one.why, []).append(score)
    for why, names in reasons.items():
        yield f"Not defined: {', '.join(names)}: {why}."


def _about(radii: Radii) -> str:
    return about(radii.key, "", higher_is_better=True)


def _counts(radii: Radii) -> str:
    n, correct = len(radii.ids), int(radii.correct.sum())
    return f"{count(n, 'image')}, {correct:,} correct" + (f", {n - correct:,} misclassified (radius 0)" if correct < n else "")


def _intervals(scores: Scores) -> str:
    """How the intervals of the scores are made."""
    return f"{_percent(scores)} interval, {LIKE_THESE}; of r_m as for a mean in the summary, of the others by percentile bootstrap"


def _percent(scores: Scores) -> str:
    return f"{100 * scores.confidence:.4g}%"


# --- the figure

_MOST_PANELS = 9
_HIGH = 2.1  # inches of a panel
_MARKS = {"correct": DOT, "beyond the cap": TRIANGLE, "misclassified": CROSS}


def _caption(shown: Sequence[tuple[str, Scores]], left: Sequence[str]) -> Iterator[str]:
    yield "g: the logit of the clean score of the predicted class, the larger the easier; higher radii are better."
    for name, one in shown:
        radii, slope, fit = one.radii, one.values[Score.SLOPE], one.values[Score.R_SQUARED]
        words = [count(len(radii.ids), "image")]
        if slope.value is not None:
            words.append(f"slope {text(slope)}" + ("" if fit.value is None else f", R\N{SUPERSCRIPT TWO} {fit.value:.3f}"))
        if censored := int(radii.censored.sum()):
            words.append(f"{censored:,} censored at {radii.cap:.3g}")
        if radii.left_out:
            words.append(f"{radii.left_out:,} correct with g <= 0 not in the fit")
        yield f"{name}: {', '.join(words)}{'; upper bounds' if radii.upper_bounds else ''}."
    if any(one.values[Score.SLOPE].value is not None for _, one in shown):
        yield "Line: r = slope g through the origin, of the correct images with g > 0."
    if any(not one.radii.correct.all() for _, one in shown):
        yield "Crosses: misclassified images, at the radius of the predicted class; scores count them as 0."
    if any(one.radii.without_difficulty for _, one in shown):
        yield "Images whose difficulty is unknown are not drawn."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _marked(radii: Radii) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The kinds of marks that some images need, and those images."""
    known = ~np.isnan(radii.g)
    for name, some in zip(_MARKS, (radii.correct & ~radii.censored, radii.censored, ~radii.correct), strict=True):
        if (some & known).any():
            yield name, some & known


def _panel(ax: Axes, scores: Scores, look: PictureSize) -> None:
    radii, slope = scores.radii, scores.values[Score.SLOPE].value
    for name, at in _marked(radii):
        ax.plot(radii.g[at], radii.values[at], alpha=0.85, clip_on=False, zorder=3, **_MARKS[name])
    known = ~np.isnan(radii.g)
    left, right = (min(0.0, *ax.get_xlim()), max(0.0, *ax.get_xlim()))
    top = 1.06 * max(float(radii.values[known].max(initial=0.0)), 1e-12)
    if slope is not None:
        end = min(right, top / slope) if slope > 0 else right
        ax.plot([0.0, end], [0.0, slope * end], color=FAINT, linewidth=1.3, zorder=2)
    ax.set(xlim=(left, right), ylim=(0.0, top))
    few_ticks(ax.xaxis, 4)
    few_ticks(ax.yaxis, 4)
    ax.set_xlabel("difficulty g (right: easier)")
    ax.set_ylabel(fitted(f"{radii.key.norm} radius" if radii.key.norm else radii.key.quantity, _HIGH - 0.5, look.size))
