"""All results of the images of a run side by side, and their consistency, for terminals and as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult

from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.tables import WIDE, Cell, Column, Table, Terminal, cells, rendered
from robaudit.rows import Row
from robaudit.stats.consistency import CONFIDENCE, Consistency
from robaudit.stats.intervals import TAIL
from robaudit.stats.relations import Verdict
from robaudit.stats.spectrum import HEADS, Band, Line, Sample, Spectrum
from robaudit.store.serialise import table_csv
from robaudit.text import Names, class_name, count, known_name, printable, shortened

ACROSS = 12
"""The most images that stand side by side."""
MOST_CONTRADICTIONS = 10
_CELL = 9  # columns of an image
_LINES = 3  # of its id
_NOTHING = "abstains"
_MARGIN = "margin of the logits"
_MEANINGS = {
    Verdict.VIOLATION: "one of the two is wrong: a bug in an estimator",
    Verdict.DECLARED: "what the spec declares of the network (lipschitz, or linear: true) is false",
    Verdict.MISSED: "a search missed what another result found; no theorem says that it must find it",
    Verdict.APPROXIMATION: "an approximation is off by more than its interval says",
}

_TOLD = {
    Verdict.DECLARED: "by a false declaration",
    Verdict.MISSED: "missed by a search",
    Verdict.APPROXIMATION: "beyond an approximation's interval",
}

_BLAME = {
    Verdict.VIOLATION: "bug in an estimator",
    Verdict.DECLARED: "what the spec declares of the network (lipschitz, or linear: true) is false",
}


@dataclass(frozen=True, slots=True)
class SpectrumTable:
    """The images in columns, as many as fit, their results in lines from the average to what is proven; then the checks."""

    found: Spectrum
    names: Names | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < WIDE
        shown = {line.band for line in self.found.lines} - {Band.CLEAN}
        heads = (*(HEADS[band] for band in shown), *(f" {line.key}" for line in self.found.lines), _MARGIN)
        gap = 1 if narrow else 2  # between columns
        room = options.max_width - max(map(len, heads))
        few = self.found.samples[: max(1, min(ACROSS, room // (gap + _CELL)))]
        for table in (*([_side_by_side(self.found, few, self.names)] if few else []), *checks(self.found.consistency)):
            yield from rendered(table, narrow=narrow)


def sample_table(found: Spectrum, names: Names | None = None) -> Terminal:
    """A table for each image, with intervals; then the checks."""
    every = [_of_one(found, sample, names) for sample in found.samples]
    return Terminal(lambda _: [*every, *checks(found.consistency)])


def _side_by_side(found: Spectrum, samples: Sequence[Sample], names: Names | None) -> Table:
    lines = [line for line in found.lines if any(line.key in sample.rows for sample in samples)]
    rows: list[tuple[Cell, ...]] = [
        cells(("label", *(class_name(sample.label, names, _CELL) for sample in samples))),
        cells(("predicted", *(class_name(sample.predicted, names, _CELL) for sample in samples))),
    ]
    if any(sample.margin is not None for sample in samples):
        rows.append(cells((_MARGIN, *(numbers.NONE if one.margin is None else f"{one.margin:.3f}" for one in samples))))
    band: Band | None = None
    for line in lines:
        if line.band != band and line.band is not Band.CLEAN:
            rows.append(cells((HEADS[line.band], *("" for _ in samples)), "strong"))
        band = line.band
        rows.append(cells((f" {line.key}", *(short_text(sample.rows.get(line.key), line) for sample in samples))))
    ids = (shortened(printable(sample.id), _LINES * _CELL) for sample in samples)
    heads = (Column("sample"), *(Column(text, number=True, wrap=True) for text in ids))
    ranked = found.ranked_by
    order = "lowest" if ranked.quantity.higher_is_better else "highest"
    return Table(
        "All results by image",
        heads,
        tuple(rows),
        lines=(
            f"{count(found.images, 'image')}; shown: {len(samples)}, the {order} {ranked.key} first, and any with violations before them",
        ),
        notes=(
            "~ no interval; <= an upper bound; >= a lower bound; > only known to be larger; abstains: nothing is certified.",
            "--sample ID has one image with its intervals, --format csv all images.",
        ),
    )


def _of_one(found: Spectrum, sample: Sample, names: Names | None) -> Table:
    rows, band = [], Band.CLEAN
    for line in found.lines:
        row = sample.rows.get(line.key)
        if row is None:
            continue
        if line.band != band:
            rows.append(cells((HEADS[line.band], "", "", ""), "strong"))
        band = line.band
        texts = (f" {line.key}", value_text(row, line, interval=True), class_name(row.flips_to, names, _CELL), row.note)
        rows.append(cells(texts))
    about = [f"label {class_name(sample.label, names)}", f"predicted {class_name(sample.predicted, names)}"]
    about += [] if sample.margin is None else [f"margin of the logits {sample.margin:.4g}"]
    about += [] if sample.difficulty is None else [f"difficulty {sample.difficulty:.4g}"]
    heads = (Column("result"), Column("value [95% interval]", number=True), Column("flips to"), Column("note", wrap=True))
    return Table(f"Sample {printable(sample.id)}", heads, tuple(rows), lines=(", ".join(about),))


def value_text(row: Row | None, line: Line, *, interval: bool = False) -> str:
    """A value as a cell says it: a bound where it is one."""
    if row is None or not math.isfinite(row.value):
        return numbers.NONE
    low, high = line.quantity.low, line.quantity.high
    if row.censored:
        return f"> {numbers.plain(row.value, low, high)}"
    if row.quantity == CERTIFIED.name and row.value <= 0.0:
        return _NOTHING
    if interval:
        return numbers.with_interval(row.value, row.lower, row.upper, low, high)
    return numbers.estimate(row.value, row.lower, row.upper, low, high)


def short_text(row: Row | None, line: Line) -> str:
    """The same in eight letters: three digits, or as many as a probability near 1 needs."""
    text = value_text(row, line)
    if row is None or text in (numbers.NONE, _NOTHING):
        return text
    mark = next((mark for mark in ("<=", ">=", "~", "> ") if text.startswith(mark)), "")
    if not mark and not text.lstrip("-").startswith(tuple("0123456789")):
        return text  # "<1"
    bound = {"<=": row.upper, ">=": row.lower}.get(mark)
    number = numbers.compact(row.value if bound is None else bound, {"<=": 1, ">=": -1}.get(mark, 0))
    said = {Band.FOUND: "<=", Band.CERTIFIED: ">="}.get(line.band)  # by the head of the band
    return number if mark == said else mark.strip() + number


def checks(consistency: Consistency) -> Iterator[Table]:
    """What was compared, and what is inconsistent."""
    compared = [one for one in consistency.checked if one.comparisons]
    rows = [
        (
            *cells((one.relation.name, f"{one.comparisons:,}", f"{one.images:,}")),
            Cell(f"{one.contradictions:,}", tone="bad" if one.contradictions and one.relation.verdict is Verdict.VIOLATION else ""),
            *cells((one.relation.says,)),
        )
        for one in compared
    ]
    heads = (
        Column("relation"),
        *(Column(head, number=True) for head in ("compared", "images", "contradicted")),
        Column("meaning", wrap=True),
    )
    if not compared:
        yield Table("Consistency of the results", lines=("No two results of this run bound the same number.",))
        return
    total = sum(one.comparisons for one in compared)
    notes = []
    if consistency.tail < TAIL:  # else none of them is about anything random
        notes.append(
            f"Intervals hold simultaneously for all comparisons with {100 * CONFIDENCE:g} % confidence: "
            f"error probability of each end {consistency.tail:.2g}."
        )
    if none := [one.relation.name for one in consistency.checked if not one.comparisons]:
        notes.append(f"Nothing to compare: {', '.join(none)}.")
    found = [count(len(consistency.violations), "violation")]
    found += [f"{len(some):,} {_TOLD[kind]}" for kind in _TOLD if (some := consistency.of(kind))]
    verdict = f"{count(total, 'comparison')} on {count(consistency.images, 'image')}, {', '.join(found)}."
    conclusion = Cell(verdict, tone="bad" if consistency.found else "strong")
    yield Table("Consistency of the results", heads, tuple(rows), conclusions=(conclusion,), notes=tuple(notes))
    for kind in Verdict:
        if some := consistency.of(kind):
            summary = [
                f"{one.name}: {count(len(one.contradictions), 'comparison')} on {count(one.images, 'image')}"
                for one in consistency.blamed(kind)
            ]
            listed = [f"  {one.text} ({one.relation.name})" for one in some[:MOST_CONTRADICTIONS]]
            rest = len(some) - len(listed)
            more = (f"... and {rest:,} more: --format json has all.",) if rest else ()
            heading = f"{kind.value.capitalize()}: {_MEANINGS[kind]}"
            yield Table(heading, lines=(*summary, *listed), notes=more)


def blame_lines(consistency: Consistency) -> list[str]:
    """A line for each result that is accused of violations, or hangs on a false declaration, with the first of them."""
    lines = []
    for kind, what in _BLAME.items():
        for one in consistency.blamed(kind):
            counts = f"{count(len(one.contradictions), 'violation')} on {count(one.images, 'image')}"
            lines.append(f"{what}: {one.name}: {counts}; first: sample {one.contradictions[0].text}")
    return lines


def spectrum_csv(found: Spectrum, names: Names | None = None) -> str:
    """A line for each image, three columns for each result, and how many violations the image is part of."""
    violations: dict[str, int] = {}
    for one in found.consistency.violations:
        violations[one.sample_id] = violations.get(one.sample_id, 0) + 1
    heads = [f"{line.key}{part}" for line in found.lines for part in ("", " lower", " upper")]
    return table_csv(
        ["sample_id", "label", "label_name", "predicted", "predicted_name", "correct", "margin", "difficulty", "violations", *heads],
        (
            [
                one.id,
                one.label,
                known_name(one.label, names),
                one.predicted,
                known_name(one.predicted, names),
                one.correct,
                one.margin,
                one.difficulty,
                violations.get(one.id, 0),
                *(part for line in found.lines for part in _numbers(one.rows.get(line.key))),
            ]
            for one in found.samples
        ),
    )


def _numbers(row: Row | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if row is None else (row.value, row.lower, row.upper)
