"""Groups of rows that may be summarised together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from robaudit.errors import NothingLeftError, RunError, did_you_mean
from robaudit.levels import NONE, NoiseLevel
from robaudit.names import ResultName
from robaudit.quantities import BUILT_IN, Quantity
from robaudit.records import Record
from robaudit.runs.rows import Row


@dataclass(frozen=True, slots=True)
class GroupKey(Record):
    """The key of rows that are summarised together."""

    estimator: str
    at: NoiseLevel
    quantity: str

    @staticmethod
    def from_row(row: Row) -> GroupKey:
        """The key of a row."""
        return GroupKey(row.estimator, row.at, row.quantity)

    @property
    def noise(self) -> str:
        """Label of the noise, or "none"."""
        return self.at.noise or NONE

    @property
    def norm(self) -> str:
        """The norm of its values: l1, l2 or linf; empty where they have none."""
        norm = ResultName.parse(self.estimator).norm
        return "" if norm is None else norm.value

    def __str__(self) -> str:
        if self.at.level is not None:
            return f"{self.estimator} at {self.at}"
        if self.at.noise is not None:
            # Of the noise as a whole, as noise_tolerance is.
            return f"{self.estimator} under {self.noise}"
        return self.estimator


def by_sample(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows of each sample."""
    # groupby needs no memory for the other samples: a run has the rows of a sample together.
    for _, group in itertools.groupby(rows, key=attrgetter("sample_id")):
        yield list(group)


def refuse_no_values(finite: int, others: int, where: str) -> None:
    """Refuse a group without a finite value.

    Args:
        finite: number of finite values.
        others: number of results without one.
        where: the group, for messages.

    Raises:
        NothingLeftError: none of its results is a finite number.
    """
    if not finite:
        raise NothingLeftError(
            where,
            f"none of the {others} results is a finite number",
            "read the notes in samples.csv",
        )


def quantity_of(name: str, quantities: Mapping[str, Quantity] | None) -> Quantity:
    """The description of a quantity: from ``quantities``, else built in.

    Raises:
        RunError: it has no description, so its range and direction are unknown.
    """
    # The quantity of a plugin that is not installed is described in the run alone.
    known = {**BUILT_IN, **(quantities or {})}
    if name not in known:
        raise RunError(
            f"quantity {name!r}",
            "its range and direction are unknown",
            f"install the estimator it came from; {did_you_mean(name, known)}",
        )
    return known[name]
