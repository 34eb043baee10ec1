"""The rows of a run: one result for each sample, noise level and estimator.

A row can also say which of its draws kept the class, packed as text. Two runs with the same seed give a sample the same noise, so
draw j of one run can be paired with draw j of the other.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robaudit.levels import NoiseLevel, noise_level
from robaudit.names import CERTIFIED_CLASS
from robaudit.quantities import Interval, IntervalKind
from robaudit.text import Names, known_name

if TYPE_CHECKING:
    from torch import Tensor

Bits = NDArray[np.bool_]

COLUMNS = (
    "sample_id",
    "label",
    "predicted",
    "correct",
    "noise",
    "level_name",
    "level",
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
TABLE_COLUMNS = tuple(
    column for name in COLUMNS for column in ((name, f"{name}_name") if name in ("label", "predicted", "flips_to") else (name,))
)
"""The columns of samples.csv, and of every other table of rows: each class is followed by its name."""
LARGEST = 1e150
"""All numbers of a result are smaller, so that they can be squared and summed without overflow."""
MOST_STORED_DRAWS = 2**14
"""Draws of an image whose bits are stored: 2,732 characters."""


@dataclass(frozen=True, slots=True)
class Row:
    """One result. Fields up to ``interval`` are columns of samples.csv, in order; the others go to samples.json only.

    Attributes:
        label, predicted, flips_to: class indices; None where unknown.
        noise: label of the noise.
        level_name, level: what its level is called, and the number: sigma 0.05, photons 1000, severity 3.
        correct: predicted == label; None without a label.
        value: the estimate, in the units of ``quantity``; ``lower`` and ``upper`` bound it (95 %) or are None.
        forwards, backwards: network passes behind this row, shared or not, including the clean one.
        interval: how the interval was made, and what it covers.
        votes: how many noisy copies went to each class (mc), by class index.
        details: further numbers of the estimator, by name.
        kept: which draws kept the class (mc with fixed draws), as :func:`packed` gives it; None where all of them did, or none.
        worth: the number of independent copies that dependent votes (antithetic pairs) amount to; None where they are independent.
        not_finite: noisy copies whose logits were not finite; they voted for no class.
    """

    sample_id: str
    label: int | None
    predicted: int
    correct: bool | None
    noise: str
    level_name: str
    level: float
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
    def at(self) -> NoiseLevel:
        """The noise and its level."""
        return noise_level(self.noise, self.level, self.level_name)

    @property
    def censored(self) -> bool:
        """Whether the true value is only known to be larger than this one."""
        return self.interval.kind is IntervalKind.CENSORED

    @property
    def certified_class(self) -> int | None:
        """The class that a certificate is for; None where it abstains, and for results of other quantities."""
        found = (self.details or {}).get(CERTIFIED_CLASS)
        return None if found is None else int(found)

    @property
    def draws(self) -> int:
        """Noisy copies behind a row with votes, including those that voted for no class."""
        return sum(self.votes or ()) + self.not_finite

    @property
    def independent_votes(self) -> bool:
        """Whether the votes are a fixed number of independent draws."""
        return self.votes is not None and self.worth is None and self.interval.kind is IntervalKind.CLOPPER_PEARSON

    @property
    def label_error(self) -> float:
        """The share of the noisy copies whose class is not the label; of a row with votes and a label."""
        votes, label = self.votes or (), -1 if self.label is None else self.label
        return 1.0 - (votes[label] if 0 <= label < len(votes) else 0) / max(self.draws, 1)

    @property
    def effective_draws(self) -> float:
        """The number of independent copies that the votes amount to."""
        return self.draws if self.worth is None else self.worth

    @property
    def key(self) -> tuple[str, NoiseLevel, str]:
        """What identifies the row within a run."""
        return self.sample_id, self.at, self.estimator

    def document(self) -> dict[str, Any]:
        """The row as JSON values; fields that are not columns only where they are set."""
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


def table_values(row: Row, names: Names | None) -> tuple[Any, ...]:
    """The row as a line of a table: the values of :data:`TABLE_COLUMNS`; the name of a class is None where it has none.

    Args:
        row: the result.
        names: of the classes, by index.
    """
    values = _values(row)
    label, predicted, flips_to = row.label, row.predicted, row.flips_to
    return (
        *values[:_AFTER_LABEL],
        None if label is None else known_name(label, names),
        predicted,
        known_name(predicted, names),
        *values[_AFTER_LABEL + 1 : _AFTER_FLIP],
        None if flips_to is None else known_name(flips_to, names),
        *values[_AFTER_FLIP:],
    )


_values = attrgetter(*COLUMNS)
_AFTER_LABEL, _AFTER_FLIP = COLUMNS.index("predicted"), COLUMNS.index("flips_to") + 1
if tuple(f.name for f in fields(Row))[: len(COLUMNS)] != COLUMNS:
    raise AssertionError("Row and COLUMNS disagree")


def packed(kept: Tensor) -> Iterator[str]:
    """The bits of each image as text: base64 of bytes, the first draw in the highest bit, zeros after the last.

    Args:
        kept: truth values (images, draws).
    """
    for row in np.packbits(kept.cpu().numpy(), axis=1):
        yield base64.b64encode(row.tobytes()).decode()


def bits_of(row: Row) -> Bits | None:
    """Which draws kept the class (draws,); None where the row does not say.

    Where all independent draws did, or none, the votes alone tell.
    """
    if row.votes is None or row.predicted >= len(row.votes) or not row.independent_votes:
        return None
    draws, count = row.draws, row.votes[row.predicted]
    if draws < count or draws < 1:
        return None
    if row.kept is not None:
        return np.unpackbits(np.frombuffer(base64.b64decode(row.kept), dtype=np.uint8), count=draws).astype(np.bool_)
    return np.full(draws, count > 0) if count in (0, draws) and draws <= MOST_STORED_DRAWS else None


def check_kept(row: Row) -> None:
    """Check that the bits of a row are those of its votes.

    Raises:
        ValueError: they are not base64, too few or too many, or not as many of them are set as there are votes.
    """
    if row.kept is None:
        return
    votes = row.votes or ()
    if row.predicted >= len(votes) or len(row.kept) > 4 * MOST_STORED_DRAWS:
        raise ValueError("kept: bits without votes of their own")
    try:
        data = base64.b64decode(row.kept, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("kept: not base64") from None
    draws = row.draws
    number = int.from_bytes(data, "big")
    if len(data) != -(-draws // 8) or number & ((1 << (-draws % 8)) - 1):
        raise ValueError(f"kept: {8 * len(data)} bits for {draws} draws")
    if number.bit_count() != votes[row.predicted]:
        raise ValueError(f"kept: {number.bit_count()} draws, but {votes[row.predicted]} votes")
