"""What does a report need of every row besides its summaries, in a few bytes each?"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robaudit.rows import Row

_EXAMPLES = 2


@dataclass(slots=True)
class GroupTally:
    """One estimator at one noise level.

    Attributes:
        quantity: what its values mean.
        forwards, backwards: passes of all its rows.
        intervals: how many rows have an interval that was made so.
        order: a fingerprint of the samples in their order: groups with the same one are paired row by row.
    """

    quantity: str
    forwards: int = 0
    backwards: int = 0
    intervals: Counter[str] = field(default_factory=Counter)
    order: int = 0
    _values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, row: Row) -> None:
        """Take one more row."""
        self._values.append(row.value)
        self.forwards += row.forwards
        self.backwards += row.backwards
        self.intervals[row.interval] += 1
        self.order = hash((self.order, row.sample_id))

    @property
    def values(self) -> NDArray[np.float64]:
        """All values, in the rows' order; not all need be finite."""
        return np.frombuffer(self._values, dtype=np.float64)


class Tally:
    """Takes the rows of a run one by one.

    Attributes:
        groups: by estimator and sigma.
        labelled: whether any row has a label.
        examples: the ids of the first sample and of the next one that is predicted to be of another class.
    """

    def __init__(self) -> None:
        self.groups: dict[tuple[str, float], GroupTally] = {}
        self.labelled = False
        self._examples: dict[int, str] = {}

    @property
    def examples(self) -> tuple[str, ...]:
        """Ids, see above."""
        return tuple(self._examples.values())

    def add(self, row: Row) -> None:
        """Take one more row."""
        key = row.estimator, row.sigma
        if key not in self.groups:
            self.groups[key] = GroupTally(row.quantity)
        self.groups[key].add(row)
        self.labelled = self.labelled or row.label is not None
        if len(self._examples) < _EXAMPLES:
            self._examples.setdefault(row.predicted, row.sample_id)
