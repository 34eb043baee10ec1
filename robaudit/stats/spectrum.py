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

HEADS = {
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
    """The row of an image on a line."""

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
        id, label, predicted, correct: of the image.
        margin, difficulty: of the clean logits; None where unknown.
        rows: by line.
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
        """The rows."""
        return tuple(LineRow(key, row) for key, row in self.rows.items())

    @staticmethod
    def of(rows: Sequence[Row]) -> SampleSpectrum:
        """The image of these rows, at least one."""
        first = rows[0]
        own = next(
            (row for row in rows if row.quantity == DIFFICULTY.name and math.isfinite(row.value)),
            None,
        )
        about = [
            row.clean
            for row in rows
            if row.clean is not None and (row is own or row.clean.difficulty is not None)
        ]
        margin = next((clean.margin for clean in about if clean.margin is not None), None)
        difficulty = next(
            (clean.difficulty for clean in about if clean.difficulty is not None),
            None if own is None else own.value,
        )
        by_key = {GroupKey.of(row): row for row in rows}
        return SampleSpectrum(
            first.sample_id, first.label, first.predicted, first.correct, margin, difficulty, by_key
        )


@dataclass(frozen=True, slots=True)
class Spectrum(Record):
    """The results of a run side by side.

    Attributes:
        lines: the results, from the clean image to proofs.
        samples: the images that are shown, the least robust first.
        images: number of images in the run.
        ranked_by: the result that ranks them.
    """

    lines: Annotated[tuple[Line, ...], Field(exclude=True)]
    images: int
    ranked_by: Line
    samples: tuple[SampleSpectrum, ...]


def spectrum(run: Run, most: int | None = None, ids: Sequence[str] = ()) -> Spectrum:
    """The results of a run by image.

    Args:
        run: a finished run.
        most: how many images are shown; None: all.
        ids: these images instead, in this order.

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
        rows[0].sample_id: SampleSpectrum.of(rows)
        for rows in by_sample(run.rows)
        if rows[0].sample_id in wanted
    }
    return Spectrum(lines, len(order), ranking, tuple(by_id[sample_id] for sample_id in chosen))


def _lines(run: Run) -> Iterator[Line]:
    """The results in order: by band, then in the run's order, the levels of a noise from weak to
    strong."""
    quantities = {key: quantity_of(key.quantity, run.quantities) for key in run.table}
    bands = {key: _band(columns, quantities[key].band) for key, columns in run.table.items()}
    noises = list(dict.fromkeys(key.noise for key in bands))
    estimators = list(dict.fromkeys(key.estimator for key in bands))

    def order(key: GroupKey) -> tuple[float, ...]:
        return bands[key], noises.index(key.noise), estimators.index(key.estimator), key.at.strength

    return (Line(key, bands[key], quantities[key]) for key in sorted(bands, key=order))


def _band(columns: Columns, usual: Band) -> Band:
    """The band of a result; ``usual``: of its quantity."""
    if (
        usual is Band.FOUND and columns.of_kind(IntervalKind.EXACT).any()
    ):  # infinite radii go with the finite ones
        return Band.EXACT
    if usual in (Band.FOUND, Band.CERTIFIED) and columns.key.at.level is not None:
        return Band.SMOOTHED
    return usual


def _worth(line: Line, finite: Columns) -> tuple[int, bool, float, float]:
    """The sort key of results that may rank the images: the closest to the distance of the nearest
    flip comes first.

    An exact l2 radius, else the radius of the search that found the nearest flips, else the
    probability at the strongest level, a tolerance, a certificate, anything.
    """
    norm = ResultName.parse(line.key.estimator).norm
    other_norm = norm is None or norm.number != 2.0
    distance = float(finite.values.mean()) if line.band is Band.FOUND and len(finite) else 0.0
    return _RANKING.index(line.band), other_norm, -line.key.at.strength, distance


def _ranked(run: Run, ranking: Line) -> list[str]:
    """All ids by the value of the ranking result; images without a value last."""
    sign = 1.0 if ranking.quantity.higher_is_better else -1.0
    frame = run.table
    values = np.full(len(frame.ids), np.inf)
    known = frame[ranking.key].finite
    values[known.place] = sign * known.values
    return [frame.ids[place] for place in values.argsort(kind="stable").tolist()]


def _known(run: Run, ids: Sequence[str], order: Sequence[str]) -> list[str]:
    known = set(order)
    for sample_id in ids:
        if sample_id not in known:
            raise RunError(
                str(run.path),
                f"has no sample {sample_id!r}",
                did_you_mean(sample_id, heapq.nsmallest(1000, known)),
            )
    return list(dict.fromkeys(ids))
