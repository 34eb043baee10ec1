"""The rows of a run: one result for each sample, noise level and estimator.

The fields of :class:`Row` are the only schema of a result: the columns of the run's state, of
samples.csv and of Arrow tables, the keys of samples.json, and the validation of stored rows are all
derived from them.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Strict, TypeAdapter, ValidationError

from robaudit.levels import NONE, LevelName, NoiseLevel, noise_level
from robaudit.quantities import P_ROBUST, IntervalKind
from robaudit.records import CLASSES
from robaudit.results import MOST_STORED_DRAWS, PARTS, Count, Result, Shared, Text, WholeOrNot
from robaudit.text import Names, clipped, known_name

if TYPE_CHECKING:
    from torch import Tensor

Bits = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Result):
    """A result with its address: sample, noise level and estimator.

    Attributes:
        label, predicted: class indices; the label is None where it is unknown.
        correct: predicted == label; None without a label.
        noise: label of the noise.
        level_name, level: name and number of its level: sigma 0.05, photons 1000, severity 3.
        estimator: the name of the result: the label of the estimator and, if it has several values,
            which value.
        quantity: the name of the value's quantity.
    """

    sample_id: Text
    label: Count | None
    predicted: Count
    correct: Annotated[bool, Strict()] | None
    noise: Shared
    level_name: Annotated[
        str, Strict(), AfterValidator(lambda text: text if text == NONE else LevelName(text).value)
    ]
    level: WholeOrNot
    estimator: Shared
    quantity: Shared

    def __post_init__(self) -> None:
        """Check nothing: the result was checked on construction, or is checked when it is read."""

    @classmethod
    def of(cls, result: Result, **address: Any) -> Row:
        """The row of a result; ``address``: the other fields of the row."""
        return cls(**address, **dict(zip(_RESULT, _result_of(result), strict=True)))

    @property
    def at(self) -> NoiseLevel:
        """The noise and its level."""
        return noise_level(self.noise, self.level, self.level_name)

    @property
    def censored(self) -> bool:
        """Whether the true value is only known to be larger than this value."""
        return self.interval.kind is IntervalKind.CENSORED

    @property
    def certified_class(self) -> int | None:
        """The class that a certificate, or a flip of the majority vote, is about; None where there
        is none."""
        about = self.certificate or self.search
        return None if about is None else about.label

    @property
    def fixed_votes(self) -> bool:
        """Whether the number of voting copies was fixed in advance, whether they give the value or
        an approximation does."""
        if self.votes is None:
            return False
        approximated = not self.interval.covers_bias and self.quantity == P_ROBUST.name
        return (
            self.votes.split is not None
            or self.interval.kind is IntervalKind.CLOPPER_PEARSON
            or approximated
        )

    @property
    def key(self) -> tuple[str, NoiseLevel, str]:
        """What identifies the row within a run."""
        return self.sample_id, self.at, self.estimator

    def document(self) -> dict[str, Any]:
        """The row as JSON values; typed parts and numbers only where there are any."""
        values = dict(zip(COLUMNS, _values(self), strict=True))
        values["interval"] = self.interval.text
        values |= {
            name: part.document()
            for name, part in zip(PARTS, _parts(self), strict=True)
            if part is not None
        }
        if self.numbers:
            values["numbers"] = dict(self.numbers)
        return values


_FIELDS = tuple(field.name for field in fields(Row))
_RESULT = tuple(field.name for field in fields(Result))
COLUMNS = (*_FIELDS[len(_RESULT) :], *(name for name in _RESULT if name not in (*PARTS, "numbers")))
"""The columns of samples.csv, without the names of the classes."""
TABLE_COLUMNS = tuple(
    column
    for name in COLUMNS
    for column in ((name, f"{name}_name") if name in CLASSES else (name,))
)
"""The columns of samples.csv, and of every other table of rows: each class is followed by its
name."""
_values = attrgetter(*COLUMNS)
_parts = attrgetter(*PARTS)
_result_of = attrgetter(*_RESULT)
_NAMED = tuple(place for place, name in enumerate(TABLE_COLUMNS) if name in CLASSES)


def table_values(row: Row, names: Names | None) -> tuple[Any, ...]:
    """The row as a line of a table: the values of :data:`TABLE_COLUMNS`; a class without a name has
    None.

    Args:
        row: the result.
        names: class names by index.
    """
    values = list(_values(row))
    for place in _NAMED:
        values.insert(place + 1, known_name(values[place], names))
    return tuple(values)


def read_row(values: object) -> Row:
    """The row of a document: each value must have the type of its field, and a null value is NaN.

    Raises:
        ValueError: it is not a row.
    """
    try:
        row = _reader().validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        shown = clipped(ascii(first["input"]), 60)
        if not first["loc"]:
            raise ValueError(f"{shown} is not a result") from None
        name = ".".join(
            map(str, first["loc"][:2] if first["loc"][0] in PARTS else first["loc"][:1])
        )
        raise ValueError(
            f"has no {name}" if first["type"].startswith("missing") else f"{name}: {shown}"
        ) from None
    check_split(row)
    return row


def read_line(line: str | bytes) -> Row:
    """The row of a line of samples.json, without the comma and the end of the line.

    pydantic's own JSON parser takes half the time of Python's. Whatever it refuses is read again by
    :func:`read_row`: for the message, and because an id may have lone surrogates, which only
    Python's parser accepts.

    Raises:
        ValueError, RecursionError: it is not a row.
    """
    try:
        row = _reader().validate_json(line)
    except ValidationError:
        return read_row(json.loads(line))
    check_split(row)
    return row


@functools.cache
def _reader() -> TypeAdapter[Row]:
    return TypeAdapter(Row)


def packed(kept: Tensor) -> Iterator[str]:
    """The bits of each image as text: base64 of bytes, the first draw in the highest bit, zeros
    after the last.

    Args:
        kept: whether each draw kept the class (images, draws).
    """
    for row in np.packbits(kept.cpu().numpy(), axis=1):
        yield base64.b64encode(row.tobytes()).decode()


def bits_of(row: Row) -> Bits | None:
    """Which draws kept the class (draws,); None where the row does not say.

    Two runs with the same seed give a sample the same noise, so draw j of one run can be paired
    with draw j of the other. Where all or none of a fixed number of draws kept the class, the votes
    alone tell.
    """
    votes = row.votes
    if votes is None or row.predicted >= len(votes.counts) or not row.fixed_votes:
        return None
    draws = votes.draws
    count = votes.of(row.predicted)
    if draws < 1:
        return None
    if votes.bits is not None:
        data = np.frombuffer(base64.b64decode(votes.bits), dtype=np.uint8)
        return (
            np.unpackbits(data, count=draws).astype(np.bool_)
            if len(data) == -(-draws // 8)
            else None
        )
    return np.full(draws, count > 0) if count in (0, draws) and draws <= MOST_STORED_DRAWS else None


def without_bits(row: Row) -> Row:
    """The row without :attr:`robaudit.results.Votes.bits`, which take more memory than the rest of
    it."""
    if row.votes is None or row.votes.bits is None:
        return row
    return replace(row, votes=replace(row.votes, bits=None))


def check_split(row: Row) -> None:
    """Check that a row's votes are possible with antithetic pairs.

    Raises:
        ValueError: they are not.
    """
    if row.votes is None or row.votes.split is None:
        return
    split = row.votes.split
    draws = row.votes.draws
    kept = row.votes.of(row.predicted)
    if draws < 2 or draws % 2 or (kept - split) % 2 or split > min(kept, draws - kept):
        raise ValueError(f"votes.split: {split} of the pairs, but {kept} of {draws} votes")
