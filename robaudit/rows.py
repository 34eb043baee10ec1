"""One result: a row for one sample, one noise level and one estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from robaudit.quantities import Interval, IntervalKind

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
        interval: how the interval was made, and what it covers.
        votes: how many noisy copies went to each class (mc), by class index.
        details: further numbers of the estimator, by name.
        kept: which draws kept the class (mc with fixed draws), as :mod:`robaudit.kept` packs it; absent where all of them did, or none.
        worth: how many independent copies the votes are worth where these are not independent (antithetic pairs); None: all of them.
        not_finite: noisy copies whose logits were not finite; they voted for no class.
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
    interval: Interval
    votes: tuple[int, ...] | None = None
    details: Mapping[str, float] | None = None
    kept: str | None = None
    worth: float | None = None
    not_finite: int = 0

    @property
    def draws(self) -> int:
        """Noisy copies behind a row with votes, those that voted for no class included."""
        return sum(self.votes or ()) + self.not_finite

    @property
    def independent_votes(self) -> bool:
        """Whether the votes are a fixed number of independent draws."""
        return self.votes is not None and self.worth is None and self.interval.kind is IntervalKind.CLOPPER_PEARSON

    @property
    def effective_draws(self) -> float:
        """How many independent copies the votes are worth."""
        return self.draws if self.worth is None else self.worth

    @property
    def key(self) -> tuple[str, float, str]:
        """What identifies the row within a run."""
        return self.sample_id, self.sigma, self.estimator

    def document(self) -> dict[str, Any]:
        """The row as JSON values; what is not a column only where there is any."""
        values = {name: getattr(self, name) for name in COLUMNS}
        values["interval"] = self.interval.text
        if self.votes is not None:
            values["votes"] = list(self.votes)
        if self.details is not None:
            values["details"] = dict(self.details)
        if self.kept is not None:
            values["kept"] = self.kept
        if self.worth is not None:
            values["worth"] = self.worth
        if self.not_finite:
            values["not_finite"] = self.not_finite
        return values

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> Row:
        """The inverse of :meth:`document`."""
        votes = values.get("votes")
        return cls(
            **{**{name: values[name] for name in COLUMNS}, "interval": Interval.parse(values["interval"])},
            votes=None if votes is None else tuple(votes),
            details=values.get("details"),
            kept=values.get("kept"),
            worth=values.get("worth"),
            not_finite=values.get("not_finite", 0),
        )


if tuple(f.name for f in fields(Row))[: len(COLUMNS)] != COLUMNS:
    raise AssertionError("Row and COLUMNS disagree")
