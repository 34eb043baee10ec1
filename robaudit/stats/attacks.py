"""Attacks that another estimator has beaten: what it says of a largest loss that a larger one was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from robaudit.names import ResultName
from robaudit.quantities import LOSS, IntervalKind
from robaudit.rows import Row

HIGHEST_LOSS = "highest_loss"
"""The detail of a row that holds the largest loss its sampler met."""

TARGET = "target"
"""The detail of a row that holds the class its loss is against."""

_ROUNDING = 1e-6


def is_attack(row: Row) -> bool:
    """Whether its value is the largest loss that a search has found."""
    return row.quantity == LOSS.name and row.interval.kind is IntervalKind.LOWER_BOUND


def with_failed_attacks(rows: Sequence[Row]) -> list[Row]:
    """The rows of one sample, in which an attack says so where another row shows that it failed.

    No loss under the noise, and no norm of it, is above the largest one. So an attack has failed where a row of the same noise level,
    against the same class, has a value above its own, or met a loss above it, by more than rounding.

    Args:
        rows: all rows of a sample.
    """
    return [_judged(row, rows) if is_attack(row) else row for row in rows]


def _judged(attack: Row, rows: Sequence[Row]) -> Row:
    """The attack with a note where the largest number that it could not have missed is above its value."""
    proofs = [
        proof
        for row in rows
        if row is not attack and row.quantity == LOSS.name and row.at == attack.at and _target(row) == _target(attack)
        for proof in _proofs(row)
    ]
    loss, what = max(proofs, default=(attack.value, ""), key=lambda proof: proof[0])
    if not loss > attack.value * (1 + _ROUNDING):
        return attack
    return replace(attack, note="; ".join(filter(None, [attack.note, f"the attack failed: {what} {loss:.4g}"])))


def _proofs(row: Row) -> Iterator[tuple[float, str]]:
    """Numbers that the largest loss is not below, with what is to be said before them."""
    highest = row.value if is_attack(row) else (row.details or {}).get(HIGHEST_LOSS)
    if highest is not None:
        yield highest, f"{ResultName.parse(row.estimator).estimator} found a loss of"
    yield row.value, f"{row.estimator} is"


def _target(row: Row) -> float | None:
    return (row.details or {}).get(TARGET)
