"""What is one result: a row for one sample, one noise level and one estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

COLUMNS = (
    "sample_id",
    "label",
    "predicted",
    "correct",
    "noise",
    "sigma",
    "estimator",
    "quantity",
    "value",
    "lower",
    "upper",
    "std_error",
    "flips_to",
    "forwards",
    "backwards",
    "note",
    "interval",
)
LARGEST = 1e150
"""All numbers of a result are smaller: they can be squared and summed without becoming infinite."""


@dataclass(frozen=True, slots=True)
class Row:
    """One result. Fields up to ``interval`` are the columns of samples.csv, in order; the others go to samples.json only.

    Attributes:
        label, predicted, flips_to: class indices; None where unknown.
        correct: predicted == label; None without a label.
        value: the estimate, in the units of ``quantity``; ``lower`` and ``upper`` bound it (95 %) or are None.
        forwards, backwards: network passes behind this row, the clean one included, shared or not.
        interval: how the interval was made: clopper-pearson, confidence-sequence, jackknife:sampling-only, lognormal:4 repeats,
            weighted sample, upper bound, none.
        votes: how many noisy copies went to each class (mc), by class index.
        details: further numbers of the estimator, by name.
        kept: which draws kept the class (mc with fixed draws), as :mod:`robaudit.kept` packs it; absent where all of them did, or none.
    """

    sample_id: str
    label: int | None
    predicted: int
    correct: bool | None
    noise: str
    sigma: float
    estimator: str
    quantity: str
    value: float
    lower: float | None
    upper: float | None
    std_error: float | None
    flips_to: int | None
    forwards: int
    backwards: int
    note: str
    interval: str
    votes: tuple[int, ...] | None = None
    details: Mapping[str, float] | None = None
    kept: str | None = None

    @property
    def key(self) -> tuple[str, float, str]:
        """What identifies the row within a run."""
        return self.sample_id, self.sigma, self.estimator

    def document(self) -> dict[str, Any]:
        """The row as JSON values; ``votes``, ``details`` and ``kept`` only where there are any."""
        values = {name: getattr(self, name) for name in COLUMNS}
        if self.votes is not None:
            values["votes"] = list(self.votes)
        if self.details is not None:
            values["details"] = dict(self.details)
        if self.kept is not None:
            values["kept"] = self.kept
        return values

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> Row:
        """The inverse of :meth:`document`."""
        votes = values.get("votes")
        columns = {name: values[name] for name in COLUMNS}
        return cls(**columns, votes=None if votes is None else tuple(votes), details=values.get("details"), kept=values.get("kept"))


if tuple(f.name for f in fields(Row))[:-3] != COLUMNS:
    raise AssertionError("Row and COLUMNS disagree")
