"""The rows of a run: one result for each sample, noise level and estimator.

A row can also say which of its draws kept the class, packed as text. Two runs with the same seed give a sample the same noise, so
draw j of one run can be paired with draw j of the other.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict

from robaudit.documents import CLASSES
from robaudit.levels import LevelName, NoiseLevel, noise_level
from robaudit.names import CERTIFIED_CLASS
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
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
TABLE_COLUMNS = tuple(column for name in COLUMNS for column in ((name, f"{name}_name") if name in CLASSES else (name,)))
"""The columns of samples.csv, and of every other table of rows: each class is followed by its name."""
LARGEST = 1e150
"""All numbers of a result are smaller, so that they can be squared and summed without overflow."""
MOST_STORED_DRAWS = 2**14
"""Draws of an image whose bits are stored: 2,732 characters."""


def _interval(text: object) -> Interval:
    if not isinstance(text, str):
        raise ValueError("is not text")  # noqa: TRY004  pydantic reports a ValueError
    return Interval.parse(text)


def _not_too_large(value: float) -> float:
    if abs(value) >= LARGEST:
        raise ValueError("is too large")
    return value


Text = Annotated[str, Strict()]
Shared = Annotated[Text, AfterValidator(sys.intern)]
"""Text that many rows have: the same object in all of them, which halves their memory."""
Count = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Number = Annotated[int, Strict(), Field(gt=-(2**63), lt=2**63)] | Annotated[float, Strict(), Field(gt=-LARGEST, lt=LARGEST)]
"""A number that can be squared and summed; a whole one stays whole."""
Value = Annotated[
    Annotated[int, Strict()] | Annotated[float, Strict()],
    BeforeValidator(lambda value: math.nan if value is None else value),
    AfterValidator(_not_too_large),
]
Bits64 = Annotated[Text, Field(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", max_length=MOST_STORED_DRAWS)]
"""Bits as base64."""
LevelText = Annotated[str, Strict(), AfterValidator(lambda text: LevelName(text).value)]


@dataclass(frozen=True, slots=True)
class Row:
    """One result. Fields up to ``interval`` are columns of samples.csv, in order; the others go to samples.json only.

    The types are those of a stored row: :func:`robaudit.store.serialise.checked_row` checks what it reads by them.

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
        kept: which draws kept the class, as :func:`packed` gives it; None where all of them did, or none, or the row does not record it.
        split: of votes from antithetic pairs (draws 2j and 2j + 1), the pairs of which one copy kept the class and the other did not; None
            where copies are independent.
        not_finite: noisy copies whose logits were not finite; they voted for no class.
    """

    sample_id: Text
    label: Count | None
    predicted: Count
    correct: Annotated[bool, Strict()] | None
    noise: Shared
    level_name: LevelText
    level: Number
    estimator: Shared
    quantity: Shared
    value: Value
    lower: Number | None
    upper: Number | None
    std_error: Number | None
    flips_to: Count | None
    forwards: Count
    backwards: Count
    note: Shared
    interval: Annotated[Interval, PlainValidator(_interval)]
    votes: tuple[Count, ...] | None = None
    details: Mapping[Text, Number] | None = None
    kept: Bits64 | None = None
    split: Count | None = None
    not_finite: Count = 0

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
    def fixed_votes(self) -> bool:
        """Whether the votes are of a number of copies that was fixed in advance, behind a value or behind an approximation of it."""
        if self.votes is None:
            return False
        approximated = not self.interval.covers_bias and self.quantity == P_ROBUST.name
        return self.split is not None or self.interval.kind is IntervalKind.CLOPPER_PEARSON or approximated

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
        if self.split is not None:
            values["split"] = self.split
        if self.not_finite:
            values["not_finite"] = self.not_finite
        return values


def table_values(row: Row, names: Names | None) -> tuple[Any, ...]:
    """The row as a line of a table: the values of :data:`TABLE_COLUMNS`; the name of a class is None where it has none.

    Args:
        row: the result.
        names: of the classes, by index.
    """
    values = _values(row)
    return (
        *values[:_PREDICTED],
        known_name(row.label, names),
        row.predicted,
        known_name(row.predicted, names),
        *values[_PREDICTED + 1 : _FLIPS_TO + 1],
        known_name(row.flips_to, names),
        *values[_FLIPS_TO + 1 :],
    )


_values = attrgetter(*COLUMNS)
_PREDICTED, _FLIPS_TO = COLUMNS.index("predicted"), COLUMNS.index("flips_to")
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

    Where all of a fixed number of draws did, or none, the votes alone tell.
    """
    if row.votes is None or row.predicted >= len(row.votes) or not row.fixed_votes:
        return None
    draws, count = row.draws, row.votes[row.predicted]
    if draws < count or draws < 1:
        return None
    if row.kept is not None:
        data = np.frombuffer(base64.b64decode(row.kept), dtype=np.uint8)
        return np.unpackbits(data, count=draws).astype(np.bool_) if len(data) == -(-draws // 8) else None
    return np.full(draws, count > 0) if count in (0, draws) and draws <= MOST_STORED_DRAWS else None


def check_split(row: Row) -> None:
    """Check that the pairs of a row can be split so.

    Raises:
        ValueError: no pairs have these votes.
    """
    if row.split is None:
        return
    votes, draws = row.votes or (), row.draws
    kept = votes[row.predicted] if row.predicted < len(votes) else 0
    if draws < 2 or draws % 2 or (kept - row.split) % 2 or row.split > min(kept, draws - kept):
        raise ValueError(f"split: {row.split} of the pairs, but {kept} of {draws} votes")
