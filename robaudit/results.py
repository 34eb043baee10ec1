"""In which order do the rows of a run come out of its parts: that of the data set and the spec, whatever order they were made in?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from robaudit.datasets.base import Dataset
from robaudit.estimators.registry import Task
from robaudit.ledger import Ledger
from robaudit.parts import HeldPart, PartFiles, Skip
from robaudit.rows import Row


@dataclass(frozen=True, slots=True)
class SampleResults:
    """What is known of one sample.

    Attributes:
        rows: in the order of the spec; none when it was skipped.
        digest: of its pixels; empty when it was skipped.
        skip: why it has no rows.
    """

    rows: Sequence[Row]
    digest: str
    skip: Skip | None


def results(dataset: Dataset, tasks: Sequence[Task], ledger: Ledger, parts: PartFiles) -> Iterator[SampleResults]:
    """Sample by sample, a few parts in memory at a time; samples of which nothing is known are left out."""
    names = {(task.sigma, task.chosen.label): i for i, task in enumerate(tasks)}
    for index in range(len(dataset)):
        numbers = ledger.parts_of(index)
        if numbers:
            yield _of_sample(dataset.sample_id(index), names, parts.of_sample(numbers))


def _of_sample(sample_id: str, names: Mapping[tuple[float, str], int], parts: Sequence[HeldPart]) -> SampleResults:
    for skip in (skip for part in parts for skip in part.skips.get(sample_id, ())):
        if skip.task is None or skip.task in names:
            return SampleResults((), "", skip)
    found = {row.key: row for part in parts for row in part.rows.get(sample_id, ()) if (row.sigma, row.estimator) in names}
    digest = next((part.record.images[sample_id] for part in parts if sample_id in part.record.images), "")
    return SampleResults(sorted(found.values(), key=lambda row: names[row.sigma, row.estimator]), digest, None)
