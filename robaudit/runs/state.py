"""The state of a run: an SQLite database, ``state.db``; each flush of the audit adds to it in one
transaction.

Each table has an ``id`` in the order of writing and the number of the ``flush`` that wrote the
record:

- ``tasks``: noise level, estimator, and the spec's entries for both (JSON).
- ``samples``: the ids of all samples with results or skips, and the digest of their pixels.
- ``rows``: one result for each sample and task: its line of samples.json, compressed.
- ``skips``: samples that could not be used, and for which task (NULL: for any).
- ``seconds``: by step (``clean``, ``mc@gaussian:sigma=0.1``).

The run.json of a complete run has the file's digest, as for every other file. A growing state has
none: until the run is complete, only SQLite's own check of its pages and the types of the values
reveal damage.

The samples and tasks of a session, and their order, are temporary tables: the order of a data set
may change, and a complete run is not written to. Missing tasks, progress, and results in the order
of the data set are queries on both, so memory is bounded by the page cache and four bytes per
sample.

A flush is durable when :meth:`State.write` returns: the journal is truncated rather than deleted
(which takes a third of the time and unlinks nothing by name), and SQLite syncs journal, database
and folder (``synchronous=EXTRA``). A killed process leaves a journal, and the next process to open
the database restores the state before the transaction from it; :meth:`State.close` removes it.
SQLite's own locks keep readers of an unfinished run from seeing half a transaction, and SQLite
refuses to begin a transaction when the file has been moved. The lock of
:mod:`robaudit.runs.folder`, which also covers the other files, decides who may write.

Readers of a finished run use samples.json instead, which stays intact while the state of an
extension grows.

A database may come from a stranger: it must be a regular file with exactly our schema, its journal
must not name another file (SQLite would delete that file), and results are checked when they are
read.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from robaudit.errors import DataError, RunError
from robaudit.levels import NoiseLevel, noise_level
from robaudit.names import ResultName
from robaudit.runs.info import Skip
from robaudit.runs.rows import Row, read_line
from robaudit.runs.serialise import packed, row_text, unpacked
from robaudit.settings import OUT
from robaudit.spec.model import EstimatorSpec
from robaudit.text import clipped

if TYPE_CHECKING:
    from robaudit.datasets.dataset import Dataset  # which imports torch

NAME = "state.db"
TaskName = tuple[NoiseLevel, str]
"""Noise level and estimator of a task; an estimator with several values for an image has one task
for each."""

_TABLES = ("tasks", "samples", "rows", "skips", "seconds")
_TASK = "noise, level_name, level, estimator"
_SCHEMA = f"""
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY, flush INTEGER, noise, level_name, level, estimator, entry, form,
    UNIQUE ({_TASK})
);
CREATE TABLE samples (id INTEGER PRIMARY KEY, flush INTEGER, name, digest, UNIQUE (name));
CREATE TABLE rows (
    id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, task INTEGER, row,
    UNIQUE (sample, task)
);
CREATE TABLE skips (id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, task INTEGER, reason);
CREATE INDEX skips_of ON skips (sample);
CREATE TABLE seconds (id INTEGER PRIMARY KEY, flush INTEGER, step, seconds);
"""
_VERSION = 6
_INSERT_SAMPLE = """
INSERT INTO samples (flush, name, digest) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET digest = excluded.digest
WHERE digest IS NULL AND excluded.digest IS NOT NULL
"""
_OF_SAMPLE = "(SELECT id FROM samples WHERE name = ?)"
_IS_TASK = f"({_TASK}) = (?, ?, ?, ?)"
_SKIPPED = (
    "SELECT 1 FROM skips WHERE skips.sample = samples.id AND (task IS NULL OR task IN "
    "(SELECT task FROM session_tasks))"
)
_INSERT_ROW = (
    f"INSERT OR IGNORE INTO rows (flush, sample, task, row) VALUES (?, {_OF_SAMPLE}, ?, ?)"  # noqa: S608
)
_INSERT_SKIP = f"INSERT INTO skips (flush, sample, task, reason) VALUES (?, {_OF_SAMPLE}, ?, ?)"  # noqa: S608
_INSERT_TASK = (
    f"INSERT OR IGNORE INTO tasks (flush, {_TASK}, entry, form) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
)
_TASK_ID = f"SELECT id FROM tasks WHERE {_IS_TASK}"  # noqa: S608
_INSERT_SESSION_TASK = (
    f"INSERT INTO temp.session_tasks (task, number) SELECT id, ? FROM tasks WHERE {_IS_TASK}"  # noqa: S608
)
_LAST_FLUSH = "SELECT coalesce((SELECT flush FROM {table} ORDER BY id DESC LIMIT 1), 0)"
_SHAPE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
_PROGRESS = f"""
SELECT place, number FROM places
LEFT JOIN samples ON samples.name = places.name
LEFT JOIN rows ON rows.sample = samples.id
LEFT JOIN session_tasks ON session_tasks.task = rows.task
WHERE NOT EXISTS ({_SKIPPED})
ORDER BY place
"""  # noqa: S608
_DONE = """
SELECT number FROM places
JOIN samples ON samples.name = places.name
JOIN rows ON rows.sample = samples.id
JOIN session_tasks ON session_tasks.task = rows.task
WHERE place = ?
"""
_RESULTS = f"""
SELECT place, digest, row FROM places
CROSS JOIN samples ON samples.name = places.name AND NOT EXISTS ({_SKIPPED})
CROSS JOIN rows ON rows.sample = samples.id
CROSS JOIN session_tasks ON session_tasks.task = rows.task
ORDER BY place, number
"""  # noqa: S608
_SKIPS = """
SELECT place, samples.name, reason, noise, level, level_name, estimator FROM places
CROSS JOIN samples ON samples.name = places.name
CROSS JOIN skips ON skips.sample = samples.id
LEFT JOIN tasks ON tasks.id = skips.task
WHERE skips.task IS NULL OR skips.task IN (SELECT task FROM session_tasks)
ORDER BY place, skips.id
"""
_ALL_ROWS = (
    "SELECT row FROM rows WHERE sample NOT IN (SELECT sample FROM skips) ORDER BY sample, task"
)
_PATIENCE = 600.0  # seconds to wait for a reader
_LONGEST = 2**27  # bytes of a value
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # ends a journal that names another journal
_REMEDY = "delete this file and repeat robaudit estimate: its samples are recomputed"


@dataclass(slots=True)
class Flush:
    """Results that an audit writes in one transaction: rows, skips, pixel digests by sample id, and
    seconds by step."""

    rows: list[Row] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleResults:
    """The results of one sample.

    Attributes:
        rows: in the order of the spec.
        lines: of the rows in samples.json.
        digest: of its pixels.
    """

    rows: Sequence[Row]
    lines: Sequence[str]
    digest: str


def damaged(where: str, why: str) -> RunError:
    """The error for a damaged state."""
    return RunError(where, f"is damaged ({why})", _REMEDY)


def no_guard() -> None:
    """Guard nothing."""


class State:
    """The state of a run, on disk or in memory.

    Args:
        path: the database; None for a database in memory.
        guard: raises if this process may no longer write to the folder
            (:meth:`robaudit.runs.folder.Lock.check`).
        check: check all pages: there is no digest to compare the file with.

    Raises:
        RunError: it is damaged, was not written by robaudit, or the file system refuses.
    """

    def __init__(
        self, path: Path | None = None, guard: Callable[[], None] = no_guard, *, check: bool = False
    ) -> None:
        self._where = str(path or "memory")
        self._guard = guard
        self._path = path
        self._entries: Mapping[str, Any] = {}
        self._noises: Mapping[str, Any] = {}
        self._tasks: list[TaskName] = []
        self._fresh = False
        self._open: Sequence[int] = ()
        self._lacking: list[int] = []
        with self._reading():
            guard()
            if path is not None:
                _refuse_unexpected_files(path)
            self._db = sqlite3.connect(
                ":memory:"
                if path is None
                else f"file:{quote(os.fsencode(path.absolute()))}?mode=rw",
                uri=path is not None,
                isolation_level=None,
                timeout=_PATIENCE,
            )
            try:
                self._prepare()
                if check:
                    self.check()
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(cls, path: Path, guard: Callable[[], None], *, check: bool = False) -> State:
        """Open the database; create it if there is none.

        Raises:
            RunError: as for the class.
        """
        guard()
        try:
            os.close(
                os.open(
                    path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
                )
            )
        except FileExistsError:
            pass
        except OSError as error:
            guard()
            raise _cannot_be_written(str(path), error.strerror or str(error)) from error
        return cls(path, guard, check=check)

    def close(self) -> None:
        """Close the database, and remove the journal if the folder is still the same."""
        with suppress(sqlite3.Error, RunError):
            self._guard()
            if self._path is not None and self._path.with_name(f"{NAME}-journal").exists():
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, new: Flush) -> None:
        """Add results, all or none of them; existing rows stay unchanged.

        Raises:
            RunError: the file system refuses, or the folder has been replaced.
        """
        with self._refusals(), self._transaction():
            db = self._db
            flush = 1 + max(self._value(_LAST_FLUSH.format(table=name)) for name in _TABLES)
            task = self._tasks_of(
                flush,
                [
                    *((row.at, row.estimator) for row in new.rows),
                    *(s.task for s in new.skipped if s.task),
                ],
            )
            names = dict.fromkeys(
                [
                    *new.images,
                    *(row.sample_id for row in new.rows),
                    *(skip.sample_id for skip in new.skipped),
                ]
            )
            db.executemany(_INSERT_SAMPLE, ((flush, name, new.images.get(name)) for name in names))
            db.executemany(
                _INSERT_ROW,
                (
                    (flush, row.sample_id, task[row.at, row.estimator], packed(row_text(row)))
                    for row in new.rows
                ),
            )
            db.executemany(
                _INSERT_SKIP,
                (
                    (flush, skip.sample_id, skip.task and task[skip.task], skip.reason)
                    for skip in new.skipped
                ),
            )
            db.executemany(
                "INSERT INTO seconds (flush, step, seconds) VALUES (?, ?, ?)",
                ((flush, *item) for item in new.seconds.items()),
            )

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
                self._db.execute(
                    "DELETE FROM rows WHERE task IN (SELECT id FROM tasks WHERE estimator = ?)",
                    (name,),
                )
                self._db.execute(
                    "DELETE FROM seconds WHERE instr(step, ? || '@') = 1",
                    (ResultName.parse(name).estimator,),
                )
                self._db.execute(
                    "UPDATE tasks SET entry = ? WHERE estimator = ?",
                    (json.dumps(entries[name]), name),
                )

    def check(self) -> None:
        """Check the pages and indexes.

        Raises:
            RunError: they are damaged, or robaudit did not write them.
        """
        with self._reading():
            part = (
                0
                if self._path is None
                else self._path.stat().st_size % self._value("PRAGMA page_size")
            )
            if part or self._value("PRAGMA integrity_check(1)") != "ok":
                raise self._damaged("its pages are inconsistent")

    def begin(
        self,
        dataset: Dataset,
        tasks: Sequence[TaskName],
        entries: Mapping[str, Any] | None = None,
        noises: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the samples and tasks of this session.

        Args:
            dataset: the samples, in order.
            tasks: estimators and noise levels, in order.
            entries: the spec's estimators by the names of their results, stored with the tasks.
            noises: the spec's noises without their levels, by label.

        Raises:
            DataError: an id appears twice, or is not text that can be written.
            RunError: the file system refuses.
        """
        self._entries, self._noises, self._tasks = entries or {}, noises or {}, list(tasks)
        with self._refusals():
            self._db.execute("DROP TABLE IF EXISTS temp.places")
            self._db.execute("CREATE TEMP TABLE places (place INTEGER PRIMARY KEY, name)")
            self._db.execute("BEGIN")
            try:
                ids = (
                    (place, _checked_id(dataset.sample_id(place), dataset.where))
                    for place in range(len(dataset))
                )
                self._db.executemany("INSERT INTO temp.places (place, name) VALUES (?, ?)", ids)
                self._db.execute("CREATE UNIQUE INDEX temp.place_of ON places (name)")
            except sqlite3.IntegrityError:
                duplicate = self._value(
                    "SELECT name FROM temp.places GROUP BY name HAVING count(*) > 1 ORDER BY "
                    "min(place) LIMIT 1"
                )
                raise DataError(
                    dataset.where,
                    f"the id {duplicate!r} appears twice",
                    "give every sample an id of its own",
                ) from None
            finally:
                self._db.execute("COMMIT")
            self._record_tasks()
            self._fresh = not self._value("SELECT count(*) FROM samples")
            self._open, self._lacking = range(len(dataset)), [len(dataset)] * len(tasks)
            if not self._fresh:
                self._open, self._lacking = self._progress()

    def _progress(self) -> tuple[Sequence[int], list[int]]:
        """The samples that lack a task, and the number of samples that lack each task."""
        unfinished = array("i")
        lacking = [0] * len(self._tasks)
        for place, records in groupby(self._db.execute(_PROGRESS), key=itemgetter(0)):
            done = {number for _, number in records}
            missing = [number for number in range(len(self._tasks)) if number not in done]
            if missing:
                unfinished.append(place)
            for number in missing:
                lacking[number] += 1
        return unfinished, lacking

    @property
    def unfinished(self) -> Sequence[int]:
        """The indices of the samples that lacked a task when :meth:`begin` was called, in order."""
        return self._open

    def missing(self, place: int) -> list[int]:
        """The indices of the tasks that a sample lacks."""
        if self._fresh:
            return list(range(len(self._tasks)))
        with self._reading():
            done = {number for (number,) in self._db.execute(_DONE, (place,))}
        return [number for number in range(len(self._tasks)) if number not in done]

    def lacking(self) -> list[int]:
        """For each task, how many samples lacked it when :meth:`begin` was called."""
        return self._lacking

    def known(self, sample_id: str) -> tuple[str | None, set[tuple[int | None, int]]]:
        """Records of a sample from earlier sessions: the digest of its pixels, and (label,
        predicted class) of its rows."""
        if self._fresh:
            return None, set()
        with self._reading():
            query = (
                "SELECT digest, rows.id, row FROM samples LEFT JOIN rows ON sample = "
                "samples.id WHERE name = ?"
            )
            records = self._db.execute(query, (sample_id,)).fetchall()
            rows = [_row(data) for _, number, data in records if number is not None]
            return records[0][0] if records else None, {(row.label, row.predicted) for row in rows}

    def results(self) -> Iterator[SampleResults]:
        """The results of this session's tasks, sample by sample in the order of the data set,
        without skipped samples.

        Raises:
            RunError: a value is not valid.
        """
        with self._reading():
            self._record_tasks()
            for _, group in groupby(self._db.execute(_RESULTS), key=itemgetter(0)):
                records = list(group)
                lines = [_line(data) for _, _, data in records]
                yield SampleResults(
                    [read_line(line) for line in lines], lines, str(records[0][1] or "")
                )

    def skips(self) -> Iterator[Skip]:
        """The skipped samples, each once, in the order of the data set."""
        with self._reading():
            self._record_tasks()
            for _, records in groupby(self._db.execute(_SKIPS), key=itemgetter(0)):
                _, sample_id, reason, *at, estimator = next(records)
                task = (
                    None
                    if estimator is None
                    else (noise_level(str(at[0]), float(at[1]), str(at[2])), str(estimator))
                )
                yield Skip(sample_id=str(sample_id), reason=str(reason), task=task)

    def rows(self) -> Iterator[Row]:
        """All rows of samples that were never skipped, by sample and then by task, both in the
        order of writing.

        Raises:
            RunError: a value is not valid.
        """
        with self._reading():
            for (data,) in self._db.execute(_ALL_ROWS):
                yield _row(data)

    def images(self) -> dict[str, str]:
        """The pixel digests by sample id."""
        with self._reading():
            return dict(
                self._db.execute(
                    "SELECT name, digest FROM samples WHERE digest NOT NULL"
                ).fetchall()
            )

    def labels(self, sample_ids: Iterable[str]) -> Iterator[tuple[str, str | None, int | None]]:
        """Id, pixel digest and label of each row of these samples."""
        for sample_id in sample_ids:
            digest, classes = self.known(sample_id)
            yield from ((sample_id, digest, label) for label, _ in classes)

    def entries(self) -> Iterator[tuple[str, Any]]:
        """The estimators of the rows: their names in the results and their entries in the spec."""
        with self._reading():
            yield from [
                (name, EstimatorSpec.model_validate(entry).model_dump(mode="json"))
                for name, entry in self._specified("estimator", "entry")
            ]

    def noises(self) -> Iterator[tuple[str, Any]]:
        """The noises of the rows: their labels and their entries in the spec, without levels."""
        yield from self._specified("noise", "form")

    def _specified(self, name: str, value: str) -> Iterator[tuple[str, Any]]:
        """Names in the results and entries in the spec, for the tasks of the rows.

        Raises:
            RunError: an entry is not JSON, or not an entry.
        """
        with self._reading():
            query = f"SELECT DISTINCT {name}, {value} FROM tasks WHERE {value} NOT NULL"  # noqa: S608  the names are constants
            for label, text in self._db.execute(query).fetchall():
                if not isinstance(entry := json.loads(text), dict):
                    raise TypeError(f"{clipped(text, 60)} is not an entry of a spec")
                yield str(label), entry

    def seconds(self) -> dict[str, float]:
        """Seconds by step, over all sessions."""
        with self._reading():
            records = self._db.execute(
                "SELECT step, sum(seconds) FROM seconds GROUP BY step ORDER BY min(id)"
            )
            return {str(step): float(spent) for step, spent in records}

    def _prepare(self) -> None:
        """Apply the settings, and create the schema or check it."""
        for setting in (
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "journal_mode = TRUNCATE",
            "synchronous = EXTRA",
        ):
            self._db.execute(f"PRAGMA {setting}")
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self._guard()
        if not self._db.execute(_SHAPE).fetchall():
            with self._transaction():
                for statement in (
                    *_SCHEMA.strip().split(";\n"),
                    f"PRAGMA user_version = {_VERSION}",
                ):
                    self._db.execute(statement.strip(";"))
        model = sqlite3.connect(":memory:")
        model.executescript(_SCHEMA)
        if (version := self._value("PRAGMA user_version")) != _VERSION:
            raise RunError(
                self._where,
                f"has a state of version {version}",
                f"this robaudit reads version {_VERSION}",
            )
        if self._db.execute(_SHAPE).fetchall() != model.execute(_SHAPE).fetchall():
            raise self._damaged("its tables are not those that robaudit creates")
        model.close()

    def _record_tasks(self) -> None:
        """Record the tasks of this session, and the index of each in the order of the spec."""
        self._db.execute(
            "CREATE TEMP TABLE IF NOT EXISTS session_tasks (task INTEGER PRIMARY KEY, number)"
        )
        self._db.execute("DELETE FROM temp.session_tasks")
        self._db.executemany(
            _INSERT_SESSION_TASK,
            ((number, *_named(name)) for number, name in enumerate(self._tasks)),
        )

    def _tasks_of(self, flush: int, names: Iterable[TaskName]) -> dict[TaskName, int]:
        """The ids of tasks; new tasks are added."""
        ids = {}
        for name in dict.fromkeys(names):
            at, label = name
            entry = json.dumps(self._entries[label]) if label in self._entries else None
            form = (
                json.dumps(self._noises[at.noise])
                if at.noise is not None and at.noise in self._noises
                else None
            )
            values = flush, *_named(name), entry, form
            self._db.execute(
                _INSERT_TASK,
                values,
            )
            ids[name] = self._value(_TASK_ID, *_named(name))
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
        except (
            sqlite3.Error,
            zlib.error,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as error:
            raise self._damaged(f"{type(error).__name__}: {error}"[:200]) from error

    def _refusal(self, error: sqlite3.Error) -> RunError:
        code = error.sqlite_errorcode & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return _cannot_be_written(self._where, os.strerror(errno.ENOSPC))
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            allowed = self._path is None or os.access(self._path.parent, os.W_OK)
            return _cannot_be_written(
                self._where, str(error) if allowed else os.strerror(errno.EACCES)
            )
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM):
            return _cannot_be_written(self._where, str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return RunError(
                self._where, "is being read or written by another process", "wait for it"
            )
        return self._damaged(str(error))

    def _damaged(self, why: str) -> RunError:
        return damaged(self._where, why)


def _named(task: TaskName) -> tuple[str | float, ...]:
    """A task in the columns of ``_TASK``."""
    at, label = task
    return *at.document().values(), label


def _row(data: bytes) -> Row:
    """A stored row.

    Raises:
        zlib.error, ValueError, TypeError: it is not a result.
    """
    return read_line(_line(data))


def _line(data: bytes) -> str:
    """A stored row as a line of samples.json, which it becomes as it is.

    Raises:
        zlib.error, ValueError, TypeError: it is not a line in ASCII.
    """
    line = unpacked(data)
    if "\n" in line or not line.isascii():
        raise ValueError("a row is not a line in ASCII")
    return line


def _checked_id(sample_id: object, where: str) -> str:
    if not isinstance(sample_id, str) or not (
        sample_id.isascii() or not any("\ud800" <= c <= "\udfff" for c in sample_id)
    ):
        raise DataError(
            where,
            f"the id {sample_id!a} is not text that can be written",
            "give every sample an id in valid Unicode",
        )
    return sample_id


def _cannot_be_written(where: str, why: str) -> RunError:
    return RunError(where, f"cannot be written: {why}", "free the disk or choose another folder")


def _refuse_unexpected_files(path: Path) -> None:
    """Refuse a database, or a journal, that SQLite should not open.

    Raises:
        RunError: either is not a regular file, or the journal names another file.
    """
    journal = path.with_name(f"{path.name}-journal")
    for name in (path, journal, path.with_name(f"{path.name}-wal")):
        if os.path.lexists(name) and not stat.S_ISREG(name.lstat().st_mode):
            raise RunError(
                str(name),
                "cannot be read: it is not a regular file",
                "delete it, or choose another " + OUT,
            )
    with suppress(FileNotFoundError):
        if journal.read_bytes().endswith(_SUPER_JOURNAL):
            raise damaged(str(path), "robaudit did not write it")
