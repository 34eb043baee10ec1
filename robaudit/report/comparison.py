"""What does a reader of a comparison see, as headings, tables of texts and remarks, before it is printed anywhere?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robaudit.compare.paired import Ends
from robaudit.compare.result import ClassChange, Comparison, Difference, GroupComparison, SampleChange
from robaudit.report import numbers
from robaudit.text import Names, class_name, count, shortened

MOST_CLASSES, MOST_SAMPLES = 5, 10
_LONGEST_ID, _LONGEST_NAME = 40, 24


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report.

    Attributes:
        title: its heading.
        lines: below it.
        columns, rows: a table of texts; the first ``left`` columns are aligned to the left. No columns: no table.
        notes: below the table.
    """

    title: str
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    left: int = 1
    notes: Sequence[str] = ()


def sections(comparison: Comparison, base: Mapping[str, Any], new: Mapping[str, Any], names: Names | None) -> Iterator[Section]:
    """The report of a comparison.

    Args:
        comparison: what was found.
        base, new: the run.json of each run.
        names: of the classes.
    """
    yield Section("new against base", _head(comparison, base, new))
    levels = numbers.sigmas(group.key.sigma for group in comparison.groups)
    for group in comparison.groups:
        yield from _group(group, levels[group.key.sigma], names)


