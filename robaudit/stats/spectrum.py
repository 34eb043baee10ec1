"""All results of each image, from the average over noise to certificates."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from robaudit.errors import NothingLeftError, RunError, did_you_mean
from robaudit.names import ResultName
from robaudit.quantities import DIFFICULTY, Band, IntervalKind, Quantity
from robaudit.records import Inline, Record, published
from robaudit.runs.groups import GroupKey, by_sample, quantity_of
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.runs.table import Columns

HEADS: Mapping[Band, str] = {
    Band.CLEAN: "clean image",
    Band.AVERAGE: "average under noise",
    Band.BETWEEN: "losses, average to worst",
    Band.TOLERANCE: "noise tolerance",
    Band.OTHER: "other results",
    Band.FOUND: "flips found: radius at most",
    Band.EXACT: "exact",
    Band.CERTIFIED: "certified: radius at least",
    Band.SMOOTHED: "of the smoothed classifiers",
}
"""The headings of the bands in a table of all results of an image."""
# The bands whose results may rank the images, first choice first: see :func:`_worth`.
_RANKING = (
    Band.EXACT,
    Band.FOUND,
    Band.AVERAGE,
    Band.TOLERANCE,
    Band.CERTIFIED,
    Band.BETWEEN,
    Band.SMOOTHED,
    Band.CLEAN,
    Band.OTHER,
)


@dataclass(frozen=True, slots=True)
class Line(Record):
    """A result of a run, and its band."""

    key: Annotated[GroupKey, Inline()]
    band: Annotated[Band, Field(exclude=True)]
    quantity: Annotated[Quantity, Field(exclude=True)]


@dataclass(frozen=True, slots=True)
class LineRow(Record):
    """The row of an image for one of the lines of a spectrum."""

    key: Annotated[GroupKey, Inline()]
    row: Annotated[
        Row,
        Inline(
            "value",
            "lower",
            "upper",
            interval="interval.text",
            flips_to="flips_to",
            certified_class="certified_class",
            note="note",
        ),
    ]


@dataclass(frozen=True, slots=True)
class SampleSpectrum(Record):
    """An image and all of its results.

    Attributes:
        id, label, predicted, correct: id and classes of the image, and whether it is classified
            correctly.
        margin, difficulty: margin and difficulty from the clean logits; None where unknown.
        rows: the rows of the image by result.
    """

    id: str
    label: int | None
    predicted: int
    correct: bool | None
    margin: float | None
    difficulty: float | None
    rows: Annotated[Mapping[GroupKey, Row], Field(exclude=True)]

    @property
    @published(after="difficulty")
    def results(self) -> tuple[LineRow, ...]:
        """The rows with the results that they belong to."""
        return tuple(LineRow(key, row) for key, row in self.rows.items())

    @staticmethod
    def from_rows(rows: Sequence[Row]) -> SampleSpectrum:
        """The image of these rows, at least one."""
        first = rows[0]
        margin, difficulty = _clean_scores(rows)
        return SampleSpectrum(
            id=first.sample_id,
            label=first.label,
            predicted=first.predicted,
            correct=first.correct,
            margin=margin,
            difficulty=difficulty,
            rows={GroupKey.from_row(row): row for row in rows},
        )


def _clean_scores(rows: Sequence[Row]) -> tuple[float | None, float | None]:
    """The margin and the difficulty of the clean image, from any of its rows."""
    # Of several results of the estimator `difficulty`, the first counts: others may be about
    # another class. Its rows have the difficulty as their value.
    own = next(
        (row for row in rows if row.quantity == DIFFICULTY.name and math.isfinite(row.value)), None
    )
    cleans = [
        row.clean
        for row in rows
        if row.clean is not None and (row is own or row.clean.difficulty is not None)
    ]
    margins = [clean.margin for clean in cleans if clean.margin is not None]
    difficulties = [clean.difficulty for clean in cleans if clean.difficulty is not None]
    if own is not None:
        difficulties.append(own.value)
    return margins[0] if margins else None, difficulties[0] if difficulties else None


@dataclass(frozen=True, slots=True)
class Spectrum(Record):
    """The results of a run side by side.

    Attributes:
        lines: the results, from the clean image to proofs.
        samples: the images that are shown, the least robust first.
        images: number of images in the run.
        ranked_by: the result that ranks the images.
    """

    lines: Annotated[tuple[Line, ...], Field(exclude=True)]
    images: int
    ranked_by: Line
    samples: tuple[SampleSpectrum, ...]


def spectrum(run: Run, most: int | None = None, ids: Sequence[str] = ()) -> Spectrum:
    """The results of a run by image.

    Args:
        run: a finished run.
        most: the most images to show; None: all.
        ids: show these images instead, in this order.

    Raises:
        RunError: the run has no such image.
        NothingLeftError: it has no results.
    """
    lines = tuple(_lines(run))
    if not lines:
        raise NothingLeftError(str(run.path), "has no results", "audit at least one sample")
    ranking = min(lines, key=lambda line: _worth(line, run.table[line.key].finite))
    order = _ranked(run, ranking)
    chosen = _known(run, ids, order) if ids else order[:most]
    wanted = frozenset(chosen)
    by_id = {
        rows[0].sample_id: SampleSpectrum.from_rows(rows)
        for rows in by_sample(run.rows)
        if rows[0].sample_id in wanted
    }
    samples = tuple(by_id[sample_id] for sample_id in chosen)
    return Spectrum(lines, len(order), ranking, samples)


def _lines(run: Run) -> Iterator[Line]:
    """The results by band; within a band in the run's order, the levels of a noise from weak to
    strong."""
    quantities = {key: quantity_of(key.quantity, run.quantities) for key in run.table}
    bands = {key: _band(columns, quantities[key].band) for key, columns in run.table.items()}
    noises = list(dict.fromkeys(key.noise for key in bands))
    estimators = list(dict.fromkeys(key.estimator for key in bands))

    def order(key: GroupKey) -> tuple[float, ...]:
        noise = noises.index(key.noise)
        estimator = estimators.index(key.estimator)
        return bands[key], noise, estimator, key.at.strength

    for key in sorted(bands, key=order):
        yield Line(key, bands[key], quantities[key])


def _band(columns: Columns, usual: Band) -> Band:
    """The band of a result; ``usual`` is the band of its quantity."""
    # An exact search may have rows without a finite radius; they stay with the others.
    if usual is Band.FOUND and columns.of_kind(IntervalKind.EXACT).any():
        return Band.EXACT
    # Radii at a noise level are about the network smoothed by that noise.
    if usual in (Band.FOUND, Band.CERTIFIED) and columns.key.at.level is not None:
        return Band.SMOOTHED
    return usual


def _worth(line: Line, finite: Columns) -> tuple[int, bool, float, float]:
    """The sort key of the results that may rank the images; the smallest key ranks them.

    Results come first the closer they are to the distance of the nearest flip: an exact l2 radius,
    then the radius of the search that found the nearest flips, then the probability at the
    strongest level, a tolerance, a certificate, anything else.
    """
    norm = ResultName.parse(line.key.estimator).norm
    is_other_norm = norm is None or norm.number != 2.0
    # Flips that a search found bound the radius from above, so a smaller mean is a closer bound.
    distance = 0.0
    if line.band is Band.FOUND and len(finite):
        distance = float(finite.values.mean())
    return _RANKING.index(line.band), is_other_norm, -line.key.at.strength, distance


def _ranked(run: Run, ranking: Line) -> list[str]:
    """All ids, the least robust by the ranking result first; images without a value last."""
    sign = 1.0 if ranking.quantity.higher_is_better else -1.0
    table = run.table
    values = np.full(len(table.ids), np.inf)
    known = table[ranking.key].finite
    values[known.place] = sign * known.values
    return [table.ids[place] for place in values.argsort(kind="stable").tolist()]


def _known(run: Run, ids: Sequence[str], present: Sequence[str]) -> list[str]:
    """The distinct ids in their order; refuses an id that is not among the present ones."""
    known = set(present)
    for sample_id in ids:
        if sample_id not in known:
            # A comparison with each of 10^6 ids would take 20 seconds.
            candidates = heapq.nsmallest(1000, known)
            raise RunError(
                str(run.path),
                f"has no sample {sample_id!r}",
                did_you_mean(sample_id, candidates),
            )
    return list(dict.fromkeys(ids))
