"""What do the summaries need of many rows of one group: a few numbers each, not the rows?"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from robaudit.quantities import IntervalKind
from robaudit.rows import Row

Floats = NDArray[np.float64]
_MOST_CODES = 4096  # different numbers


class Column:
    """Numbers in order: 2 bytes each as long as they are few different ones, as shares of some thousand votes are, else 8."""

    def __init__(self) -> None:
        self._codes: dict[float, int] = {}
        self._places = array("H")
        self._all: array[float] | None = None

    def __len__(self) -> int:
        return len(self._places if self._all is None else self._all)

    def append(self, value: float) -> None:
        """Add one; NaN as :data:`math.nan`."""
        if self._all is None:
            self._places.append(self._codes.setdefault(value, len(self._codes)))
            if len(self._codes) > _MOST_CODES:
                self._all = array("d", self.numbers().tobytes())
                self._codes, self._places = {}, array("H")
        else:
            self._all.append(value)

    @property
    def alike(self) -> bool:
        """Whether all are the same number."""
        return self._all is None and len(self._codes) <= 1

    def numbers(self) -> Floats:
        """All of them; a view where they are stored as they are."""
        if self._all is not None:
            return np.frombuffer(self._all, dtype=np.float64)
        return np.array(list(self._codes), dtype=np.float64)[np.frombuffer(self._places, dtype=np.uint16)]


class Columns:
    """The numbers of rows of one estimator and noise level, at most 48 bytes a row.

    Attributes:
        not_finite: rows that were left out, as their value is no finite number.
        bounded: rows with an interval, be it open to one side.
        sampling_only: rows whose interval covers the draws only.
        noted: rows with a note.
        judged, correct: rows with a label; of those, classified right on the clean image.
        labelled: rows with a label; ``voted``: of those, with votes.
        adaptive: rows that stopped when they had seen enough.
        counted: rows whose value is the share of independent votes for the predicted class; ``successes``: all those votes.
        hits: votes for the labels, of all rows with both.
    """

    def __init__(self) -> None:
        self.not_finite = self.bounded = self.sampling_only = self.noted = self.judged = self.correct = 0
        self.labelled = self.voted = self.counted = self.adaptive = self.successes = self.hits = 0
        self._values, self._lowers, self._uppers, self._errors = Column(), Column(), Column(), Column()
        self._draws, self.label_shares, self.label_draws, self.label_worths = Column(), Column(), Column(), Column()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Columns:
        """The columns of these rows."""
        columns = cls()
        for row in rows:
            columns.add(row)
        return columns

    def __len__(self) -> int:
        return len(self._values)

    def add(self, row: Row) -> None:
        """Take one more row."""
        if not math.isfinite(row.value):
            self.not_finite += 1
            return
        self._values.append(row.value)
        bounded = row.lower is not None or row.upper is not None
        self._lowers.append(row.lower if row.lower is not None else -math.inf if bounded else math.nan)
        self._uppers.append(row.upper if row.upper is not None else math.inf if bounded else math.nan)
        self._errors.append(math.nan if row.std_error is None else row.std_error)
        self.bounded += bounded
        self.sampling_only += not row.interval.covers_bias
        self.noted += bool(row.note)
        self.adaptive += row.interval.kind is IntervalKind.CONFIDENCE_SEQUENCE
        self.judged += row.correct is not None
        self.correct += bool(row.correct)
        self.labelled += row.label is not None
        draws = row.draws
        if row.votes and draws:
            self._count(row, row.votes, draws)

    @property
    def values(self) -> Floats:
        """The values."""
        return self._values.numbers()

    @property
    def lowers(self) -> Floats:
        """Lower ends of the intervals; the value itself where there is none."""
        return self._or_value(self._lowers)

    @property
    def uppers(self) -> Floats:
        """Upper ends of the intervals; the value itself where there is none."""
        return self._or_value(self._uppers)

    @property
    def errors(self) -> Floats | None:
        """Standard errors; None where a row has none."""
        errors = self._errors.numbers()
        return None if np.isnan(errors).any() else errors

    @property
    def pooled_draws(self) -> int | None:
        """Votes of one row, where all rows have as many and their values are shares of them."""
        if self.counted < len(self) or not self._draws.alike or not self.counted:
            return None
        return int(self._draws.numbers()[0])

    def _count(self, row: Row, votes: tuple[int, ...], draws: int) -> None:
        worth = row.effective_draws
        fixed = row.interval.kind is not IntervalKind.CONFIDENCE_SEQUENCE
        for_predicted = votes[row.predicted] if row.predicted < len(votes) else None
        if fixed and for_predicted is not None and worth == draws and abs(for_predicted / draws - row.value) < 1e-9:
            self.counted += 1
            self.successes += for_predicted
            self._draws.append(draws)
        if row.label is not None:
            hits = votes[row.label] if 0 <= row.label < len(votes) else 0
            self.voted += 1
            self.hits += hits
            self.label_shares.append(hits / draws)
            self.label_draws.append(draws)
            self.label_worths.append(worth)

    def _or_value(self, column: Column) -> Floats:
        ends = column.numbers()
        missing = np.isnan(ends)
        return np.where(missing, self.values, ends) if missing.any() else ends
