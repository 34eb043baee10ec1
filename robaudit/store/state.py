"""The state of a run: one SQLite database, ``state.db``, to which each flush of the audit adds in one transaction.

Each table has an ``id`` in the order of writing and the number of the ``flush`` that wrote the record:

- ``tasks``: noise level, estimator, and the spec's entries for both (JSON).
- ``samples``: the ids of all samples with results or skips.
- ``images``: the digest of a sample's pixels.
- ``rows``: one result for each sample and task, in the columns of samples.csv; its typed parts and its numbers are JSON.
- ``skips``: samples that could not be used, and for which task (NULL: for any).
- ``seconds``: by step (``clean``, ``mc@gaussian:sigma=0.1``).

The run.json of a complete run has the file's digest, as of every other file. A growing state has none: until the run is complete, only
SQLite's own check of its pages and the types of the values reveal damage.

Columns of values have no type, because SQLite would store -0.0 as 0 and 1 as 1.0 in a typed one, and outputs must keep every bit;
columns that refer to an id are INTEGER, so that joins can use an index. The samples and tasks that a session asks for, and their
order, are temporary tables: the order of a data set may change, and a complete run is not written to. Missing tasks, progress,
and results in the order of the data set are queries on both, so memory is bounded by the page cache and four bytes per
sample.

A flush is durable when :meth:`State.write` returns: the journal is truncated rather than deleted (which takes a third of the time
and unlinks nothing by name), and SQLite syncs journal, database and folder (``synchronous=EXTRA``). A killed process leaves a journal,
from which the next one to open the database restores the state before the transaction; :meth:`State.close` removes it. SQLite's own
locks keep readers of an unfinished run from seeing half a transaction, and SQLite refuses to begin one when the file has been moved.
The lock of :mod:`robaudit.store.folder`, which also covers the other files, decides who may write.

Readers of a finished run do not use the state: they read samples.json, which stays intact while the state of an extension grows.

A database may come from a stranger: it must be a regular file with exactly our schema, its journal must not name another file (SQLite
would delete that file), and results are checked when they are read.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sqlite3
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import TypeAdapter

from robaudit.errors import DataError, RunError
from robaudit.levels import NoiseLevel, noise_level
from robaudit.names import ResultName
from robaudit.results import PARTS
from robaudit.rows import COLUMNS, Row, read_row
from robaudit.spec.model import EstimatorSpec

if TYPE_CHECKING:
    from robaudit.datasets.base import Dataset  # which imports torch

NAME = "state.db"
TaskName = tuple[NoiseLevel, str]
"""Noise level and estimator of a task; an estimator that gives several values of an image has one task for each."""

_TABLES = ("tasks", "samples", "images", "rows", "skips", "seconds")
_TASK = ("noise", "level_name", "level", "estimator")
_PLAIN = tuple(name for name in COLUMNS if name not in ("sample_id", *_TASK))
_JSON = (*PARTS, "numbers")
_plain_of, _parts_of = attrgetter(*_PLAIN[:-1]), attrgetter(*PARTS)  # the last plain one is the interval
_COLUMNS = (*_PLAIN, *_JSON)
_SCHEMA = f"""
CREATE TABLE tasks (id INTEGER PRIMARY KEY, flush INTEGER, noise, level_name, level, estimator, entry, form,
    UNIQUE (noise, level_name, level, estimator));
