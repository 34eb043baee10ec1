"""A comparison of two runs: tables, CSV and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

from robaudit.compare.result import (
    ClassChange,
    Comparison,
    Counts,
    Difference,
    GroupComparison,
    SampleChange,
)
from robaudit.estimates import Estimate
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES
from robaudit.report import numbers
from robaudit.report.tables import Table, cells, columns
from robaudit.runs.info import RunInfo
from robaudit.runs.serialise import table_csv
from robaudit.stats.flags import Certainty
from robaudit.text import Names, class_name, count

# lines of a table in a terminal; JSON has all
MOST_CLASSES = 5
MOST_SAMPLES = 10
_CHANGES = ("base", "new", f"new - base [{THESE_IMAGES}]", f"[{LIKE_THESE}]")
_FIELDS = (
    "base",
    "new",
    "difference",
    "lower",
    "upper",
    "method",
    "population_lower",
    "population_upper",
)


def comparison_tables(
    comparison: Comparison, base: RunInfo, new: RunInfo, names: Names | None
) -> Iterator[Table]:
    """The report of a comparison.

    Args:
        comparison: the result.
        base, new: the run.json of each run.
        names: of the classes.
    """
    yield Table("new against base", lines=tuple(_head(comparison, base, new)))
    levels = numbers.level_texts(group.key.at for group in comparison.groups)
    for group in comparison.groups:
        yield from _group(group, levels[group.key.at], names)


def csv_text(comparison: Comparison) -> str:
    """A line for clean accuracy; for each group a line for the mean, one for accuracy under noise,
    and one for each class."""
    return table_csv(
        [
            "estimator",
            "noise",
            "level_name",
            "level",
            "what",
            "class",
            "class_name",
            "images",
            *_FIELDS,
        ],
        _records(comparison),
    )


def _head(comparison: Comparison, base: RunInfo, new: RunInfo) -> list[str]:
    """The lines above the tables: clean accuracy first, then the two runs."""
    lines = []
    accuracy = comparison.clean_accuracy
    if accuracy is None:
        lines.append("clean accuracy  not measured (no labels)")
    else:
        # without noise nothing is random but the choice of the images
        before = numbers.exact_percent(accuracy.base)
        after = numbers.exact_percent(accuracy.new)
        lines.append(
            f"clean accuracy  {before} -> {after}, {_points(accuracy.value)} points (exact for "
            f"{THESE_IMAGES}; {LIKE_THESE}: {_points_between(accuracy.population)})"
        )
    for words, info in (("base", base), ("new", new)):
        model = info.model
        lines.append(
            f"{words:15} {info.name}: model {model.name} ({model.format}, sha256 "
            f"{model.sha256[:8]})"
        )
    lines.append(f"samples         {count(comparison.samples, 'sample')} in both")
    if comparison.matching.same_model:
        lines.append("model           the same in both: differences are due to the noise draws")
    lines += [f"warning         {text}" for text in comparison.matching.warnings]
    return lines


def _points(share: float, away: Callable[[float], int] = round) -> str:
    """A share in percentage points, with a sign and one decimal."""
    # rounding to 6 digits first: errors of floating point must not push an end outwards
    return f"{away(round(1000 * share, 6)) / 10 + 0.0:+.1f}"


def _points_between(change: Estimate) -> str:
    """The interval of a share in percentage points, rounded outwards."""
    lower, upper = change.bounds or (-1.0, 1.0)
    return f"[{_points(lower, math.floor)}, {_points(upper, math.ceil)}] points"


def _group(group: GroupComparison, level: str, names: Names | None) -> Iterator[Table]:
    """The tables of one result: its means, its classes, and the samples that changed."""
    better = "higher" if group.quantity.higher_is_better else "lower"
    title = f"{group.key.estimator} at {level}: {group.key.quantity}, {better} is better"
    rows = [_row("mean", group.mean)]
    if group.noisy_accuracy is not None:
        rows.append(_row("accuracy under noise", group.noisy_accuracy))
    yield Table(
        title,
        columns(("",), _CHANGES),
        tuple(map(cells, rows)),
        lines=(f"{count(group.images, 'image')}, {_how(group)}",),
        notes=tuple(_counts(group)),
    )
    if len(group.classes) > 1:
        yield Table(
            "",
            columns(("class",), ("images", *_CHANGES)),
            tuple(cells(_class(change, names)) for change in group.classes[:MOST_CLASSES]),
            lines=(
                f"Classes, largest loss first; {100 * group.confidence:g} % for all "
                f"{len(group.classes)} together:",
            ),
            notes=_rest(len(group.classes) - MOST_CLASSES, "json and csv hold"),
        )
    if group.changed:
        yield Table(
            "",
            columns(("sample", "label", "predicted", ""), ("base", "new", "new - base [95 %]")),
            tuple(cells(_sample(change, names)) for change in group.changed[:MOST_SAMPLES]),
            lines=("Samples that changed, worst first:",),
            notes=_rest(len(group.changed) - MOST_SAMPLES, "json holds"),
        )


def _how(group: GroupComparison) -> str:
    """How the draws of the two runs are paired, and what that saves."""
    if group.how == "the same model":
        return "the same model: the difference is exactly 0"
    if group.how == "unpaired":
        reason = f", as {group.why}" if group.why else ""
        adding = "the errors of both runs' noise draws add up"
        return f"noise draws unpaired{reason}: {adding}{_cut(group)}"
    saved = group.variance_saved
    words = "paired on the noise draws that both runs took of each"
    if group.draws is not None:
        words = f"paired on the same {group.draws:,} noise draws each"
    words += _cut(group)
    if saved is None:
        return words
    if abs(saved) < 0.005:  # 0 % would be said
        return f"{words}, which leaves the variance due to the noise draws as it is"
    effect = f"saves {saved:.0%}" if saved >= 0 else f"costs {-saved:.0%}"
    if saved > 0.99:  # 100 % would claim that nothing is left
        effect = "saves more than 99%"
    return f"{words}, which {effect} of the variance due to the noise draws"


def _cut(group: GroupComparison) -> str:
    """How many draws each run has, where only the first ones of either are compared."""
    if group.cut is None:
        return ""
    base, new = group.cut
    return f" (the first {group.draws:,}; base has {base:,}, new {new:,}; all below is of those)"


def _counts(group: GroupComparison) -> list[str]:
    """How many samples are worse, better, newly flagged and left out."""
    side = "below" if group.quantity.higher_is_better else "above"
    lines = []
    if group.compared:
        by_interval = (
            f"of {group.compared:,}, each by its own 95 % interval (the noise draws alone: up "
            "to 2.5 % worse and 2.5 % better)"
        )
        lines.append(f"worse: {group.worse:,}, better: {group.better:,} {by_interval}.")
    if group.counts is not None:
        lines.append(_bounds_of_counts(group, group.counts))
    if math.isfinite(group.threshold):
        for which in _MOVES:
            words = []
            for kind in Certainty:
                number = group.flagged(which, kind)
                word = "without an interval" if kind is Certainty.NO_INTERVAL else kind
                words += [f"{number:,} {word}"] if number else []
            lines.append(f"{which} ({side} {group.threshold:g}): {', '.join(words) or '0'}.")
    if group.not_finite:
        lines.append(
            f"{count(group.not_finite, 'sample')} left out: no finite value in one run or both. "
            "Gates count them at both ends of the range."
        )
    if group.skipped:
        lines.append(
            f"{count(group.skipped, 'sample')} left out: skipped by the new run. Gates count "
            "them at both ends of the range."
        )
    if group.approximate:
        lines.append(
            f"{group.key.estimator} is approximate: intervals cover its noise draws, not the "
            "bias of the approximation."
        )
    if group.voted:
        lines.append(
            f"{group.key.estimator}: by the votes of its copies; its approximations are not "
            "compared."
        )
    return lines


_MOVES: tuple[Literal["newly flagged", "fixed"], ...] = ("newly flagged", "fixed")


def _from_to(least: int, most: int, of: str = "") -> str:
    """A number between two with its verb: ``1 to 3 of 60 are``, ``1 of 60 is``."""
    if least != most:
        return f"{least:,} to {most:,}{of} are"
    return f"{least:,}{of} " + ("is" if least == 1 else "are")


def _bounds_of_counts(group: GroupComparison, counts: Counts) -> str:
    """How many samples are truly worse and truly newly flagged, at least and at most."""
    size = group.size
    least, most = counts.worse.bounds or (0.0, 1.0)  # a share
    worse = _from_to(round(least * size), round(most * size), f" of {size:,}")
    least, most = counts.newly_flagged.bounds or (0, size)  # a number
    flagged = _from_to(round(least), round(most))
    return (
        f"With {100 * group.confidence:.4g} % confidence, {worse} worse by any amount, "
        f"and {flagged} newly flagged."
    )


def _row(name: str, difference: Difference) -> tuple[str, ...]:
    """A difference below :data:`_CHANGES`, after its name."""
    measured = difference.measured
    lower, upper = (None, None) if measured is None else measured.ends
    return (
        name,
        numbers.plain(difference.base, digits=4),
        numbers.plain(difference.new, digits=4),
        numbers.change(difference.value, lower, upper),
        numbers.change_interval(*(difference.population.bounds or (-math.inf, math.inf))),
    )


def _class(change: ClassChange, names: Names | None) -> tuple[str, ...]:
    """The cells of a class."""
    name, *difference = _row(class_name(change.index, names), change.difference)
    return (name, f"{change.images:,}", *difference)


def _sample(change: SampleChange, names: Names | None) -> tuple[str, ...]:
    """The cells of a sample."""
    before = class_name(change.base_predicted, names)
    after = class_name(change.predicted, names)
    predicted = after if before == after else f"{before} -> {after}"
    flag = f"{change.flagged}, {change.certainty}" if change.flagged else "worse"
    label = class_name(change.label, names)
    return (
        change.id,
        label,
        predicted,
        flag,
        numbers.plain(change.base, digits=4),
        numbers.plain(change.new, digits=4),
        numbers.change(change.difference.value, *change.difference.ends),
    )


def _records(comparison: Comparison) -> Iterator[list[object]]:
    """The lines of CSV: what is compared, the number of images, and the difference."""
    if comparison.clean_accuracy is not None:
        no_result = [None, None, None, None]  # it belongs to no estimator and noise level
        about = [*no_result, "clean_accuracy", None, None, comparison.samples]
        yield [*about, *_fields(comparison.clean_accuracy)]
    for group in comparison.groups:
        key = [group.key.estimator, *group.key.at.document().values()]
        yield [*key, "mean", None, None, group.images, *_fields(group.mean)]
        if group.noisy_accuracy is not None:
            yield [*key, "noisy_accuracy", None, None, group.images, *_fields(group.noisy_accuracy)]
        for change in group.classes:
            about = [*key, "class_mean", change.index, change.name, change.images]
            yield [*about, *_fields(change.difference)]


def _fields(difference: Difference) -> list[object]:
    """The values below :data:`_FIELDS`."""
    measured = difference.measured
    ends = [None, None, "none"] if measured is None else [*measured.ends, measured.method]
    return [difference.base, difference.new, difference.value, *ends, *difference.population.ends]


def _rest(left: int, where: str) -> tuple[str, ...]:
    """A note about lines that are left out, if there are some."""
    return (f"... and {left:,} more, which --format {where}.",) if left > 0 else ()
