"""Groups of rows that may be summarised together, and their usable values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from robaudit.errors import NothingLeftError, RunError, did_you_mean
from robaudit.levels import NO_NOISE, LevelChoice, NoiseLevel
from robaudit.quantities import CONFIDENCE, LOG10_P_FAIL, LOSS, P_ROBUST, Quantity
from robaudit.rows import Row

if TYPE_CHECKING:
    from robaudit.stats.agreement import Results

BUILT_IN: Mapping[str, Quantity] = {quantity.name: quantity for quantity in (P_ROBUST, CONFIDENCE, LOG10_P_FAIL, LOSS)}


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What rows must have in common to be summarised together."""

    estimator: str
    at: NoiseLevel
    quantity: str

    @staticmethod
    def of(row: Row) -> GroupKey:
        """The key of a row."""
        return GroupKey(row.estimator, row.at, row.quantity)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {"estimator": self.estimator, **self.at.document(), "quantity": self.quantity}

    @property
    def noise(self) -> str:
        """Label of the noise."""
        return self.at.noise

    def __str__(self) -> str:
        if self.at.levelless:
            return self.estimator if self.at == NO_NOISE else f"{self.estimator} under {self.noise}"
        return f"{self.estimator} at {self.at}"


def group_rows(rows: Iterable[Row]) -> dict[GroupKey, list[Row]]:
    """The rows by (estimator, noise level, quantity), in order of first appearance, which is the spec's order."""
    groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        groups.setdefault(GroupKey.of(row), []).append(row)
    return groups


def rows_measuring(
    run: Results,
    quantities: Collection[str],
    estimators: Sequence[str],
    levels: LevelChoice | Sequence[float],
    *,
    called: str,
    lacking: tuple[str, str],
    each: Callable[[Row], None] = lambda _: None,
) -> dict[GroupKey, list[Row]]:
    """The rows of the results of some quantities, by result, in the run's order; the rows of a run are read once.

    Args:
        run: a finished run.
        quantities: their names.
        estimators, levels: only these.
        called: what such values are called in messages, in the plural.
        lacking: what a run without any lacks, and what would add some.
        each: called with every row, of whatever quantity.

    Raises:
        RunError: the run has no such result among those named.
    """
    groups: dict[GroupKey, list[Row]] = {}
    for row in run.rows:
        mine = groups.setdefault(GroupKey.of(row), [])
        if row.quantity in quantities:
            mine.append(row)
        each(row)
    wanted = set(run.chosen([(key.estimator, key.at) for key in groups], estimators, levels))
    there = {key: rows for key, rows in groups.items() if key.quantity in quantities}
    kept = {key: rows for key, rows in there.items() if (key.estimator, key.at) in wanted}
    if not kept and there:
        known = ", ".join(dict.fromkeys(key.estimator for key in there))
        raise RunError(str(run.path), f"has no {called} among the results asked for", f"its {called}: {known}")
    if not kept:
        raise RunError(str(run.path), *lacking)
    return kept


def one_group(rows: Sequence[Row], where: str) -> GroupKey:
    """The key that all rows share.

    Raises:
        NothingLeftError: there is no row.
        ValueError: the rows belong to several groups (a mistake of the caller: see :func:`group_rows`).
    """
    keys = group_rows(rows)
    if not keys:
        raise NothingLeftError(where, "there are no results to read", "audit at least one sample")
    if len(keys) > 1:
        raise ValueError(f"{where}: rows of several groups: {', '.join(map(str, keys))}")
    return next(iter(keys))


def with_values(rows: Sequence[Row], where: str) -> list[Row]:
    """The rows whose value is a finite number.

    Raises:
        NothingLeftError: there is none.
    """
    kept = [row for row in rows if math.isfinite(row.value)]
    refuse_no_values(len(kept), len(rows) - len(kept), where)
    return kept


def refuse_no_values(finite: int, others: int, where: str) -> None:
    """Refuse a group without a finite value.

    Raises:
        NothingLeftError: none of its results is a finite number.
    """
    if not finite:
        raise NothingLeftError(where, f"none of the {others} results is a finite number", "read the notes in samples.csv")


def quantity_of(name: str, quantities: Mapping[str, Quantity] | None) -> Quantity:
    """The description of a quantity: from ``quantities``, else a built-in one.

    Raises:
        RunError: it has no description, so its range and direction are unknown.
    """
    known = {**BUILT_IN, **(quantities or {})}
    if name not in known:
        raise RunError(
            f"quantity {name!r}", "its range and direction are unknown", f"install the estimator it came from; {did_you_mean(name, known)}"
        )
    return known[name]


def json_number(value: float | None) -> float | None:
    """A float for JSON, which has neither NaN nor infinity: those become None."""
    return None if value is None or not math.isfinite(value) else float(value)


def json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping, with every float in it and in nested mappings passed through :func:`json_number`."""

    def plain(value: Any) -> Any:
        return json_number(value) if isinstance(value, float) else json_values(value) if isinstance(value, dict) else value

    return {key: plain(value) for key, value in values.items()}


class Document:
    """A dataclass of numbers and strings that is written as a JSON object."""

    __slots__ = ()

    def document(self) -> dict[str, Any]:
        """The fields as JSON values; a number that is not finite is null."""
        return json_values(asdict(cast("Any", self)))
