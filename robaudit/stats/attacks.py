"""Losses that another estimator of the run contradicts: attacks that were beaten, and norms that missed a bad region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from robaudit.names import ResultName
from robaudit.quantities import LOSS, IntervalKind
from robaudit.rows import Row

ROUNDING = 1e-4
"""Relative tolerance of losses: more than passes with and without gradients differ by."""


def is_attack(row: Row) -> bool:
    """Whether the row's value is the largest loss of a search."""
    return row.quantity == LOSS.name and row.interval.kind is IntervalKind.LOWER_BOUND


def contradicted(rows: Sequence[Row]) -> list[Row]:
    """The rows of one sample, with a note on each loss that another row contradicts.

    No loss under the noise, and no norm of it, exceeds the maximum. So an attack has failed where a row of the same noise level and target
    met a larger loss, or has a norm whose whole interval is larger, by more than rounding.

    A norm is too low where the whole interval of another norm of the same order is above its interval.

    Args:
        rows: all rows of a sample.
    """
    losses = [row for row in rows if row.quantity == LOSS.name]
    return [row if row.quantity != LOSS.name else _judged(row, losses) if is_attack(row) else _compared(row, losses) for row in rows]


def not_missed(row: Row) -> float:
    """A loss that an attack should reach: the largest that the row's estimator met, or the lower end of its norm if that is larger."""
    norm = row.value if row.lower is None else row.lower
    met = row.value if is_attack(row) else highest_loss(row, norm)
    return max(norm, met)


def highest_loss(row: Row, unknown: float = -math.inf) -> float:
    """The largest loss that the row's estimator met."""
    return unknown if row.loss is None or row.loss.highest is None else row.loss.highest


def target_of(row: Row) -> int | None:
    """The target class of a loss; None where the row does not say."""
    return None if row.loss is None else row.loss.target


def _judged(attack: Row, rows: Sequence[Row]) -> Row:
    """The attack, with a note if another row shows that it failed."""
    others = [row for row in rows if row is not attack and row.at == attack.at and target_of(row) == target_of(attack)]
    best = max(others, default=attack, key=not_missed)
    if not not_missed(best) > attack.value * (1 + ROUNDING):
        return attack
    note = f"the attack failed: {ResultName.parse(best.estimator).estimator} found a loss of {not_missed(best):.4g}"
    return replace(attack, note="; ".join(filter(None, [attack.note, note])))


def _compared(norm: Row, rows: Sequence[Row]) -> Row:
    """The norm, with a note if another norm of the same order is larger by more than both errors."""
    part = ResultName.parse(norm.estimator).part
    if part is None or norm.upper is None:
        return norm
    higher = [
        row
        for row in rows
        if row.at == norm.at
        and ResultName.parse(row.estimator).part == part
        and target_of(row) == target_of(norm)
        and row.lower is not None
        and row.lower > norm.upper * (1 + ROUNDING)
    ]
    if not higher:
        return norm
    best = max(higher, key=lambda row: row.value)
    return replace(norm, note="; ".join(filter(None, [norm.note, f"too low: {best.estimator} is {best.value:.4g}"])))
