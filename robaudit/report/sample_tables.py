"""All results of an image: of several images side by side, and of one with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from robaudit.errors import SpecError
from robaudit.quantities import CERTIFIED, LOG10_P_FAIL
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.rows import Row
from robaudit.stats.spectrum import HEADS, Band, Line, SampleSpectrum, Spectrum, spectrum
from robaudit.store.run import Run
from robaudit.text import Names, class_name, count, known_name, printable, shortened

ACROSS = 12
"""The most images that stand side by side."""
_FEW = 6  # unless asked for more
_CELL, _LONGEST = 9, 27  # characters of a class, and of an id
_NOTHING = "abstains"
_MARGIN = "margin of the logits"


class SampleSection(Section[Spectrum]):
    """All results of the least robust images side by side, from the average over noise to what is proven; or of the images named."""

    title = "All results by image"
    uses = frozenset({"id", "bottom"})
    on_page = False

    def records(self, run: Run, ask: Ask) -> list[Spectrum]:
        """The images, together.

        Raises:
            SpecError: images are named and counted.
        """
        if ask.id and ask.bottom is not None:
            raise SpecError("--bottom", "counts the least robust images, and --id names images", "leave one of them out")
        return [spectrum(run, ask.bottom, ask.id)]

    def tables(self, found: Sequence[Found[Spectrum]], ask: Ask) -> Iterator[Table]:
        """Images in columns; or a table for each image named."""
        for one in found:
            names, most = one.run.class_names, min(ACROSS, ask.bottom or _FEW)
            tables = (
                [_of_one(one.record, sample, names) for sample in one.record.samples]
                if ask.id
                else [_side_by_side(one.record, one.record.samples[:most], names)]
            )
            yield from (replace(table, heading=f"{one.name}: {table.heading}") if len(found) > 1 else table for table in tables)

    def lines(self, one: Found[Spectrum], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each image, three columns for each result."""
        names = one.run.class_names
        for sample in one.record.samples:
            yield {
                "sample_id": sample.id,
                "label": sample.label,
                "label_name": known_name(sample.label, names),
                "predicted": sample.predicted,
                "predicted_name": known_name(sample.predicted, names),
                "correct": sample.correct,
                "margin": sample.margin,
                "difficulty": sample.difficulty,
                **{
                    f"{line.key}{part}": None if (row := sample.rows.get(line.key)) is None else getattr(row, part.strip() or "value")
                    for line in one.record.lines
                    for part in ("", " lower", " upper")
                },
            }


def _side_by_side(found: Spectrum, samples: Sequence[SampleSpectrum], names: Names | None) -> Table:
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
        rows.append(cells((_name(line), *(short_text(sample.rows.get(line.key), line) for sample in samples))))
    ids = (shortened(printable(sample.id), _LONGEST) for sample in samples)
    heads = (Column("sample"), *(Column(text, number=True) for text in ids))
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


def _name(line: Line) -> str:
    """The result, and its scale where that is not plain."""
    return f" {line.key}{', log10 of p' if line.quantity.name == LOG10_P_FAIL.name else ''}"


def _of_one(found: Spectrum, sample: SampleSpectrum, names: Names | None) -> Table:
    rows, band = [], Band.CLEAN
    for line in found.lines:
        row = sample.rows.get(line.key)
        if row is None:
            continue
        if line.band != band:
            rows.append(cells((HEADS[line.band], "", "", ""), "strong"))
        band = line.band
        texts = (_name(line), value_text(row, line), class_name(row.flips_to, names, _CELL), row.note)
        rows.append(cells(texts))
    about = [f"label {class_name(sample.label, names)}", f"predicted {class_name(sample.predicted, names)}"]
    about += [] if sample.margin is None else [f"margin of the logits {sample.margin:.4g}"]
    about += [] if sample.difficulty is None else [f"difficulty {sample.difficulty:.4g}"]
    heads = (Column("result"), Column("value [95% interval]", number=True), Column("flips to"), Column("note", wrap=True))
    return Table(f"Sample {printable(sample.id)}", heads, tuple(rows), lines=(", ".join(about),))


def value_text(row: Row, line: Line) -> str:
    """A value with its interval: a bound where it is one."""
    low, high = line.quantity.low, line.quantity.high
    if not math.isfinite(row.value):
        return numbers.NONE
    if row.censored:
        return f"> {numbers.plain(row.value, low, high)}"
    if row.quantity == CERTIFIED.name and row.value <= 0.0:
        return _NOTHING
    return numbers.with_interval(row.value, row.lower, row.upper, low, high)


def short_text(row: Row | None, line: Line) -> str:
    """The same in eight letters: three digits, or as many as a probability near 1 needs; the end of a range as a bound."""
    if row is None or not math.isfinite(row.value):
        return numbers.NONE
    if row.quantity == CERTIFIED.name and row.value <= 0.0 and not row.censored:
        return _NOTHING
    mark, value = _bound(row, line)
    text = numbers.compact(value, {"<=": 1, ">=": -1}.get(mark, 0))
    said = {Band.FOUND: "<=", Band.CERTIFIED: ">="}.get(line.band)  # by the head of the band
    return text if mark == said else mark + text if mark in ("", "~") else f"{mark} {text}"


def _bound(row: Row, line: Line) -> tuple[str, float]:
    """What is known of a value, and the number that says it."""
    lower, upper = row.lower, row.upper
    if row.censored:
        return ">", row.value
    if lower is None and upper is None:
        return "~", row.value
    if upper is None or math.isinf(upper) or (lower is not None and lower < row.value >= line.quantity.high):
        return ">=", row.value if lower is None else lower
    if (
        lower is None
        or math.isinf(lower)
        or (lower <= line.quantity.low and (row.value <= line.quantity.low < upper or row.value == upper))
    ):
        return ("<=", upper) if lower != upper else ("", row.value)
    return "", row.value
