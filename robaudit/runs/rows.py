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
from robaudit.results import (
    MOST_STORED_DRAWS,
    PARTS,
    Count,
    Result,
    Shared,
    Text,
    Votes,
    WholeOrNot,
)
from robaudit.text import Names, clipped, known_name

if TYPE_CHECKING:
    from torch import Tensor

Bits = NDArray[np.bool_]
"""Whether each draw of a row kept the class (draws,)."""


def _level_name_or_none(text: str) -> str:
    """Check the name of a level, or "none" of a result without a level."""
    return text if text == NONE else LevelName(text).value


_LevelNameOrNone = Annotated[str, Strict(), AfterValidator(_level_name_or_none)]


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
    level_name: _LevelNameOrNone
    level: WholeOrNot
    estimator: Shared
    quantity: Shared

    def __post_init__(self) -> None:
        """Skip the checks of :class:`robaudit.results.Result`: the result was checked on
        construction, or is checked when it is read."""

    @classmethod
    def from_result(cls, result: Result, **address: Any) -> Row:
        """The row of a result; ``address``: the other fields of the row."""
        return cls(**address, **dict(zip(_RESULT_FIELDS, _result_values(result), strict=True)))

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
        """The class of a certificate, or the class that the majority vote flips to; None where
        there is neither."""
        part = self.certificate or self.search
        return None if part is None else part.label

    @property
    def fixed_votes(self) -> bool:
        """Whether the row has votes of copies whose number was fixed in advance.

        The value may be their share, or an approximation from the same copies.
        """
        if self.votes is None:
            return False
        in_pairs = self.votes.split is not None
        is_share = self.interval.kind is IntervalKind.CLOPPER_PEARSON
        is_approximation = not self.interval.covers_bias and self.quantity == P_ROBUST.name
        return in_pairs or is_share or is_approximation

    @property
    def key(self) -> tuple[str, NoiseLevel, str]:
        """The key of the row within its run: sample, noise level and name of the result."""
        return self.sample_id, self.at, self.estimator

    def document(self) -> dict[str, Any]:
        """The row as JSON values; typed parts and numbers only where there are any."""
        document = dict(zip(COLUMNS, _column_values(self), strict=True))
        document["interval"] = self.interval.text
        for name, part in zip(PARTS, _part_values(self), strict=True):
            if part is not None:
                document[name] = part.document()
        if self.numbers:
            document["numbers"] = dict(self.numbers)
        return document


def _table_columns() -> Iterator[str]:
    """The columns, with the name of each class after its index."""
    for name in COLUMNS:
        yield name
        if name in CLASSES:
            yield f"{name}_name"


_FIELDS = tuple(field.name for field in fields(Row))
_RESULT_FIELDS = tuple(field.name for field in fields(Result))
# A dataclass has the fields of its base first; the address comes first in a table. Parts and
# numbers are objects, which no cell of a table can hold.
COLUMNS = (
    *_FIELDS[len(_RESULT_FIELDS) :],
    *(name for name in _RESULT_FIELDS if name not in (*PARTS, "numbers")),
)
"""The columns of samples.csv, without the names of the classes."""
TABLE_COLUMNS = tuple(_table_columns())
"""The columns of samples.csv, and of every other table of rows: each class is followed by its
name."""
# One attrgetter reads all attributes of a row in C; rows are converted by the million.
_column_values = attrgetter(*COLUMNS)
_part_values = attrgetter(*PARTS)
_result_values = attrgetter(*_RESULT_FIELDS)
_CLASS_PLACES = tuple(place for place, name in enumerate(TABLE_COLUMNS) if name in CLASSES)


