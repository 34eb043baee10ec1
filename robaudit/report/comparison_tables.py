"""A comparison of two runs: tables, CSV and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from robaudit.compare.result import (
    ClassChange,
    Comparison,
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
    lines = []
    accuracy = comparison.clean_accuracy
    if accuracy is None:
        lines.append("clean accuracy  not measured (no labels)")
    else:
        lines.append(
            f"clean accuracy  {numbers.exact_percent(accuracy.base)} -> "
            f"{numbers.exact_percent(accuracy.new)}, "
            f"{_points(accuracy.value)} points (exact for {THESE_IMAGES}; {LIKE_THESE}: "
            f"{_points_between(accuracy.population)})"
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
    return f"{away(round(1000 * share, 6)) / 10 + 0.0:+.1f}"


def _points_between(change: Estimate) -> str:
    lower, upper = change.bounds or (-1.0, 1.0)
    return f"[{_points(lower, math.floor)}, {_points(upper, math.ceil)}] points"


def _group(group: GroupComparison, level: str, names: Names | None) -> Iterator[Table]:
    title = (
        f"{group.key.estimator} at {level}: {group.key.quantity}, "
        f"{'higher' if group.quantity.higher_is_better else 'lower'} is better"
    )
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
    if group.how == "the same model":
        return "the same model: the difference is exactly 0"
    if group.how == "unpaired":
        return (
            f"unpaired{f', as {group.why}' if group.why else ''}: the errors of both runs' "
            "noise draws add up"
        )
    saved = group.variance_saved
    words = "paired on the noise draws that both runs took of each"
    if group.draws is not None:
        words = f"paired on the same {group.draws:,} noise draws each"
    if group.cut is not None:
        words += (
            f" (the first; base has {group.cut[0]:,}, new {group.cut[1]:,}; all below is of those)"
        )
    if saved is None:
        return words
    more = (
        "saves more than 99%"
        if saved > 0.99
        else f"saves {saved:.0%}"
        if saved >= 0
        else f"costs {-saved:.0%}"
    )
    return f"{words}, which {more} of the variance due to the noise draws"


def _counts(group: GroupComparison) -> list[str]:
    side = "below" if group.quantity.higher_is_better else "above"
    lines = []
    if group.compared:
        each = (
            f"of {group.compared:,}, each by its own 95 % interval (the noise draws alone: up "
            "to 2.5 % worse and 2.5 % better)"
        )
        lines.append(f"worse: {group.worse:,}, better: {group.better:,} {each}.")
    bounds = group.counts
    size = group.size
    if bounds is not None:
        least, most = bounds.worse.bounds or (0.0, 1.0)
        worse = f"{round(least * size):,} to {round(most * size):,} of {size:,}"
        least, most = bounds.newly_flagged.bounds or (0, size)
        flagged = f"{least:,.0f} to {most:,.0f}"
        lines.append(
            f"With {100 * group.confidence:.4g} % confidence, {worse} are worse by any amount, "
            f"and {flagged} are newly flagged."
        )
    for which in ("newly flagged", "fixed") if math.isfinite(group.threshold) else ():
        kinds = {kind: group.flagged(which, kind) for kind in Certainty}
        words = ", ".join(
            f"{number:,} {'without an interval' if kind is Certainty.NO_INTERVAL else kind}"
            for kind, number in kinds.items()
            if number
        )
        lines.append(f"{which} ({side} {group.threshold:g}): {words or '0'}.")
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


def _row(name: str, difference: Difference) -> tuple[str, ...]:
    return (
        name,
        numbers.plain(difference.base, digits=4),
        numbers.plain(difference.new, digits=4),
        numbers.change(
            difference.value,
            *((None, None) if difference.measured is None else difference.measured.ends),
        ),
        numbers.change_interval(*(difference.population.bounds or (-math.inf, math.inf))),
    )


def _class(change: ClassChange, names: Names | None) -> tuple[str, ...]:
    return class_name(change.index, names), f"{change.images:,}", *_row("", change.difference)[1:]


def _sample(change: SampleChange, names: Names | None) -> tuple[str, ...]:
    before, now = (class_name(index, names) for index in (change.base_predicted, change.predicted))
    predicted = now if before == now else f"{before} -> {now}"
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
    if comparison.clean_accuracy is not None:
        yield [
            None,
            None,
            None,
            None,
            "clean_accuracy",
            None,
            None,
            comparison.samples,
            *_fields(comparison.clean_accuracy),
        ]
    for group in comparison.groups:
        key = [group.key.estimator, *group.key.at.document().values()]
        yield [*key, "mean", None, None, group.images, *_fields(group.mean)]
        if group.noisy_accuracy is not None:
            yield [*key, "noisy_accuracy", None, None, group.images, *_fields(group.noisy_accuracy)]
        for change in group.classes:
            yield [
                *key,
                "class_mean",
                change.index,
                change.name,
                change.images,
                *_fields(change.difference),
            ]


def _fields(difference: Difference) -> list[object]:
    measured = difference.measured
    ends = [None, None, "none"] if measured is None else [*measured.ends, measured.method]
    return [difference.base, difference.new, difference.value, *ends, *difference.population.ends]


def _rest(left: int, where: str) -> tuple[str, ...]:
    return (f"... and {left:,} more, which --format {where}.",) if left > 0 else ()
