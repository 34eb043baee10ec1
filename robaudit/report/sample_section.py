"""All results of an image: of several images side by side, and of one with intervals and notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from robaudit.errors import SpecError
from robaudit.quantities import CERTIFIED, LOG10_P_FAIL, Band
from robaudit.report import numbers
from robaudit.report.sections import Entry, Section, SectionRequest
from robaudit.report.tables import Tone
from robaudit.report.typed import PROSE, WORD, WRITTEN, Beside, Kind, TypedColumn, TypedTable
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

    def typed_tables(self, entry: Entry[Spectrum], request: SectionRequest) -> Sequence[TypedTable]:
        """Images in columns; or a table for each image named."""
        names = entry.run.class_names
        results = entry.record
        if request.id:
            return [_of_one(results, sample, names) for sample in results.samples]
        return [_images_in_columns(results, results.samples[: request.bottom or _FEW], names)]

    def lines(self, entry: Entry[Spectrum], request: SectionRequest) -> Iterator[Mapping[str, Any]]:
        """A line for each image, three columns for each result."""
        names = entry.run.class_names
        for sample in entry.record.samples:
            values: dict[str, float | None] = {}
            for line in entry.record.lines:
                row = sample.rows.get(line.key)
                values[str(line.key)] = None if row is None else row.value
                values[f"{line.key} lower"] = None if row is None else row.lower
                values[f"{line.key} upper"] = None if row is None else row.upper
            yield {
                "sample_id": sample.id,
                "label": sample.label,
                "label_name": known_name(sample.label, names),
                "predicted": sample.predicted,
                "predicted_name": known_name(sample.predicted, names),
                "correct": sample.correct,
                "margin": sample.margin,
                "difficulty": sample.difficulty,
                **values,
            }


class _Heading(str):
    """A heading of rows, in the column of their names."""


def _tone(value: str) -> Tone:
    return "strong" if isinstance(value, _Heading) else ""


_NAME = Kind(str, number=False, key=True, tone=_tone)


def _images_in_columns(
    results: Spectrum, samples: Sequence[SampleSpectrum], names: Names | None
) -> TypedTable:
    """A row for each result, and a column for each of these images."""
    columns = [TypedColumn("", _NAME, head="sample")]
    for place, sample in enumerate(samples):
        # two long ids may be shortened to the same text: the name tells the columns apart
        column = TypedColumn(
            f"image {place}", WRITTEN, head=shortened(printable(sample.id), _LONGEST)
        )
        columns.append(column)
    rows: list[Sequence[str]] = [
        ("label", *(class_name(sample.label, names, _CELL) for sample in samples)),
        ("predicted", *(class_name(sample.predicted, names, _CELL) for sample in samples)),
    ]
    if any(sample.margin is not None for sample in samples):
        margins = (
            numbers.NONE if sample.margin is None else f"{sample.margin:.3f}" for sample in samples
        )
        rows.append(("margin of the logits", *margins))
    lines = [line for line in results.lines if any(line.key in sample.rows for sample in samples)]
    rows += _by_band(
        lines,
        lambda line: [
            _text(sample.rows.get(line.key), line, numbers.estimate) for sample in samples
        ],
    )
    ranked = results.ranked_by
    order = "lowest" if ranked.quantity.higher_is_better else "highest"
    return TypedTable(
        "All results by image",
        tuple(columns),
        rows,
        lines=(
            f"{count(results.images, 'image')}; shown: {len(samples)}, the {order} {ranked.key} "
            "first",
        ),
        notes=(
            "~ no interval; <= an upper bound; >= a lower bound; > only known to be larger; "
            "abstains: nothing is certified.",
            "--id ID has one image with its intervals, --format csv all images.",
        ),
        beside=Beside.APART,
    )


def _of_one(results: Spectrum, sample: SampleSpectrum, names: Names | None) -> TypedTable:
    """A row for each result of an image, with its interval."""

    def texts(line: Line) -> Sequence[str]:
        row = sample.rows[line.key]
        flips_to = class_name(row.flips_to, names, _CELL)
        return (_text(row, line, numbers.with_interval), flips_to, row.note)

    about = [
        f"label {class_name(sample.label, names)}",
        f"predicted {class_name(sample.predicted, names)}",
    ]
    if sample.margin is not None:
        about.append(f"margin of the logits {sample.margin:.4g}")
    if sample.difficulty is not None:
        about.append(f"difficulty {sample.difficulty:.4g}")
    return TypedTable(
        f"Sample {printable(sample.id)}",
        (
            TypedColumn("", _NAME, head="result"),
            TypedColumn("", WRITTEN, head="value [95% interval]"),
            TypedColumn("", WORD, head="flips to"),
            TypedColumn("", PROSE, head="note"),
        ),
        list(_by_band([line for line in results.lines if line.key in sample.rows], texts)),
        lines=(", ".join(about),),
        beside=Beside.APART,
    )


def _by_band(
    lines: Iterable[Line], texts: Callable[[Line], Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    """A row for each result, after its name, and a heading above each band but the first."""
    band = Band.CLEAN
    for line in lines:
        values = texts(line)
        if line.band is not band:
            band = line.band
            yield (_Heading(HEADS[band]), *("" for _ in values))
        unit = ", log10 of p" if line.quantity.name == LOG10_P_FAIL.name else ""
        yield (f" {line.key}{unit}", *values)


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
    # a radius beyond the cap of its search
    if row.censored:
        return f"> {numbers.plain(row.value, low, high)}"
    # without a proof the estimator abstains; that does not make the image less robust
    if row.quantity == CERTIFIED.name and row.value <= 0.0:
        return "abstains"
    return text(row.value, row.lower, row.upper, low, high)
