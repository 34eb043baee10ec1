"""What is one step of an audit on disk: rows, skips, image digests and seconds, in a checksummed file of its own?"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.files import read_with_checksum, with_checksum, write_atomically
from robaudit.reports.json_text import checked_row
from robaudit.rows import Row

_HELD_ROWS = 8192
_ROW = 1024  # bytes of a row, about


@dataclass(frozen=True, slots=True)
class Skip:
    """A sample that could not be used, and why.

    Attributes:
        task: (sigma, estimator) at which it turned out; None when the sample is of no use at all.
    """

    sample_id: str
    reason: str
    task: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class PartRecord:
    """What one step of the audit computed: rows, skips, image digests by id, and seconds by estimator.

    Attributes:
        estimators: the spec's entries by their names in the results: what the rows were made with.
    """

    rows: Sequence[Row] = ()
    skipped: Sequence[Skip] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    estimators: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rows": [row.document() for row in self.rows],
            "skipped": [[skip.sample_id, skip.reason, *([list(skip.task)] if skip.task else [])] for skip in self.skipped],
            "images": dict(self.images),
            "seconds": dict(self.seconds),
            "estimators": dict(self.estimators),
        }

    @classmethod
    def from_document(cls, values: Mapping[str, Any]) -> PartRecord:
        """The inverse of :meth:`document`.

        Raises:
            LookupError, TypeError, ValueError: they are no such document.
        """
        return cls(
            rows=[checked_row(row) for row in values["rows"]],
            skipped=[_skip(*entry) for entry in values["skipped"]],
            images={str(key): str(digest) for key, digest in values["images"].items()},
            seconds={str(key): float(seconds) for key, seconds in values["seconds"].items()},
            estimators=dict(values["estimators"]),
        )


def _skip(sample_id: object, reason: object, task: Sequence[Any] | None = None) -> Skip:
    if task is None:
        return Skip(str(sample_id), str(reason))
    sigma, estimator = task
    return Skip(str(sample_id), str(reason), (float(sigma), str(estimator)))


class HeldPart:
    """A part in memory, with what it knows of each sample."""

    def __init__(self, record: PartRecord) -> None:
        self.record, self.size = record, len(record.rows) + len(record.skipped) + sum(len(row.kept or "") for row in record.rows) // _ROW
        self.rows: dict[str, list[Row]] = {}
        for row in record.rows:
            self.rows.setdefault(row.sample_id, []).append(row)
        self.skips: dict[str, list[Skip]] = {}
        for skip in record.skipped:
            self.skips.setdefault(skip.sample_id, []).append(skip)


@dataclass(slots=True)
class KeptParts:
    """Parts that are kept in memory and go to no disk."""

    records: list[PartRecord] = field(default_factory=list)

    def write(self, record: PartRecord) -> int:
        """Add a part; returns its number."""
        self.records.append(record)
        return len(self.records) - 1

    def held(self, number: int) -> HeldPart:
        """A part with what it knows of each sample."""
        return HeldPart(self.records[number])


class PartFiles:
    """The parts in a folder, by number; the last ones read stay in memory, some thousand rows in all.

    Attributes:
        estimators: what new parts are made with: the spec's entries by their names in the results.
        guard: raises if the folder is no longer ours to write.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.estimators: Mapping[str, Any] = {}
        self.guard: Callable[[], None] | None = None
        self._together = 2  # parts that a sample is in, and those that its neighbour is in
        self._next: int | None = None
        self._held: OrderedDict[int, HeldPart] = OrderedDict()

    def numbers(self) -> list[int]:
        """The numbers of all parts, in the order they were written."""
        return sorted(number for path in self._folder.glob("part-*.json") if (number := _number(path)) is not None)

    def __iter__(self) -> Iterator[PartRecord]:
        """All parts in the order they were written, one at a time."""
        return map(self.read, self.numbers())

    def read(self, number: int) -> PartRecord:
        """One part, from its file.

        Raises:
            RunError: it is damaged.
        """
        path = self._path(number)
        document = read_with_checksum(path)
        try:
            return PartRecord.from_document(document)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                str(path), f"is no part of a run ({error})", "delete this file and run the same command: its samples are redone"
            ) from error

    def held(self, number: int) -> HeldPart:
        """One part, from memory where it was asked for a short while ago."""
        if number in self._held:
            self._held.move_to_end(number)
        else:
            self._held[number] = HeldPart(self.read(number))
            total = sum(held.size for held in self._held.values())
            while total > _HELD_ROWS and len(self._held) > self._together:
                total -= self._held.popitem(last=False)[1].size
        return self._held[number]

    def of_sample(self, numbers: Sequence[int]) -> list[HeldPart]:
        """All parts that know a sample; they stay in memory for its neighbours, however many they are."""
        self._together = max(self._together, 2 * len(numbers))
        return [self.held(number) for number in numbers]

    def write(self, record: PartRecord) -> int:
        """Add a part; returns its number, which is never used again.

        Raises:
            RunError: the disk refuses.
        """
        if self._next is None:
            self._next = max(self.numbers(), default=-1) + 1
        number, self._next = self._next, self._next + 1
        write_atomically(self._path(number), with_checksum(replace(record, estimators=self.estimators).document()), self.guard)
        return number

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.json"


def _number(path: Path) -> int | None:
    text = path.stem.removeprefix("part-")
    return int(text) if text.isascii() and text.isdecimal() else None