CREATE TABLE samples (id INTEGER PRIMARY KEY, flush INTEGER, name, UNIQUE (name));
CREATE TABLE images (id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, digest, UNIQUE (sample));
CREATE TABLE rows (id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, task INTEGER, {", ".join(_COLUMNS)}, UNIQUE (sample, task));
CREATE TABLE skips (id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, task INTEGER, reason);
CREATE INDEX skips_of ON skips (sample);
CREATE TABLE seconds (id INTEGER PRIMARY KEY, flush INTEGER, step, seconds);
"""
_VERSION = 4
_ROW = f"samples.name, {', '.join((*_TASK, *_COLUMNS))}"
_ROW_NAMES = ("sample_id", *_TASK, *_COLUMNS)
_INSERT_ROW = (
    f"INSERT OR IGNORE INTO rows (flush, sample, task, {', '.join(_COLUMNS)}) "  # noqa: S608  the names are constants
    f"VALUES (?, (SELECT id FROM samples WHERE name = ?), ?{', ?' * len(_COLUMNS)})"
)
_INSERT_TASK = f"INSERT OR IGNORE INTO tasks (flush, {', '.join(_TASK)}, entry, form) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_IS_TASK = " AND ".join(f"{name} = ?" for name in _TASK)
_SKIPPED = "SELECT 1 FROM skips WHERE skips.sample = samples.id AND (task IS NULL OR task IN (SELECT task FROM asked))"
_SHAPE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
_DONE_OF_SAMPLE = "SELECT number FROM rows JOIN asked ON asked.task = rows.task WHERE rows.sample = samples.id"
_UNFINISHED = f"""
SELECT place FROM places LEFT JOIN samples ON samples.name = places.name
WHERE samples.id IS NULL OR NOT (EXISTS ({_SKIPPED}) OR (SELECT count(*) FROM ({_DONE_OF_SAMPLE})) = ?) ORDER BY place
"""  # noqa: S608
_DONE = """
SELECT number FROM places JOIN samples ON samples.name = places.name JOIN rows ON rows.sample = samples.id
JOIN asked ON asked.task = rows.task WHERE place = ?
"""
_OF_ASKED_SAMPLES = f"FROM places CROSS JOIN samples ON samples.name = places.name AND NOT EXISTS ({_SKIPPED})"
_DONE_BY_TASK = f"""
SELECT number, count(*) {_OF_ASKED_SAMPLES} CROSS JOIN rows ON rows.sample = samples.id JOIN asked ON asked.task = rows.task GROUP BY number
"""
_NOT_SKIPPED = f"""
SELECT count(*) FROM places LEFT JOIN samples ON samples.name = places.name WHERE samples.id IS NULL OR NOT EXISTS ({_SKIPPED})
"""  # noqa: S608
_RESULTS = f"""
SELECT place, digest, {_ROW} {_OF_ASKED_SAMPLES} CROSS JOIN rows ON rows.sample = samples.id CROSS JOIN asked ON asked.task = rows.task
CROSS JOIN tasks ON tasks.id = rows.task LEFT JOIN images ON images.sample = samples.id ORDER BY place, number
"""
_SKIPS = """
SELECT place, samples.name, reason, noise, level, level_name, estimator FROM places CROSS JOIN samples ON samples.name = places.name
CROSS JOIN skips ON skips.sample = samples.id LEFT JOIN tasks ON tasks.id = skips.task
WHERE skips.task IS NULL OR skips.task IN (SELECT task FROM asked) ORDER BY place, skips.id
"""
_ALL_ROWS = f"""
SELECT {_ROW} FROM rows JOIN samples ON samples.id = rows.sample JOIN tasks ON tasks.id = rows.task
WHERE rows.sample NOT IN (SELECT sample FROM skips) ORDER BY rows.sample, rows.id
"""  # noqa: S608
_TRUTH = {None: None, 0: False, 1: True}
_PATIENCE = 600.0  # seconds to wait for a reader
_LONGEST = 2**27  # bytes of a value
HEADER = 512  # bytes; SQLite takes a shorter file for an empty one
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # ends a journal that names another
_REMEDY = "delete this file and repeat robaudit estimate: its samples are recomputed"
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Skip:
    """A sample that could not be used, and why.

    Attributes:
        task: the failed one; None if the sample cannot be used at all.
    """

    sample_id: str
    reason: str
    task: TaskName | None = None


@dataclass(frozen=True, slots=True)
class Flush:
    """The results that an audit writes at once: rows, skips, pixel digests by sample id, and seconds by step."""

    rows: Sequence[Row] = ()
    skipped: Sequence[Skip] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleResults:
    """The results of one sample.

    Attributes:
        rows: in the order of the spec.
        digest: of its pixels.
    """

    rows: Sequence[Row]
    digest: str


def damaged(where: str, why: str) -> RunError:
    """The error about a state that has changed since it was written."""
    return RunError(where, f"is damaged ({why})", _REMEDY)


def no_guard() -> None:
    """Guard nothing."""


class State:
    """The state of a run, on disk or in memory.

    Args:
        path: the database; None for one in memory.
        guard: raises if this process may no longer write to the folder (:meth:`robaudit.store.folder.Lock.check`).

    Raises:
        RunError: it is damaged, was not written by robaudit, or the file system refuses.
    """

    def __init__(self, path: Path | None = None, guard: Callable[[], None] = no_guard) -> None:
        self._where, self._guard = str(path or "memory"), guard
        self._path = path
        self._entries: Mapping[str, Any] = {}
        self._noises: Mapping[str, Any] = {}
        self._asked: list[TaskName] = []
        self._fresh = True
        self._open: Sequence[int] = ()
        with self._reading():
            guard()
            if path is not None:
                _refuse_unexpected_files(path)
            self._db = sqlite3.connect(
                ":memory:" if path is None else f"file:{quote(os.fsencode(path.absolute()))}?mode=rw",
                uri=path is not None,
                isolation_level=None,
                timeout=_PATIENCE,
            )
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(cls, path: Path, guard: Callable[[], None]) -> State:
        """Open the database; create it if there is none.

        Raises:
            RunError: as for the class.
        """
        guard()
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            pass
        except OSError as error:
            guard()
            raise _cannot_be_written(str(path), error.strerror or str(error)) from error
        return cls(path, guard)

    def close(self) -> None:
        """Close the database, and remove the journal if the folder is still the same."""
        with suppress(sqlite3.Error, RunError):
            self._guard()
            if self._path is not None and self._path.with_name(f"{NAME}-journal").exists():
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, new: Flush) -> None:
        """Add results, all or none; existing rows stay unchanged.

        Raises:
            RunError: the file system refuses, or the folder has been replaced.
        """
        with self._refusals(), self._transaction():
            db = self._db
            flush = 1 + max(self._value(f"SELECT coalesce((SELECT flush FROM {name} ORDER BY id DESC LIMIT 1), 0)") for name in _TABLES)  # noqa: S608
            task = self._tasks_of(flush, [*((row.at, row.estimator) for row in new.rows), *(s.task for s in new.skipped if s.task)])
            names = dict.fromkeys([*new.images, *(row.sample_id for row in new.rows), *(skip.sample_id for skip in new.skipped)])
            db.executemany("INSERT OR IGNORE INTO samples (flush, name) VALUES (?, ?)", ((flush, name) for name in names))
            db.executemany(
                "INSERT OR IGNORE INTO images (flush, sample, digest) VALUES (?, (SELECT id FROM samples WHERE name = ?), ?)",
                ((flush, name, digest) for name, digest in new.images.items()),
            )
            db.executemany(_INSERT_ROW, ((flush, row.sample_id, task[row.at, row.estimator], *_values(row)) for row in new.rows))
            db.executemany(
                "INSERT INTO skips (flush, sample, task, reason) VALUES (?, (SELECT id FROM samples WHERE name = ?), ?, ?)",
                ((flush, skip.sample_id, skip.task and task[skip.task], skip.reason) for skip in new.skipped),
            )
            db.executemany("INSERT INTO seconds (flush, step, seconds) VALUES (?, ?, ?)", ((flush, *item) for item in new.seconds.items()))

    def forget_others(self, entries: Mapping[str, Any]) -> None:
        """Remove the results of estimators that were computed with other options.

        Args:
            entries: the spec's estimators by the names of their results.

        Raises:
            RunError: the file system refuses.
        """
        other = [name for name, entry in self.entries() if entries.get(name, entry) != entry]
        if not other:  # a complete run is not written to
            return
        with self._refusals(), self._transaction():
            for name in other:
                self._db.execute("DELETE FROM rows WHERE task IN (SELECT id FROM tasks WHERE estimator = ?)", (name,))
                self._db.execute("DELETE FROM seconds WHERE instr(step, ? || '@') = 1", (ResultName.parse(name).estimator,))
                self._db.execute("UPDATE tasks SET entry = ? WHERE estimator = ?", (_encode(entries[name]), name))

    def check(self, *, rows: bool = True) -> None:
        """Check the pages and indexes and, unless they will be read anyway, all results.

        Raises:
            RunError: they are damaged, or robaudit did not write them.
        """
        with self._reading():
            part = 0 if self._path is None else self._path.stat().st_size % self._value("PRAGMA page_size")
            if part or self._value("PRAGMA integrity_check(1)") != "ok":
                raise self._damaged("its pages are inconsistent")
        if rows:
            for _ in self.rows():
                pass

    def begin(
        self, dataset: Dataset, tasks: Sequence[TaskName], entries: Mapping[str, Any] | None = None, noises: Mapping[str, Any] | None = None
    ) -> None:
        """Set the samples and tasks that this session asks for.

        Args:
            dataset: the samples, in order.
            tasks: estimators and noise levels, in order.
            entries: the spec's estimators by the names of their results, kept with the tasks.
            noises: the spec's noises without their levels, by label.

        Raises:
            DataError: an id appears twice, or is not text that can be written.
            RunError: the file system refuses.
        """
        self._entries, self._noises, self._asked = entries or {}, noises or {}, list(tasks)
        with self._refusals():
            self._db.execute("DROP TABLE IF EXISTS temp.places")
            self._db.execute("CREATE TEMP TABLE places (place INTEGER PRIMARY KEY, name)")
            self._db.execute("BEGIN")
            try:
                ids = ((place, _checked_id(dataset.sample_id(place), dataset.where)) for place in range(len(dataset)))
                self._db.executemany("INSERT INTO temp.places (place, name) VALUES (?, ?)", ids)
                self._db.execute("CREATE UNIQUE INDEX temp.place_of ON places (name)")
            except sqlite3.IntegrityError:
                twice = self._value("SELECT name FROM temp.places GROUP BY name HAVING count(*) > 1 ORDER BY min(place) LIMIT 1")
                raise DataError(dataset.where, f"the id {twice!r} appears twice", "give every sample an id of its own") from None
            finally:
                self._db.execute("COMMIT")
            self._ask()
            self._fresh = not self._value("SELECT count(*) FROM samples")
            self._open = (
                range(len(dataset)) if self._fresh else array("i", (place for (place,) in self._db.execute(_UNFINISHED, (len(tasks),))))
            )

    @property
    def unfinished(self) -> Sequence[int]:
        """The indices of the samples that lacked a task when :meth:`begin` was called, in order."""
        return self._open

    def missing(self, place: int) -> list[int]:
        """The indices of the tasks that a sample lacks."""
        if self._fresh:
            return list(range(len(self._asked)))
        with self._reading():
            done = {number for (number,) in self._db.execute(_DONE, (place,))}
        return [number for number in range(len(self._asked)) if number not in done]

    def lacking(self) -> list[int]:
        """For each task, how many of the unfinished samples lacked it when :meth:`begin` was called."""
        if self._fresh:
            return [len(self._open)] * len(self._asked)
        with self._reading():
            done = dict(self._db.execute(_DONE_BY_TASK).fetchall())
            whole = self._value(_NOT_SKIPPED)
        return [whole - done.get(number, 0) for number in range(len(self._asked))]

    def known(self, sample_id: str) -> tuple[str | None, set[tuple[int | None, int]]]:
        """Records of a sample from earlier sessions: the digest of its pixels, and (label, predicted class) of its rows."""
        if self._fresh:
            return None, set()
        with self._reading():
            records = self._db.execute(
                "SELECT id, (SELECT digest FROM images WHERE sample = samples.id) FROM samples WHERE name = ?", (sample_id,)
            )
            sample, digest = records.fetchone() or (None, None)
            return digest, set(self._db.execute("SELECT DISTINCT label, predicted FROM rows WHERE sample = ?", (sample,)))

    def results(self) -> Iterator[SampleResults]:
        """The results asked for, sample by sample in the order of the data set, without the samples that were skipped.

        Raises:
            RunError: a value is not valid.
        """
        with self._reading():
            self._ask()
            for _, group in groupby(self._db.execute(_RESULTS), key=itemgetter(0)):
                records = list(group)
                yield SampleResults([_row(record[2:]) for record in records], str(records[0][1] or ""))

    def skips(self) -> Iterator[Skip]:
        """The samples that were skipped, each once, in the order of the data set."""
        with self._reading():
            self._ask()
            for _, records in groupby(self._db.execute(_SKIPS), key=itemgetter(0)):
                _, sample_id, reason, *at, estimator = next(records)
                task = None if estimator is None else (noise_level(str(at[0]), float(at[1]), str(at[2])), str(estimator))
                yield Skip(str(sample_id), str(reason), task)

    def rows(self) -> Iterator[Row]:
        """All rows of samples that were never skipped, sample by sample in the order of writing.

        Raises:
            RunError: a value is not valid.
        """
        with self._reading():
            for record in self._db.execute(_ALL_ROWS):
                yield _row(record)

    def images(self) -> dict[str, str]:
        """The pixel digests by sample id."""
        with self._reading():
            return dict(self._db.execute("SELECT name, digest FROM images JOIN samples ON samples.id = images.sample").fetchall())

    def labels(self, sample_ids: Iterable[str]) -> Iterator[tuple[str, str | None, int | None]]:
        """Id, pixel digest and label of each row of these samples."""
        with self._reading():
            for sample_id in sample_ids:
                records = self._db.execute(
                    "SELECT digest, label FROM samples JOIN rows ON rows.sample = samples.id "
                    "LEFT JOIN images ON images.sample = samples.id "
                    "WHERE name = ?",
                    (sample_id,),
                )
                yield from ((sample_id, digest, label) for digest, label in records)

    def entries(self) -> Iterator[tuple[str, Any]]:
        """The estimators that rows were computed with: their names in the results and their entries in the spec."""
        with self._reading():
            yield from [
                (name, EstimatorSpec.model_validate(entry).model_dump(mode="json")) for name, entry in self._specified("estimator", "entry")
            ]

    def noises(self) -> Iterator[tuple[str, Any]]:
        """The noises that rows were computed under: their labels and their entries in the spec, without levels."""
        yield from self._specified("noise", "form")

    def _specified(self, name: str, value: str) -> Iterator[tuple[str, Any]]:
        """Names in the results and entries in the spec, of the tasks that rows were computed for.

        Raises:
            RunError: an entry is not JSON, or not an entry.
        """
        with self._reading():
            query = f"SELECT DISTINCT {name}, {value} FROM tasks WHERE {value} NOT NULL"  # noqa: S608  the names are constants
            for label, text in self._db.execute(query).fetchall():
                yield str(label), _entry().validate_json(text)

    def seconds(self) -> dict[str, float]:
        """Seconds by step, over all sessions."""
        with self._reading():
            records = self._db.execute("SELECT step, sum(seconds) FROM seconds GROUP BY step ORDER BY min(id)")
            return {str(step): float(spent) for step, spent in records}

    def _prepare(self) -> None:
        """Apply the settings, and create the schema or compare it with ours."""
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "journal_mode = TRUNCATE", "synchronous = EXTRA"):
            self._db.execute(f"PRAGMA {setting}")
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self._guard()
        if not self._db.execute(_SHAPE).fetchall():
            with self._transaction():
                for statement in (*_SCHEMA.strip().split(";\n"), f"PRAGMA user_version = {_VERSION}"):
                    self._db.execute(statement.strip(";"))
        model = sqlite3.connect(":memory:")
        model.executescript(_SCHEMA)
        version = self._value("PRAGMA user_version")
        if version != _VERSION and self._db.execute(_SHAPE).fetchall() == model.execute(_SHAPE).fetchall():
            raise RunError(self._where, f"has a state of version {version}", f"this robaudit reads version {_VERSION}")
        if version != _VERSION or self._db.execute(_SHAPE).fetchall() != model.execute(_SHAPE).fetchall():
            raise self._damaged("its tables are not those that robaudit creates")
        model.close()

    def _ask(self) -> None:
        """Record the tasks of this session, and the index of each in the order of the spec."""
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS asked (task INTEGER PRIMARY KEY, number)")
        self._db.execute("DELETE FROM temp.asked")
        self._db.executemany(
            f"INSERT INTO temp.asked (task, number) SELECT id, ? FROM tasks WHERE {_IS_TASK}",  # noqa: S608
            ((number, *_named(name)) for number, name in enumerate(self._asked)),
        )

    def _tasks_of(self, flush: int, names: Iterable[TaskName]) -> dict[TaskName, int]:
        """The ids of tasks; new ones are added."""
        ids = {}
        for name in dict.fromkeys(names):
            at, label = name
            entry = _encode(self._entries[label]) if label in self._entries else None
            form = _encode(self._noises[at.noise]) if at.noise is not None and at.noise in self._noises else None
            self._db.execute(_INSERT_TASK, (flush, *_named(name), entry, form))
            ids[name] = self._value(f"SELECT id FROM tasks WHERE {_IS_TASK}", *_named(name))  # noqa: S608
        return ids

    def _value(self, query: str, *values: Any) -> Any:
        return self._db.execute(query, values).fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._guard()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._guard()
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn SQLite's errors into errors for the user."""
        try:
            yield
        except sqlite3.Error as error:
            if not hasattr(error, "sqlite_errorcode"):  # a bug in robaudit
                raise
            self._guard()  # if the folder is gone, that is the reason
            raise self._refusal(error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn SQLite's errors and invalid values into errors for the user."""
        try:
            with self._refusals():
                yield
        except (sqlite3.Error, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._damaged(f"{type(error).__name__}: {error}"[:200]) from error

    def _refusal(self, error: sqlite3.Error) -> RunError:
        code = error.sqlite_errorcode & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return _cannot_be_written(self._where, os.strerror(errno.ENOSPC))
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            allowed = self._path is None or os.access(self._path.parent, os.W_OK)
            return _cannot_be_written(self._where, str(error) if allowed else os.strerror(errno.EACCES))
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM):
            return _cannot_be_written(self._where, str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return RunError(self._where, "is being read or written by another process", "wait for it")
        return self._damaged(str(error))

    def _damaged(self, why: str) -> RunError:
        return damaged(self._where, why)


def _named(task: TaskName) -> tuple[str | float, ...]:
    """A task in the columns of :data:`_TASK`."""
    at, label = task
    return *at.document().values(), label


def _values(row: Row) -> list[Any]:
    """The values of a row for the table ``rows``."""
    values = [*_plain_of(row), row.interval.text]
    values += [None if part is None else _encode(part.document()) for part in _parts_of(row)]
    return [*values, _encode(dict(row.numbers)) if row.numbers else None]


def _row(record: Sequence[Any]) -> Row:
    """The row of a record in the columns of :data:`_ROW`.

    Raises:
        ValueError, LookupError, TypeError: it is not a result.
    """
    values = dict(zip(_ROW_NAMES, record, strict=True))
    values["correct"] = _TRUTH[values["correct"]]
    for name in _JSON:
        text = values.pop(name)
        if text is not None:
            values[name] = json.loads(text)
    return read_row(values)


@functools.cache
def _entry() -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(dict[str, Any])


def _checked_id(sample_id: object, where: str) -> str:
    if not isinstance(sample_id, str) or not (sample_id.isascii() or not any("\ud800" <= c <= "\udfff" for c in sample_id)):
        raise DataError(where, f"the id {sample_id!a} is not text that can be written", "give every sample an id of whole characters")
    return sample_id


def _cannot_be_written(where: str, why: str) -> RunError:
    return RunError(where, f"cannot be written: {why}", "free the disk or choose another folder")


def _refuse_unexpected_files(path: Path) -> None:
    """Refuse a database, or a journal, that SQLite should not open.

    Raises:
        RunError: it is not a regular file, is in a mode that robaudit does not use, or has a journal that names another file.
    """
    journal = path.with_name(f"{path.name}-journal")
    try:
        for name in (path, journal, path.with_name(f"{path.name}-wal")):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(name.lstat().st_mode):
                    raise RunError(str(name), "cannot be read: it is not a regular file", "delete it, or choose another --out")
                with name.open("rb") as file:
                    head = file.read(HEADER)
                    file.seek(max(0, name.stat().st_size - 8))
                    tail = file.read(8)
                if name is path and 0 < len(head) < HEADER and not journal.exists():
                    raise damaged(str(path), "it ends within its header")
                if 2 in head[18:20] if name is path else name.name.endswith("-wal") or tail == _SUPER_JOURNAL:  # 2: write-ahead log
                    raise damaged(str(path), "robaudit did not write it")
    except OSError as error:
        raise RunError(str(path), f"cannot be read: {error.strerror or error}", "choose another --out") from error
