"""The state of a run: the SQLite database ``state.db``.

Each flush of the audit adds to it in one transaction. Each table has an ``id`` in the order of
writing and the number of the ``flush`` that wrote the record:

- ``tasks``: noise level, estimator, and the spec's entries for both (JSON).
- ``samples``: the ids of all samples with results or skips, and the digest of their pixels.
- ``rows``: one result for each sample and task: its line of samples.json, compressed. A result
  from a part of its copies has their number in ``draws``, and the result from more copies replaces
  it; a final one has NULL.
- ``skips``: samples that could not be used, and for which task (NULL: for any).
- ``seconds``: by step (``clean``, ``mc@gaussian:sigma=0.1``).

The run.json of a complete run has the file's digest, as for every other file. A growing state has
none: until the run is complete, only SQLite's own check of its pages and the types of the values
reveal damage.

The samples and tasks of a session, and their order, are temporary tables: the order of a data set
may change, and a complete run is not written to. Missing tasks, progress, and results in the order
of the data set are queries that join them with the stored tables. So memory is bounded by the page
cache and four bytes per sample.

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
from robaudit.runs.info import Skip
from robaudit.runs.rows import Row, read_line
from robaudit.runs.serialise import compressed, decompressed, row_text
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
# SQLite stores these statements, and _check_tables compares the stored ones to the letter: whoever
# changes a character here raises _VERSION. Columns without a type keep values as given. `entry` is
# the spec's entry of the estimator, `form` its entry of the noise.
# SQLite keeps the text of these statements, and readers compare it: another space is another
# version of the file.
_SCHEMA = (
    "CREATE TABLE tasks (id INTEGER PRIMARY KEY, flush INTEGER, noise, level_name, level, "
    f"estimator, entry, form, UNIQUE ({_TASK}))",
    "CREATE TABLE samples (id INTEGER PRIMARY KEY, flush INTEGER, name, digest, UNIQUE (name))",
    "CREATE TABLE rows (id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, task INTEGER, "
    "draws INTEGER, row, UNIQUE (sample, task))",
    "CREATE TABLE skips (id INTEGER PRIMARY KEY, flush INTEGER, sample INTEGER, task INTEGER, "
    "reason)",
    "CREATE INDEX skips_of ON skips (sample)",
    "CREATE TABLE seconds (id INTEGER PRIMARY KEY, flush INTEGER, step, seconds)",
)
_VERSION = 7
# Finished runs of this version are read: its rows have no number of draws, which only an audit that
# goes on asks for.
_EARLIER_VERSION = 6
_EARLIER_SCHEMA = tuple(statement.replace("draws INTEGER, ", "") for statement in _SCHEMA)
# A sample may first appear as a skip, without a digest; a later flush then adds the digest.
_INSERT_SAMPLE = """
INSERT INTO samples (flush, name, digest) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET digest = excluded.digest
WHERE digest IS NULL AND excluded.digest IS NOT NULL
"""
_SAMPLE_ID = "(SELECT id FROM samples WHERE name = ?)"
_IS_TASK = f"({_TASK}) = (?, ?, ?, ?)"
# A skip counts if it is for the whole sample, or for a task that this session asks for.
_SKIPPED = (
    "SELECT 1 FROM skips WHERE skips.sample = samples.id AND (task IS NULL OR task IN "
    "(SELECT task FROM session_tasks))"
)
# A final row stays as it is; one from a part of its copies gives way to one from more.
_INSERT_ROW = f"""
INSERT INTO rows (flush, sample, task, draws, row) VALUES (?, {_SAMPLE_ID}, ?, ?, ?)
ON CONFLICT (sample, task) DO UPDATE
SET flush = excluded.flush, draws = excluded.draws, row = excluded.row
WHERE rows.draws NOT NULL AND (excluded.draws IS NULL OR excluded.draws > rows.draws)
"""  # noqa: S608
_INSERT_SKIP = (
    "INSERT INTO skips (flush, sample, task, reason) "  # noqa: S608
    f"VALUES (?, {_SAMPLE_ID}, ?, ?)"
)
_INSERT_TASK = (
    f"INSERT OR IGNORE INTO tasks (flush, {_TASK}, entry, form) "  # noqa: S608
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_TASK_ID = f"SELECT id FROM tasks WHERE {_IS_TASK}"  # noqa: S608
_INSERT_SESSION_TASK = (
    "INSERT INTO temp.session_tasks (task, number) "  # noqa: S608
    f"SELECT id, ? FROM tasks WHERE {_IS_TASK}"
)
_LAST_FLUSH = "SELECT coalesce((SELECT flush FROM {table} ORDER BY id DESC LIMIT 1), 0)"
_SHAPE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
# A record for each sample and stored task of the session; a sample without any has a NULL number.
_PROGRESS = f"""
SELECT place, number, draws FROM places
LEFT JOIN samples ON samples.name = places.name
LEFT JOIN rows ON rows.sample = samples.id
LEFT JOIN session_tasks ON session_tasks.task = rows.task
WHERE NOT EXISTS ({_SKIPPED})
ORDER BY place
"""  # noqa: S608
_STORED = """
SELECT number, draws FROM places
JOIN samples ON samples.name = places.name
JOIN rows ON rows.sample = samples.id
JOIN session_tasks ON session_tasks.task = rows.task
WHERE place = ?
"""
_ROW = f"SELECT row FROM rows WHERE sample = {_SAMPLE_ID} AND task IN ({{task}})"  # noqa: S608
# In SQLite, CROSS JOIN fixes the order of the loops: places come first, so that the results are
# read in the order of the data set without sorting all of them.
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
_STORED_ROWS = """
SELECT samples.id, digest, row FROM samples
JOIN rows ON rows.sample = samples.id
WHERE samples.id NOT IN (SELECT sample FROM skips)
ORDER BY samples.id, task
"""
_STORED_SKIPS = """
SELECT samples.name, reason FROM skips JOIN samples ON samples.id = sample
WHERE skips.id IN (SELECT min(id) FROM skips GROUP BY sample) ORDER BY samples.id
"""
_PATIENCE = 600.0  # seconds to wait for a reader
# The largest value that SQLite loads, in bytes: a stranger's database must not fill the memory.
_LONGEST = 2**27
# SQLite's magic number, which ends a journal that names another journal ("super-journal" in
# https://www.sqlite.org/fileformat.html#the_rollback_journal).
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
_REMEDY = "delete this file and repeat robaudit estimate: its samples are recomputed"


RowKey = tuple[str, NoiseLevel, str]
"""Sample, noise level and name of a result."""


@dataclass(slots=True)
class Lacking:
    """The results of a task that are missing or not final.

    Attributes:
        samples: how many samples lack the final result.
        draws: copies behind their results so far, of all samples together.
        fewest, most: the fewest and the most copies of one of them so far.
    """

    samples: int = 0
    draws: int = 0
    fewest: int = 0
    most: int = 0

    def add(self, draws: int) -> None:
        """Count a sample with this many copies so far."""
        self.fewest = min(self.fewest, draws) if self.samples else draws
        self.most = max(self.most, draws)
        self.samples += 1
        self.draws += draws


@dataclass(slots=True)
class Flush:
    """Results that an audit writes in one transaction.

    Attributes:
        rows: results.
        skipped: samples that cannot be used.
        digests: of the pixels, by sample id.
        seconds: by step.
        draws: the number of copies behind each result that is not final, by the row's key.
    """

    rows: list[Row] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    draws: dict[RowKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleResults:
    """The results of one sample.

    Attributes:
        rows: the results in the order of the spec.
        lines: the same rows as lines of samples.json.
        digest: of the sample's pixels.
    """

    rows: Sequence[Row]
    lines: Sequence[str]
    digest: str


def damaged(where: str, why: str) -> RunError:
    """The error for a damaged state."""
    return RunError(where, f"is damaged ({why})", _REMEDY)


def no_guard() -> None:
    """Allow every write: the guard of a state that no other process can reach."""


class State:
    """The state of a run, on disk or in memory.

    Args:
        path: the database; None for a database in memory.
        guard: raises if this process may no longer write to the folder
            (:meth:`robaudit.runs.folder.Lock.check`).
        check: whether to check all pages. For a file whose digest is unknown.
        is_read: whether it is only read: it may then be of the earlier version, too.

    Raises:
        RunError: the database is damaged, was not written by robaudit, or the file system refuses.
    """

    def __init__(
        self,
        path: Path | None = None,
        guard: Callable[[], None] = no_guard,
        *,
        check: bool = False,
        is_read: bool = False,
    ) -> None:
        self._where = str(path or "memory")
        self._guard = guard
        self._path = path
        self._is_read = is_read
        self._entries: Mapping[str, Any] = {}
        self._noises: Mapping[str, Any] = {}
        self._tasks: list[TaskName] = []
        self._recorded: set[TaskName] = set()
        self._no_samples_yet = False
        self._unfinished: Sequence[int] = ()
        self._lacking: list[Lacking] = []
        with self._sqlite_and_value_errors():
            guard()
            if path is None:
                database = ":memory:"
            else:
                # Before SQLite sees the path: opening a pipe would block, and the first statement
                # plays back a journal that is there, and deletes it.
                _refuse_unexpected_files(path)
                # mode=rw never creates the file: create() does, with its own safe flags.
                database = f"file:{quote(os.fsencode(path.absolute()))}?mode=rw"
            # isolation_level=None leaves transactions to _transaction: the module begins none.
            self._db = sqlite3.connect(
                database, uri=path is not None, isolation_level=None, timeout=_PATIENCE
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
        # O_EXCL: an existing file is opened as it is. O_NOFOLLOW: a link is never written through.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            # A kill after this line leaves an empty file, which SQLite takes for an empty database.
            os.close(os.open(path, flags, 0o644))
        except FileExistsError:
            pass
        except OSError as error:
            guard()  # if the folder has been removed, that is the better message
            raise _cannot_be_written(str(path), error.strerror or str(error)) from error
        return cls(path, guard, check=check)

    def close(self) -> None:
        """Close the database, and remove the journal if the folder is still the same."""
        with suppress(sqlite3.Error, RunError):
            # SQLite removes the journal by name. In a folder that has been replaced, that name
            # belongs to another run, so the guard comes first.
            self._guard()
            if self._path is not None and self._path.with_name(f"{NAME}-journal").exists():
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, new: Flush) -> None:
        """Add results, all or none of them; final rows stay unchanged.

        Raises:
            RunError: the file system refuses, or the folder has been replaced.
        """
        with self._sqlite_errors(), self._transaction():
            flush = 1 + max(self._value(_LAST_FLUSH.format(table=name)) for name in _TABLES)
            # Rows and skips refer to tasks and samples by id, so those are inserted first.
            task_ids = self._insert_tasks(flush, _tasks_in(new))
            if not task_ids.keys() <= self._recorded:
                self._record_tasks()  # a task has an id since its first row
                self._recorded |= task_ids.keys()
            self._db.executemany(
                _INSERT_SAMPLE,
                ((flush, name, new.digests.get(name)) for name in _sample_ids_in(new)),
            )
            # A generator, so that a single row at a time is held as text.
            rows = (
                (
                    flush,
                    row.sample_id,
                    task_ids[row.at, row.estimator],
                    new.draws.get(row.key),
                    compressed(row_text(row)),
                )
                for row in new.rows
            )
            self._db.executemany(_INSERT_ROW, rows)
            self._no_samples_yet = False
            for skip in new.skipped:
                task_id = None if skip.task is None else task_ids[skip.task]
                self._db.execute(_INSERT_SKIP, (flush, skip.sample_id, task_id, skip.reason))
            self._db.executemany(
                "INSERT INTO seconds (flush, step, seconds) VALUES (?, ?, ?)",
                [(flush, step, spent) for step, spent in new.seconds.items()],
            )

    def check(self) -> None:
        """Check the pages and indexes.

        Raises:
            RunError: they are damaged, or robaudit did not write them.
        """
        with self._sqlite_and_value_errors():
            # SQLite's own check takes a file that was cut within its last page for intact.
            cut_bytes = 0
            if self._path is not None:
                cut_bytes = self._path.stat().st_size % self._value("PRAGMA page_size")
            if cut_bytes or self._value("PRAGMA integrity_check(1)") != "ok":
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
        self._entries = entries or {}
        self._noises = noises or {}
        self._tasks = list(tasks)
        with self._sqlite_errors():
            # Nothing of this is durable: temporary tables live in a file of their own, and the
            # transaction is only for speed.
            self._db.execute("DROP TABLE IF EXISTS temp.places")
            self._db.execute("CREATE TEMP TABLE places (place INTEGER PRIMARY KEY, name)")
            self._db.execute("BEGIN")
            try:
                ids = (
                    (place, _checked_id(dataset.sample_id(place), dataset.where))
                    for place in range(len(dataset))
                )
                self._db.executemany("INSERT INTO temp.places (place, name) VALUES (?, ?)", ids)
                # Made after the rows, the index also finds duplicates.
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
            # A new run lacks everything: no query for each sample is needed.
            self._no_samples_yet = not self._value("SELECT count(*) FROM samples")
            if self._no_samples_yet:
                self._unfinished = range(len(dataset))
                self._lacking = [Lacking(samples=len(dataset)) for _ in tasks]
            else:
                self._unfinished, self._lacking = self._progress()

    def _progress(self) -> tuple[Sequence[int], list[Lacking]]:
        """The samples that lack a final result of a task, and what is lacking of each task."""
        unfinished = array("i")  # four bytes a sample
        lacking = [Lacking() for _ in self._tasks]
        for place, records in groupby(self._db.execute(_PROGRESS), key=itemgetter(0)):
            missing = self._missing({number: draws for _, number, draws in records})
            for number, draws in missing.items():
                lacking[number].add(draws)
            if missing:
                unfinished.append(place)
        return unfinished, lacking

    def _missing(self, stored: Mapping[int, int | None]) -> dict[int, int]:
        """The tasks whose final result a sample lacks; see :meth:`missing`.

        Args:
            stored: the number of copies behind each stored result, by task; None: it is final.
        """
        missing = {}
        for number in range(len(self._tasks)):
            draws = stored.get(number, 0)
            if draws is not None:
                missing[number] = draws
        return missing

    @property
    def unfinished(self) -> Sequence[int]:
        """The indices of the samples that lacked a final result when :meth:`begin` was called, in
        order."""
        return self._unfinished

    def missing(self, place: int) -> dict[int, int]:
        """The indices of the tasks whose final result a sample lacks, in order, each with the
        number of copies behind its result so far (0: it has none)."""
        stored: dict[int, int | None] = {}
        if not self._no_samples_yet:
            with self._sqlite_and_value_errors():
                stored = dict(self._db.execute(_STORED, (place,)).fetchall())
        return self._missing(stored)

    def row(self, sample_id: str, task: TaskName) -> Row:
        """The result of a task for a sample, as it is so far.

        Raises:
            RunError: it is not there, or is not valid.
        """
        query = _ROW.format(task=_TASK_ID)
        with self._sqlite_and_value_errors():
            (data,) = self._db.execute(query, (sample_id, *_task_columns(task))).fetchone()
            return _row(data)

    def lacking(self) -> list[Lacking]:
        """What was lacking of each task when :meth:`begin` was called."""
        return self._lacking

    @property
    def has_rows(self) -> bool:
        """Whether there is any result."""
        with self._sqlite_and_value_errors():
            return bool(self._value("SELECT EXISTS (SELECT 1 FROM rows)"))

    def digest(self, sample_id: str) -> str | None:
        """The recorded digest of a sample's pixels; None if there is none."""
        if self._no_samples_yet:
            return None
        query = "SELECT digest FROM samples WHERE name = ?"
        with self._sqlite_and_value_errors():
            record = self._db.execute(query, (sample_id,)).fetchone()
        return None if record is None or record[0] is None else str(record[0])

    def known(self, sample_id: str) -> tuple[str | None, set[tuple[int | None, int]]]:
        """Records of a sample from earlier sessions: the digest of its pixels, and (label,
        predicted class) of its rows."""
        if self._no_samples_yet:
            return None, set()
        with self._sqlite_and_value_errors():
            query = (
                "SELECT digest, rows.id, row FROM samples LEFT JOIN rows ON sample = "
                "samples.id WHERE name = ?"
            )
            records = self._db.execute(query, (sample_id,)).fetchall()
            rows = [_row(data) for _, row_id, data in records if row_id is not None]
            digest = records[0][0] if records else None
            return digest, {(row.label, row.predicted) for row in rows}

    def results(self) -> Iterator[SampleResults]:
        """The results of this session's tasks, sample by sample in the order of the data set,
        without skipped samples.

        Raises:
            RunError: a value is not valid.
        """
        with self._sqlite_and_value_errors():
            # Again after begin(): tasks that were new then have an id only since their first row.
            self._record_tasks()
            for _, group in groupby(self._db.execute(_RESULTS), key=itemgetter(0)):
                records = list(group)
                lines = [_line(data) for _, _, data in records]
                rows = [read_line(line) for line in lines]
                yield SampleResults(rows, lines, digest=str(records[0][1] or ""))

    def skips(self) -> Iterator[Skip]:
        """The skipped samples, each once with its first reason, in the order of the data set."""
        with self._sqlite_and_value_errors():
            self._record_tasks()
            for _, records in groupby(self._db.execute(_SKIPS), key=itemgetter(0)):
                _, sample_id, reason, noise, level, level_name, estimator = next(records)
                task = None
                if estimator is not None:
                    at = noise_level(str(noise), float(level), str(level_name))
                    task = (at, str(estimator))
                yield Skip(sample_id=str(sample_id), reason=str(reason), task=task)

    def stored(self) -> Iterator[SampleResults]:
        """All results so far, sample by sample in the order of writing, without skipped samples.

        Raises:
            RunError: a value is not valid.
        """
        with self._sqlite_and_value_errors():
            # A list, so that a writer need not wait for whoever uses the results.
            records = self._db.execute(_STORED_ROWS).fetchall()
            for _, group in groupby(records, key=itemgetter(0)):
                of_sample = list(group)
                lines = [_line(data) for _, _, data in of_sample]
                rows = [read_line(line) for line in lines]
                yield SampleResults(rows, lines, digest=str(of_sample[0][1] or ""))

    def stored_skips(self) -> list[Skip]:
        """All samples that were skipped, each with its first reason, in the order of writing."""
        with self._sqlite_and_value_errors():
            records = self._db.execute(_STORED_SKIPS).fetchall()
            return [Skip(sample_id=str(name), reason=str(reason)) for name, reason in records]

    def images(self) -> dict[str, str]:
        """The pixel digests by sample id."""
        query = "SELECT name, digest FROM samples WHERE digest NOT NULL"
        with self._sqlite_and_value_errors():
            return dict(self._db.execute(query).fetchall())

    def labels(self, sample_ids: Iterable[str]) -> Iterator[tuple[str, str | None, int | None]]:
        """Id, pixel digest and label of each row of these samples."""
        for sample_id in sample_ids:
            digest, classes = self.known(sample_id)
            yield from ((sample_id, digest, label) for label, _ in classes)

    def entries(self) -> Iterator[tuple[str, Any]]:
        """The estimators of the rows: their names in the results and their entries in the spec."""
        with self._sqlite_and_value_errors():
            # Validated, because a stranger may have written them; a list, so that all are valid
            # before the first is used.
            yield from [
                (name, EstimatorSpec.model_validate(entry).model_dump(mode="json"))
                for name, entry in self._specified("estimator", "entry")
            ]

    def noises(self) -> Iterator[tuple[str, Any]]:
        """The noises of the rows: their labels and their entries in the spec, without levels."""
        yield from self._specified("noise", "form")

    def _specified(self, name_column: str, entry_column: str) -> Iterator[tuple[str, Any]]:
        """Names in the results and entries in the spec, for the tasks of the rows.

        Raises:
            RunError: an entry is not JSON, or not an entry.
        """
        with self._sqlite_and_value_errors():
            query = (
                f"SELECT DISTINCT {name_column}, {entry_column} FROM tasks "  # noqa: S608
                f"WHERE {entry_column} NOT NULL"
            )
            for name, text in self._db.execute(query).fetchall():
                entry = json.loads(text)
                if not isinstance(entry, dict):
                    raise TypeError(f"{clipped(text, 60)} is not an entry of a spec")
                yield str(name), entry

    def seconds(self) -> dict[str, float]:
        """Seconds by step, over all sessions."""
        with self._sqlite_and_value_errors():
            records = self._db.execute(
                "SELECT step, sum(seconds) FROM seconds GROUP BY step ORDER BY min(id)"
            )
            return {str(step): float(spent) for step, spent in records}

    def _prepare(self) -> None:
        """Apply the settings, and create the schema or check it."""
        # The first two are SQLite's advice for files from strangers. They come before anything is
        # read. The last two make a flush durable; why these, see the module's docstring.
        for setting in (
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "journal_mode = TRUNCATE",
            "synchronous = EXTRA",
        ):
            self._db.execute(f"PRAGMA {setting}")
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self._guard()  # the folder must still be the locked one before anything is written
        if not self._db.execute(_SHAPE).fetchall():
            self._create_tables()
        self._check_tables()

    def _create_tables(self) -> None:
        """Create the tables in one transaction: a kill leaves the empty database, or all of
        them."""
        with self._transaction():
            for statement in (*_SCHEMA, f"PRAGMA user_version = {_VERSION}"):
                self._db.execute(statement)

    def _check_tables(self) -> None:
        """Check that the version is ours, and that the database has exactly our tables and indexes.

        Raises:
            RunError: it is of another version, or has other tables.
        """
        version = self._value("PRAGMA user_version")
        schema: tuple[str, ...] = _SCHEMA
        if self._is_read and version == _EARLIER_VERSION:
            schema = _EARLIER_SCHEMA
        elif version != _VERSION:
            raise RunError(
                self._where,
                f"has a state of version {version}",
                f"this robaudit reads version {_VERSION}",
            )
        # No triggers, views or columns of a stranger: the statements must be ours to the letter.
        pattern = sqlite3.connect(":memory:")
        pattern.executescript(";".join(schema))
        if self._db.execute(_SHAPE).fetchall() != pattern.execute(_SHAPE).fetchall():
            raise self._damaged("its tables are not those that robaudit creates")
        pattern.close()

    def _record_tasks(self) -> None:
        """Record the tasks of this session, and the index of each in the order of the spec."""
        self._db.execute(
            "CREATE TEMP TABLE IF NOT EXISTS session_tasks (task INTEGER PRIMARY KEY, number)"
        )
        self._db.execute("DELETE FROM temp.session_tasks")
        self._db.executemany(
            _INSERT_SESSION_TASK,
            ((number, *_task_columns(task)) for number, task in enumerate(self._tasks)),
        )

    def _insert_tasks(self, flush: int, tasks: Iterable[TaskName]) -> dict[TaskName, int]:
        """Add the tasks that are new; return the ids of all of them."""
        ids = {}
        for task in dict.fromkeys(tasks):
            at, estimator = task
            estimator_entry = None
            noise_entry = None
            if estimator in self._entries:
                estimator_entry = json.dumps(self._entries[estimator])
            if at.noise is not None and at.noise in self._noises:
                noise_entry = json.dumps(self._noises[at.noise])
            columns = _task_columns(task)
            self._db.execute(_INSERT_TASK, (flush, *columns, estimator_entry, noise_entry))
            ids[task] = self._value(_TASK_ID, *columns)
        return ids

    def _value(self, query: str, *values: Any) -> Any:
        """The only value of a query with one row and one column."""
        return self._db.execute(query, values).fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction of the block: after a kill or an error at any point, the next process finds
        all of it or nothing."""
        self._guard()
        # IMMEDIATE takes SQLite's write lock at once: a transaction that reads first and wants the
        # lock later may be refused without a wait.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            # Once more: the folder may have been replaced meanwhile.
            self._guard()
            # SQLite syncs the journal, then the database, then truncates the journal. After a kill
            # before the last step, the next process to open the database undoes the transaction.
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into errors for the user."""
        try:
            yield
        except sqlite3.Error as error:
            if not hasattr(error, "sqlite_errorcode"):  # a bug in robaudit
                raise
            self._guard()  # if the folder is gone, that is the reason
            raise self._refusal(error) from error

    @contextmanager
    def _sqlite_and_value_errors(self) -> Iterator[None]:
        """Turn SQLite's errors and invalid values into errors for the user.

        The database may be a stranger's: any of these exceptions can come from a value of the wrong
        type, and none of them is a reason for a traceback.
        """
        try:
            with self._sqlite_errors():
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
        """The error for the user that says what SQLite's error means here."""
        code = error.sqlite_errorcode & 0xFF  # the primary code, without the extended one
        if code == sqlite3.SQLITE_FULL:
            return _cannot_be_written(self._where, os.strerror(errno.ENOSPC))
        is_refused = code in (
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PERM,
        )
        if is_refused and self._is_read and self._path and _has_journal(self._path):
            # SQLite restores the state before a flush that a kill has cut, and writes to do so.
            what = "was cut off while it was written, and mending it needs the right to write"
            return RunError(self._where, what, "read a copy of the folder, or ask its owner")
        if is_refused:
            # Usually the folder is not writable: SQLite then only says that it cannot open a file.
            allowed = self._path is None or os.access(self._path.parent, os.W_OK)
            reason = str(error) if allowed else os.strerror(errno.EACCES)
            return _cannot_be_written(self._where, reason)
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM):
            return _cannot_be_written(self._where, str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return RunError(
                self._where, "is being read or written by another process", "wait for it"
            )
        return self._damaged(str(error))

    def _damaged(self, why: str) -> RunError:
        return damaged(self._where, why)


def _tasks_in(new: Flush) -> list[TaskName]:
    """The tasks of a flush: those of its rows, then those of its skips."""
    of_rows = [(row.at, row.estimator) for row in new.rows]
    of_skips = [skip.task for skip in new.skipped if skip.task]
    return [*of_rows, *of_skips]


def _sample_ids_in(new: Flush) -> Iterable[str]:
    """The ids of the samples of a flush, each once."""
    of_rows = [row.sample_id for row in new.rows]
    of_skips = [skip.sample_id for skip in new.skipped]
    return dict.fromkeys([*new.digests, *of_rows, *of_skips])


def _task_columns(task: TaskName) -> tuple[str | float, ...]:
    """The values of the columns ``_TASK`` of a task."""
    at, estimator = task
    return *at.document().values(), estimator


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
    line = decompressed(data)
    # A line break would add lines, and so results, to samples.json.
    if "\n" in line or not line.isascii():
        raise ValueError("a row is not a line in ASCII")
    return line


def _checked_id(sample_id: object, where: str) -> str:
    """The id of a sample.

    Raises:
        DataError: it is not text that UTF-8 can encode.
    """
    # isascii() answers at once for most ids; lone surrogates have no encoding.
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


def _has_journal(path: Path) -> bool:
    """Whether a flush to the database is unfinished, or was cut off."""
    with suppress(OSError):
        return path.with_name(f"{path.name}-journal").stat().st_size > 0
    return False


def _refuse_unexpected_files(path: Path) -> None:
    """Refuse a database, or a journal, that SQLite should not open.

    Raises:
        RunError: either is not a regular file, or the journal names another file.
    """
    journal = path.with_name(f"{path.name}-journal")
    # SQLite opens all three by name: a link would lead it to a file outside the run.
    for file in (path, journal, path.with_name(f"{path.name}-wal")):
        if os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode):
            raise RunError(
                str(file),
                "cannot be read: it is not a regular file",
                "delete it, or choose another " + OUT,
            )
    with suppress(FileNotFoundError):
        # SQLite would delete the file that such a journal names.
        if journal.read_bytes().endswith(_SUPER_JOURNAL):
            raise damaged(str(path), "robaudit did not write it")
