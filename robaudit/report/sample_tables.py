"""All results of an image: of several images side by side, and of one with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from robaudit.errors import SpecError
from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.tables import WIDE, Cell, Column, Table, Terminal, cells, rendered
from robaudit.rows import Row
from robaudit.stats.spectrum import HEADS, Band, Line, Sample, Spectrum, spectrum
from robaudit.store.run import Run
from robaudit.text import Names, class_name, count, known_name, printable, shortened

ACROSS = 12
"""The most images that stand side by side."""
_CELL = 9  # columns of an image
_LINES = 3  # of its id
_NOTHING = "abstains"
_MARGIN = "margin of the logits"


class SampleSection(Section[Spectrum]):
    """All results of the least robust images side by side, from the average over noise to what is proven; or of the images named."""

    uses = frozenset({"id", "bottom"})

    def records(self, run: Run, ask: Ask) -> list[Spectrum]:
        """The images, together.

        Raises:
            SpecError: images are named and counted.
        """
        if ask.id and ask.bottom is not None:
            raise SpecError("--bottom", "counts the least robust images, and --id names images", "leave one of them out")
        return [spectrum(run, ask.bottom, ask.id)]

    def table(self, one: Found[Spectrum], ask: Ask) -> RenderableType:
        """Images in columns; or a table for each image named."""
        return (sample_tables if ask.id else SpectrumTable)(one.record, one.run.class_names)

    def sheet(self, one: Found[Spectrum], ask: Ask) -> Sheet:
        """A line for each image, three columns for each result."""
        return spectrum_sheet(one.record, one.run.class_names)

    def document(self, one: Found[Spectrum], ask: Ask) -> dict[str, Any]:
        """All results of the images."""
        return one.record.document(one.run.class_names)


@dataclass(frozen=True, slots=True)
class SpectrumTable:
    """The images in columns, as many as fit, their results in lines from the average to what is proven."""

    found: Spectrum
    names: Names | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < WIDE
        shown = {line.band for line in self.found.lines} - {Band.CLEAN}
        heads = (*(HEADS[band] for band in shown), *(f" {line.key}" for line in self.found.lines), _MARGIN)
        gap = 1 if narrow else 2  # between columns
        room = options.max_width - max(map(len, heads))
        few = self.found.samples[: max(1, min(ACROSS, room // (gap + _CELL)))]
        if few:
            yield from rendered(_side_by_side(self.found, few, self.names), narrow=narrow)


def sample_tables(found: Spectrum, names: Names | None = None) -> Terminal:
    """A table for each image, with intervals."""
    return Terminal(lambda _: [_of_one(found, sample, names) for sample in found.samples])


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
        lines=(f"{count(found.images, 'image')}; shown: {len(samples)}, the {order} {ranked.key} first",),
        notes=(
            "~ no interval; <= an upper bound; >= a lower bound; > only known to be larger; abstains: nothing is certified.",
            "--id ID has one image with its intervals, --format csv all images.",
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


def spectrum_sheet(found: Spectrum, names: Names | None = None) -> Sheet:
    """A line for each image, three columns for each result."""
    heads = [f"{line.key}{part}" for line in found.lines for part in ("", " lower", " upper")]
    about = ("sample_id", "label", "label_name", "predicted", "predicted_name", "correct", "margin", "difficulty")
    lines = (
        [
            one.id,
            one.label,
            known_name(one.label, names),
            one.predicted,
            known_name(one.predicted, names),
            one.correct,
            one.margin,
            one.difficulty,
            *(part for line in found.lines for part in _numbers(one.rows.get(line.key))),
        ]
        for one in found.samples
    )
    return Sheet((*about, *heads), lines)


def _numbers(row: Row | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if row is None else (row.value, row.lower, row.upper)
