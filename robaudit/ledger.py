"""Which results does each sample have already, and in which parts do they stand?"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from robaudit.datasets.base import Dataset
from robaudit.errors import DataError
from robaudit.estimators.registry import Task
from robaudit.parts import PartRecord

_NOWHERE = -1


class Ledger:
    """What the parts of a run hold, sample by sample, in about 25 bytes a sample: ids are kept as hashes, rows stay on disk.

    Attributes:
        complete: samples that lack nothing.
        seconds: by estimator and sigma, of all parts.

    Args:
        dataset: the run's samples, in order.
        tasks: every estimator at every noise level.

    Raises:
        DataError: an id stands twice, or is no text that can be written.
    """

    def __init__(self, dataset: Dataset, tasks: Sequence[Task]) -> None:
        self._dataset, self._tasks = dataset, tuple(tasks)
        self._names = {(task.sigma, task.chosen.label): i for i, task in enumerate(tasks)}
        n = len(dataset)
        hashes = np.fromiter((hash(_checked(dataset.sample_id(i), dataset.where)) for i in range(n)), dtype=np.int64, count=n)
        self._order = np.argsort(hashes, kind="stable").astype(np.int32)
        hashes.sort()
        self._hashes = hashes
        self._refuse_duplicates()
        self._state = np.zeros(n, dtype=np.int32)  # which tasks are done: a number in _sets
        self._sets: list[frozenset[int]] = [frozenset()]
        self._code = {frozenset[int](): 0}
        self.complete, self.seconds = 0, dict[str, float]()
        self._last = np.full(n, _NOWHERE, dtype=np.int32)  # the sample's last entry; an entry knows the one before it
        self._part, self._before = array("i"), array("i")

    def take(self, number: int, record: PartRecord) -> None:
        """Note what a part holds; samples and tasks that are not this run's are left alone."""
        for key, spent in record.seconds.items():
            self.seconds[key] = self.seconds.get(key, 0.0) + spent
        found: dict[str, set[int]] = {}
        for row in record.rows:
            task = self._names.get((row.sigma, row.estimator))
            if task is not None:
                found.setdefault(row.sample_id, set()).add(task)
        everything = set(self._names.values())
        for skip in record.skipped:
            if skip.task is None or skip.task in self._names:
                found[skip.sample_id] = everything
        for sample_id, done in found.items():
            i = self.index(sample_id)
            if i is not None:
                before, after = self._sets[self._state[i]], self._sets[self._state[i]] | done
                self.complete += len(after) == len(self._tasks) != len(before)
                self._state[i] = self._coded(after)
                self._part.append(number)
                self._before.append(int(self._last[i]))
                self._last[i] = len(self._part) - 1

    def index(self, sample_id: str) -> int | None:
        """The place of a sample in the data set, None where it is not in it."""
        wanted = hash(sample_id)
        low, high = np.searchsorted(self._hashes, wanted, "left"), np.searchsorted(self._hashes, wanted, "right")
        places = [int(self._order[k]) for k in range(low, high)]
        if len(places) > 1:  # two ids of one hash
            places = [i for i in places if self._dataset.sample_id(i) == sample_id]
        return places[0] if places else None

    def missing(self, index: int) -> tuple[Task, ...]:
        """The tasks that a sample lacks."""
        return self._lacking(int(self._state[index]))

    def lacking(self) -> list[tuple[int, tuple[Task, ...]]]:
        """How many samples lack which tasks."""
        codes, counts = np.unique(self._state, return_counts=True)
        return [(int(count), self._lacking(int(code))) for code, count in zip(codes, counts, strict=True)]

    def unfinished(self) -> Iterator[int]:
        """The samples that lack something, in order."""
        return (i for i in range(len(self._state)) if len(self._sets[self._state[i]]) < len(self._tasks))

    def settle(self) -> None:
        """Drop what only the work needs: from now on it can say in which parts a sample is, and nothing else."""
        self._hashes, self._order, self._state = self._hashes[:0], self._order[:0], self._state[:0]

    def parts_of(self, index: int) -> list[int]:
        """The numbers of the parts that know a sample, in the order they were written."""
        found: list[int] = []
        entry = int(self._last[index])
        while entry != _NOWHERE:
            found.append(self._part[entry])
            entry = self._before[entry]
        return found[::-1]

    def _coded(self, done: frozenset[int]) -> int:
        code = self._code.setdefault(done, len(self._sets))
        if code == len(self._sets):
            self._sets.append(done)
        return code

    def _lacking(self, code: int) -> tuple[Task, ...]:
        done = self._sets[code]
        return tuple(task for i, task in enumerate(self._tasks) if i not in done)

    def _refuse_duplicates(self) -> None:
        for k in np.flatnonzero(self._hashes[1:] == self._hashes[:-1]):
            first, second = (self._dataset.sample_id(int(self._order[place])) for place in (k, k + 1))
            if first == second:
                raise DataError(self._dataset.where, f"the id {first!r} stands twice", "give every sample an id of its own")


def _checked(sample_id: object, where: str) -> str:
    if not isinstance(sample_id, str) or not (sample_id.isascii() or not any("\ud800" <= c <= "\udfff" for c in sample_id)):
        raise DataError(where, f"the id {sample_id!a} is no text that can be written", "give every sample an id of whole characters")
    return sample_id