def _head(comparison: Comparison, base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    lines = []
    accuracy = comparison.clean_accuracy
    if accuracy is None:
        lines.append("clean accuracy  not measured (no labels)")
    else:
        lines.append(
            f"clean accuracy  {accuracy.base:.1%} -> {accuracy.new:.1%}, {_points(accuracy.value)} points (exact for these images; "
            f"images of this kind {_points_between(accuracy.population)})"
        )
    for words, info in (("base", base), ("new", new)):
        model = info["model"]
        lines.append(f"{words:15} {info['name']}: model {model['name']} ({model['format']}, sha256 {model['sha256'][:8]})")
    lines.append(f"samples         {count(comparison.samples, 'sample')} in both")
    if comparison.matching.same_model:
        lines.append("model           the same in both: what differs is noise of the measurement")
    lines += [f"warning         {text}" for text in comparison.matching.warnings]
    return lines


def _points(share: float, away: Callable[[float], int] = round) -> str:
    """A share in points, with one digit and a sign."""
    return f"{away(round(1000 * share, 6)) / 10 + 0.0:+.1f}"


def _points_between(ends: Ends | None) -> str:
    if ends is None:
        return "none"
    return f"[{_points(ends.lower, math.floor)}, {_points(ends.upper, math.ceil)}] points"


def _group(group: GroupComparison, sigma: str, names: Names | None) -> Iterator[Section]:
    title = f"{group.key.estimator} at sigma {sigma}: {group.key.quantity}, {'higher' if group.higher_is_better else 'lower'} is better"
    rows = [_row("mean", group.mean)]
    if group.noisy_accuracy is not None:
        rows.append(_row("accuracy under noise", group.noisy_accuracy))
    yield Section(
        title,
        [f"{count(group.images, 'image')}, {_how(group)}"],
        ("", "base", "new", "new - base [these images]", "[images of this kind]"),
        rows,
        notes=_counts(group),
    )
    shown = group.classes[:MOST_CLASSES]
    if len(group.classes) > 1:
        left = len(group.classes) - len(shown)
        yield Section(
            "",
            [f"Classes, largest loss first; {100 * group.confidence:g} % for all {len(group.classes)} together:"],
            ("class", "images", "base", "new", "new - base [these images]", "[images of this kind]"),
            [_class(one, names) for one in shown],
            notes=[f"... and {left:,} more, which --format json and csv hold."] if left else [],
        )
    samples = group.changed[:MOST_SAMPLES]
    if samples:
        left = len(group.changed) - len(samples)
        yield Section(
            "",
            ["Samples that changed, worst first:"],
            ("sample", "label", "predicted", "", "base", "new", "new - base [95 %]"),
            [_sample(one, names) for one in samples],
            left=4,
            notes=[f"... and {left:,} more, which --format json holds."] if left else [],
        )


def _how(group: GroupComparison) -> str:
    if group.how == "the same model":
        return "the same model: the difference is exactly 0"
    if group.how == "unpaired":
        return f"unpaired{f', as {group.why}' if group.why else ''}: the measurement errors of both runs add up"
    saved = group.variance_saved
    words = f"paired on the same {group.draws:,} noise draws each"
    if group.cut is not None:
        words += f" (the first; base has {group.cut[0]:,}, new {group.cut[1]:,}; all below is of those)"
    if saved is None:
        return words
    more = "saves more than 99%" if saved > 0.99 else f"saves {saved:.0%}" if saved >= 0 else f"costs {-saved:.0%}"
    return f"{words}, which {more} of the measurement's variance"


def _counts(group: GroupComparison) -> list[str]:
    side = "below" if group.higher_is_better else "above"
    lines = []
    if group.compared:
        each = f"of {group.compared:,}, each beyond its own 95 % interval (chance alone: up to 2.5 % either way)"
        lines.append(f"worse: {group.worse:,}, better: {group.better:,} {each}.")
    bounds, size = group.counts, group.images + group.not_finite + group.skipped
    if bounds.worse is not None and bounds.newly_flagged is not None:
        worse = f"{round(bounds.worse.lower * size):,} to {round(bounds.worse.upper * size):,} of {size:,}"
        flagged = f"{bounds.newly_flagged.lower:,.0f} to {bounds.newly_flagged.upper:,.0f}"
        lines.append(f"truly worse, however little: {worse}; truly newly flagged: {flagged} ({100 * group.confidence:.4g} %).")
    for which in ("newly flagged", "fixed"):
        kinds = {kind: group.flagged(which, kind) for kind in ("surely", "likely", "maybe", "no interval")}
        words = ", ".join(f"{number:,} {'by their values' if kind == 'no interval' else kind}" for kind, number in kinds.items() if number)
        lines.append(f"{which} ({side} {group.threshold:g}): {words or '0'}.")
    if group.not_finite:
        lines.append(
            f"{count(group.not_finite, 'sample')} left out: no finite value in one run or both. Gates count them at both ends of the range."
        )
    if group.skipped:
        lines.append(f"{count(group.skipped, 'sample')} left out: skipped by the new run. Gates count them at both ends of the range.")
    if group.sampling_only:
        lines.append(f"{group.key.estimator}: intervals cover its noise draws only, not the bias of the approximation.")
    return lines


def _row(name: str, found: Difference) -> tuple[str, ...]:
    return (
        name,
        f"{found.base:.4f}",
        f"{found.new:.4f}",
        numbers.change(found.value, _two(found.these)),
        numbers.change_interval(_two(found.population)),
    )


def _two(ends: Ends | None) -> tuple[float, float] | None:
    return None if ends is None else (ends.lower, ends.upper)


def _class(one: ClassChange, names: Names | None) -> tuple[str, ...]:
    return class_name(one.index, names, _LONGEST_NAME), f"{one.images:,}", *_row("", one.difference)[1:]


def _sample(one: SampleChange, names: Names | None) -> tuple[str, ...]:
    before, now = (class_name(index, names, _LONGEST_NAME) for index in (one.base_predicted, one.predicted))
    predicted = now if before == now else f"{before} -> {now}"
    flag = f"{one.flagged}, {'no interval' if one.sure == 'no interval' else one.sure}" if one.flagged else "worse"
    ends = None if one.lower is None or one.upper is None else (one.lower, one.upper)
    label = class_name(one.label, names, _LONGEST_NAME)
    return shortened(one.id, _LONGEST_ID), label, predicted, flag, f"{one.base:.4f}", f"{one.new:.4f}", numbers.change(one.difference, ends)
