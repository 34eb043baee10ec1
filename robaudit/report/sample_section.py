"""All results of an image: of several images side by side, and of one with intervals and notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from robaudit.errors import SpecError
from robaudit.quantities import CERTIFIED, LOG10_P_FAIL, Band
from robaudit.report import numbers
from robaudit.report.sections import Entry, Section, SectionRequest
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.settings import BOTTOM, ID
from robaudit.stats.spectrum import HEADS, Line, SampleSpectrum, Spectrum, spectrum
from robaudit.text import Names, class_name, count, known_name, printable, shortened

_FEW = 6  # images side by side, by default
# characters of a class, and of an id
_CELL = 9
_LONGEST = 27


class SampleSection(Section[Spectrum]):
    """All results of the least robust images side by side, from the average over noise to what is
    proven; or of the images named."""

    title = "All results by image"
    place = 90
    uses = frozenset({"id", "bottom"})

    def records(self, run: Run, request: SectionRequest) -> list[Spectrum]:
        """The images, together.

        Raises:
            SpecError: both ids and a number of images are given.
        """
        if request.id and request.bottom is not None:
            raise SpecError(
                BOTTOM,
                "counts the least robust images, and " + ID + " names images",
                "leave one of them out",
            )
        return [spectrum(run, request.bottom, request.id)]

    def tables(
        self, entries: Sequence[Entry[Spectrum]], request: SectionRequest
    ) -> Iterator[Table]:
        """Images in columns; or a table for each image named."""
        for entry in entries:
            names = entry.run.class_names
            results = entry.record
            if request.id:
                tables = [_of_one(results, sample, names) for sample in results.samples]
            else:
                tables = [_side_by_side(results, results.samples[: request.bottom or _FEW], names)]
            yield from (
                replace(table, heading=f"{entry.name}: {table.heading}")
                if len(entries) > 1
                else table
                for table in tables
            )

    def lines(self, entry: Entry[Spectrum], request: SectionRequest) -> Iterator[Mapping[str, Any]]:
        """A line for each image, three columns for each result."""
        names = entry.run.class_names
        for sample in entry.record.samples:
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
                    f"{line.key}{part}": None
                    if (row := sample.rows.get(line.key)) is None
                    else getattr(row, part.strip() or "value")
                    for line in entry.record.lines
                    for part in ("", " lower", " upper")
                },
            }


def _side_by_side(
    results: Spectrum, samples: Sequence[SampleSpectrum], names: Names | None
) -> Table:
    about = [
        cells(("label", *(class_name(sample.label, names, _CELL) for sample in samples))),
        cells(("predicted", *(class_name(sample.predicted, names, _CELL) for sample in samples))),
    ]
    if any(sample.margin is not None for sample in samples):
        margins = (
            numbers.NONE if sample.margin is None else f"{sample.margin:.3f}" for sample in samples
        )
        about.append(cells(("margin of the logits", *margins)))
    lines = [line for line in results.lines if any(line.key in sample.rows for sample in samples)]
    rows = _by_band(
        lines,
        lambda line: [
            _text(sample.rows.get(line.key), line, numbers.estimate) for sample in samples
        ],
    )
    ids = (shortened(printable(sample.id), _LONGEST) for sample in samples)
    ranked = results.ranked_by
    order = "lowest" if ranked.quantity.higher_is_better else "highest"
    return Table(
        "All results by image",
        (Column("sample"), *(Column(text, number=True) for text in ids)),
        (*about, *rows),
        lines=(
            f"{count(results.images, 'image')}; shown: {len(samples)}, the {order} {ranked.key} "
            "first",
        ),
        notes=(
            "~ no interval; <= an upper bound; >= a lower bound; > only known to be larger; "
            "abstains: nothing is certified.",
            "--id ID has one image with its intervals, --format csv all images.",
        ),
    )


def _of_one(results: Spectrum, sample: SampleSpectrum, names: Names | None) -> Table:
    def texts(line: Line) -> Sequence[str]:
        row = sample.rows[line.key]
        return (
            _text(row, line, numbers.with_interval),
            class_name(row.flips_to, names, _CELL),
            row.note,
        )

    about = [
        f"label {class_name(sample.label, names)}",
        f"predicted {class_name(sample.predicted, names)}",
    ]
    about += [] if sample.margin is None else [f"margin of the logits {sample.margin:.4g}"]
    about += [] if sample.difficulty is None else [f"difficulty {sample.difficulty:.4g}"]
    heads = (
        Column("result"),
        Column("value [95% interval]", number=True),
        Column("flips to"),
        Column("note", wrap=True),
    )
    rows = _by_band([line for line in results.lines if line.key in sample.rows], texts)
    return Table(f"Sample {printable(sample.id)}", heads, tuple(rows), lines=(", ".join(about),))


def _by_band(
    lines: Iterable[Line], texts: Callable[[Line], Sequence[str]]
) -> Iterator[tuple[Cell, ...]]:
    """A row for each result, after its name, and a heading above each band but the first."""
    band = Band.CLEAN
    for line in lines:
        after = texts(line)
        if line.band is not band:
            band = line.band
            yield cells((HEADS[band], *("" for _ in after)), "strong")
        yield cells(
            (
                f" {line.key}{', log10 of p' if line.quantity.name == LOG10_P_FAIL.name else ''}",
                *after,
            )
        )


def _text(
    row: Row | None,
    line: Line,
    text: Callable[[float, float | None, float | None, float, float], str],
) -> str:
    """A value, written by a function of :mod:`robaudit.report.numbers`; a bound where it is one."""
    low = line.quantity.low
    high = line.quantity.high
    if row is None or not math.isfinite(row.value):
        return numbers.NONE
    if row.censored:
        return f"> {numbers.plain(row.value, low, high)}"
    if row.quantity == CERTIFIED.name and row.value <= 0.0:
        return "abstains"
    return text(row.value, row.lower, row.upper, low, high)
