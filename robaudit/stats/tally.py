"""The totals of a run's results, in one pass over its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robaudit.levels import NoiseLevel
from robaudit.names import ResultName
from robaudit.quantities import IntervalKind
from robaudit.runs.info import (
    NoisyAccuracyInfo,
    Planned,
    Reached,
    RunInfo,
    ShareInfo,
    Skip,
    Totals,
)
from robaudit.runs.rows import Row, decided
from robaudit.runs.table import ResultTable, TableBuilder
from robaudit.stats.summary import GroupSummary


class Tally:
    """Accumulates the totals and the columns of a run's results.

    Args:
        flag: of the spec: images on one side of it take no more copies.

    Attributes:
        samples: number of samples.
        rows: number of rows.
    """

    def __init__(self, flag: float | None = None) -> None:
        self._flag = flag
        self.samples = 0
        self.rows = 0
        self._labelled = 0
        self._forwards = 0
        self._backwards = 0
        self._digest = hashlib.sha256()  # over ids, pixels and labels
        self._builder = TableBuilder()
        self._computations: dict[tuple[NoiseLevel, str], _Copies] = {}

    def add(self, rows: Sequence[Row], digest: str) -> None:
        """Count the results of a sample.

        Args:
            rows: all of its results.
            digest: of its pixels.
        """
        first = rows[0]
        self.samples += 1
        self._labelled += first.label is not None
        # ASCII's unit and record separators: no two lists of samples give the same bytes.
        self._digest.update(f"{first.sample_id}\x1f{digest}\x1f{first.label}\x1e".encode())
        computations = set()
        for row in rows:
            self.rows += 1
            self._builder.add(row)
            name = ResultName.parse(row.estimator).estimator
            computation = (row.at, name)
            # Further values of a computation share its passes.
            if computation not in computations:
                computations.add(computation)
                self._forwards += row.forwards
                self._backwards += row.backwards
                copies = self._computations.setdefault(computation, _Copies())
                copies.add(row, self._flag)

    def table(self) -> ResultTable:
        """The rows as columns."""
        return self._builder.table()

    def fields(
        self,
        info: RunInfo,
        summaries: Iterable[GroupSummary],
        skipped: Sequence[Skip],
        seconds: Mapping[str, float],
    ) -> dict[str, Any]:
        """The fields of run.json that follow from the results.

        Args:
            info: run.json so far.
            summaries: of the rows.
            skipped: the samples that could not be used.
            seconds: by step.
        """
        noisy_accuracies = []
        clean_accuracy = None
        for summary in summaries:
            if summary.noisy_accuracy:
                accuracy = NoisyAccuracyInfo(
                    estimator=summary.key.estimator,
                    **summary.key.at.document(),
                    **summary.noisy_accuracy.document(),
                )
                noisy_accuracies.append(accuracy)
            # Of the first result that has one: it is about the clean images.
            if clean_accuracy is None and summary.clean_accuracy:
                clean_accuracy = ShareInfo(**summary.clean_accuracy.document())
        data_read = {
            "samples": self.samples,
            "labelled": self._labelled,
            "sha256": self._digest.hexdigest(),
        }
        return {
            "data": info.data.model_copy(update=data_read),
            "clean_accuracy": clean_accuracy,
            "noisy_accuracy": noisy_accuracies,
            "totals": Totals(
                samples=self.samples,
                skipped=len(skipped),
                rows=self.rows,
                forwards=self._forwards,
                backwards=self._backwards,
                seconds=round(sum(seconds.values()), 3),
            ),
            "seconds": {key: round(spent, 3) for key, spent in seconds.items()},
            "skipped": list(skipped),
        }

    def reached(self, planned: Planned) -> Reached:
        """How far the run is."""
        in_rounds = list[_Copies]()
        others = list[_Copies]()
        for (_, name), copies in self._computations.items():
            (in_rounds if name in planned.draws else others).append(copies)
        with_others = None
        if planned.others:
            # A result that no sample has yet is not among them.
            is_begun = len(others) >= planned.others
            with_others = min(copies.samples for copies in others) if is_begun else 0
        open_results = [copies for copies in in_rounds if copies.draws]
        all_draws = max(planned.draws.values(), default=0)
        return Reached(
            images=self.samples,
            even=all(
                len(copies.draws) <= 1 and copies.samples == self.samples for copies in in_rounds
            ),
            fewest=min((min(copies.draws) for copies in open_results), default=all_draws),
            most=max((max(copies.draws) for copies in open_results), default=all_draws),
            others=with_others,
        )


class _Copies:
    """The copies behind the results of a computation.

    Attributes:
        samples: number of its results.
        draws: the different numbers of copies behind those that more copies may change.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.draws = set[int]()

    def add(self, row: Row, flag: float | None) -> None:
        """Count a result.

        Args:
            row: the result.
            flag: images on one side of it take no more copies; None: none is decided early.
        """
        self.samples += 1
        if row.votes is None or row.interval.kind is IntervalKind.EXACT:
            return
        if flag is None or not decided(row, flag):
            self.draws.add(row.votes.draws)