def table_values(row: Row, names: Names | None) -> tuple[Any, ...]:
    """The row as a line of a table: the values of :data:`TABLE_COLUMNS`; a class without a name has
    None.

    Args:
        row: the result.
        names: class names by index.
    """
    values = list(_column_values(row))
    # Ascending, so that each place already counts the names inserted before it.
    for place in _CLASS_PLACES:
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
        location = first["loc"]
        shown = clipped(ascii(first["input"]), 60)
        if not location:
            raise ValueError(f"{shown} is not a result") from None
        # A member of a part has two names; deeper locations are pydantic's own.
        depth = 2 if location[0] in PARTS else 1
        name = ".".join(map(str, location[:depth]))
        is_missing = first["type"].startswith("missing")
        raise ValueError(f"has no {name}" if is_missing else f"{name}: {shown}") from None
    check_split(row)
    return row


def read_line(line: str | bytes) -> Row:
    """The row of a line of samples.json, without the comma and the end of the line.

    Raises:
        ValueError, RecursionError: the line is not a row.
    """
    # pydantic's own JSON parser takes half the time of Python's. Whatever it refuses is read again
    # by Python's: for the message, and because an id may have lone surrogates, which only that one
    # accepts.
    try:
        row = _reader().validate_json(line)
    except ValidationError:
        return read_row(json.loads(line))
    check_split(row)
    return row


@functools.cache
def _reader() -> TypeAdapter[Row]:
    """The validator of rows, made on first use: it takes a while, and many commands read no
    rows."""
    return TypeAdapter(Row)


def bits_as_text(kept: Tensor) -> Iterator[str]:
    """The bits of each image as text: base64 of bytes, the first draw in the highest bit, zeros
    after the last.

    Args:
        kept: whether each draw kept the class (images, draws).
    """
    for packed_bits in np.packbits(kept.cpu().numpy(), axis=1):
        yield base64.b64encode(packed_bits.tobytes()).decode()


def bits_of(row: Row) -> Bits | None:
    """Which draws kept the class (draws,); None where the row does not say.

    Two runs with the same seed give a sample the same noise, so draw j of one run can be paired
    with draw j of the other.
    """
    votes = row.votes
    if votes is None or row.predicted >= len(votes.counts) or not row.fixed_votes:
        return None
    return bits_of_votes(votes, row.predicted)


def bits_of_votes(votes: Votes, predicted: int) -> Bits | None:
    """Which of the copies behind the votes kept the class ``predicted`` (draws,); None where the
    votes do not say."""
    draws = votes.draws
    kept = votes.for_class(predicted)
    if draws < 1:
        return None
    if votes.bits is not None:
        data = np.frombuffer(base64.b64decode(votes.bits), dtype=np.uint8)
        full_bytes = -(-draws // 8)
        if len(data) != full_bytes:
            return None
        return np.unpackbits(data, count=draws).astype(np.bool_)
    # Bits are left out where the votes tell them: all draws kept the class, or none did. Of more
    # draws than are ever stored, their absence says nothing.
    if kept not in (0, draws) or draws > MOST_STORED_DRAWS:
        return None
    return np.full(draws, kept > 0)


def decided(result: Result, flag: float) -> bool:
    """Whether the interval of a result lies wholly on one side of a threshold, which itself counts
    as above.

    Only an interval that holds at all looks together decides anything between them.
    """
    if result.interval.kind is not IntervalKind.CONFIDENCE_SEQUENCE:
        return False
    if result.lower is None or result.upper is None:
        return False
    return result.lower >= flag or result.upper < flag


def without_bits(row: Row) -> Row:
    """The row without :attr:`robaudit.results.Votes.bits`, which take more memory than the rest of
    the row."""
    if row.votes is None or row.votes.bits is None:
        return row
    return replace(row, votes=replace(row.votes, bits=None))


def check_split(row: Row) -> None:
    """Check that a row's votes are possible with antithetic pairs.

    Raises:
        ValueError: they are impossible.
    """
    if row.votes is None or row.votes.split is None:
        return
    split = row.votes.split
    draws = row.votes.draws
    kept = row.votes.for_class(row.predicted)
    # Each pair that disagrees has one copy that kept the class and one that did not; the others
    # come by twos.
    no_pairs = draws < 2 or draws % 2
    if no_pairs or (kept - split) % 2 or split > min(kept, draws - kept):
        raise ValueError(f"votes.split: {split} of the pairs, but {kept} of {draws} votes")
