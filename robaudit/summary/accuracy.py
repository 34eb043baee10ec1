"""How accurate is the model under noise, by the votes of its noisy copies?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.rows import Row
from robaudit.summary.groups import json_values


@dataclass(frozen=True, slots=True)
class NoisyAccuracy:
    """Accuracy under noise: the mean over labelled images of votes[label] / all votes.

    Attributes:
        images: how many had a label and votes.
        value: the mean.
        lower, upper: interval over images.
        std_error: from the draws alone: sqrt(sum p (1 - p) / draws) / images; antithetic draws count as what they are worth.
        measured_lower, measured_upper: Clopper-Pearson on the pooled draws: these very images; None when draws differ in number or
            are not independent.
    """

    images: int
    value: float
    lower: float
    upper: float
    std_error: float
    measured_lower: float | None
    measured_upper: float | None

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


def noisy_accuracy(rows: Sequence[Row], confidence: float = 0.95) -> NoisyAccuracy | None:
    """Accuracy under noise of the rows that have a label; None when there is no such row, or one of them has no votes."""
    labelled = [row for row in rows if row.label is not None]
    if not labelled or not all(row.votes and draws_of(row) for row in labelled):
        return None
    hits, draws, worth = np.array(
        [(_votes_for(row.votes or (), row.label or 0), draws_of(row), worth_of(row)) for row in labelled], dtype=np.float64
    ).T
    p = hits / draws
    measured: tuple[float | None, float | None] = None, None
    if np.all(draws == draws[0]) and np.all(draws == worth):
        lower, upper = clopper_pearson(hits.sum(), draws.sum(), confidence)
        measured = float(lower), float(upper)
    error = float(np.sqrt(np.sum(p * (1.0 - p) / worth)) / p.size)
    return NoisyAccuracy(p.size, float(p.mean()), *mean_interval(p, 0.0, 1.0, confidence), error, *measured)


def draws_of(row: Row) -> int:
    """Noisy copies behind a row with votes: those whose logits were not finite voted for nobody, and count."""
    return sum(row.votes or ()) + int((row.details or {}).get("not_finite", 0))


def worth_of(row: Row) -> float:
    """How many independent copies the votes are worth: all of them, unless the row says otherwise (antithetic pairs)."""
    return float((row.details or {}).get("votes_worth", draws_of(row)))


def _votes_for(votes: tuple[int, ...], label: int) -> int:
    return votes[label] if 0 <= label < len(votes) else 0
