"""How accurate is the model under noise, by the votes of its noisy copies?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.summary.columns import Columns
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


def noisy_accuracy(rows: Columns, confidence: float = 0.95) -> NoisyAccuracy | None:
    """Accuracy under noise of the rows that have a label; None when there is no such row, or one of them has no votes or as many
    as it took to decide about it: those lean."""
    if not rows.labelled or rows.voted < rows.labelled or rows.adaptive:
        return None
    p, draws, worth = (column.numbers() for column in (rows.label_shares, rows.label_draws, rows.label_worths))
    measured: tuple[float | None, float | None] = None, None
    if np.all(draws == draws[0]) and np.all(draws == worth):
        lower, upper = clopper_pearson(rows.hits, int(draws.sum()), confidence)
        measured = float(lower), float(upper)
    error = float(np.sqrt(np.sum(p * (1.0 - p) / worth)) / p.size)
    return NoisyAccuracy(p.size, float(p.mean()), *mean_interval(p, 0.0, 1.0, confidence), error, *measured)
