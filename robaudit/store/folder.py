"""A run folder: run.json, the state, the outputs made from it, and the lock of whoever writes there.

The lock is a ``flock`` on ``.lock``. SQLite's own locks hold for a transaction and for the database alone; this one holds for a
session, covers run.json, the outputs and the log, dies with its process whatever children outlive it, and knows by its inode whether
the folder has been removed or replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.files import file_sha256, json_bytes, read_json, remove_leftovers, sealed, unsealed, write_atomically
from robaudit.rows import Row
from robaudit.store.info import check_info
from robaudit.store.state import NAME, State, damaged, no_guard

SCHEMA_VERSION = 1
OUTPUTS = ("samples.csv", "samples.json", "summary.json")
_LOCK = ".lock"
_ALWAYS = ("status", "name", "spec", "spec_folder", "identity", "base_identity", "model", "data", "noise")
_COMPLETE = ("quantities", "totals", "seconds", "skipped", "files")
_held: set[int] = set()  # descriptors of this process


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that is held.

    Attributes:
        folder: what it locks.
        file: device and inode of its file.
    """

    folder: Path
    file: tuple[int, int]

    def check(self) -> None:
        """Refuse to go on in a folder that somebody has deleted, moved or made anew: it is not the one that was locked.

        Raises:
            RunError: the folder's lock is no longer the file that this process holds.
        """
        try:
            about = (self.folder / _LOCK).lstat()
        except (FileNotFoundError, NotADirectoryError):
            about = None
        except OSError as error:
            raise RunError(str(self.folder), f"cannot be read: {error.strerror or error}", "choose another --out") from error
        if about is None or (about.st_dev, about.st_ino) != self.file:
            raise RunError(str(self.folder), "was removed or replaced while robaudit was writing here", "choose another --out")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Hold the folder's lock; it dies with this process, whatever children outlive it.

    Raises:
        RunError: another process holds it, or the folder cannot be written.
    """
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RunError(str(folder), f"cannot be written: {error.strerror or error}", "choose another --out") from error
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(str(folder), "another robaudit is writing here", "wait for it, or choose another --out") from error
        except OSError as error:
            raise RunError(str(folder), f"cannot be locked: {error.strerror or error}", "choose another --out") from error
        about = os.fstat(handle)
        lock = Lock(folder, (about.st_dev, about.st_ino))
        lock.check()
        yield lock
    finally:
        if handle in _held:  # a child has let go of it already, and the number may be another file's there
            _held.remove(handle)
            os.close(handle)


def _let_go() -> None:
    """In a forked child: the lock belongs to the parent, and a child that outlives it must not hold it."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


class RunFolder:
    """Reads and writes one run folder; run.json and the outputs by atomic rename, the state by transactions.

    Attributes:
        guard: raises if the folder is no longer ours to write (:meth:`Lock.check` while it is locked).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.guard: Callable[[], None] = no_guard

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        try:
            return (self.path / "run.json").exists()
        except OSError:  # no name the file system takes: create() says so
            return False

    def check(self) -> None:
        """Refuse a path that cannot be a run folder, before anything expensive is done and without making anything.

        Raises:
            RunError: it is a file, or a folder with files that are not a run's.
        """
        try:
            if not self.path.exists():
                return
            names = {path.name for path in self.path.iterdir()}
        except OSError as error:
            raise RunError(str(self.path), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error
        strangers = sorted(name for name in names if not name.startswith(".") and name not in (NAME, f"{NAME}-journal"))
        if strangers and not self.exists:
            raise RunError(str(self.path), f"is no run folder and is not empty ({strangers[0]} is in it)", "choose another --out")
        if "parts" in names and NAME not in names:
            raise RunError(
                str(self.path), "was made by an older robaudit: it can be read, but not resumed or extended", "choose another --out"
            )

    def create(self) -> None:
        """Make the folder.

        Raises:
            RunError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(str(self.path), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error

    def info(self) -> dict[str, Any]:
        """run.json without its checksum, checked for that, its version and its keys.

        Raises:
            RunError: it is missing, damaged or of another version.
        """
        where = str(self.path / "run.json")
        info = read_json(self.path / "run.json")
        if not isinstance(info, dict) or info.get("schema_version") != SCHEMA_VERSION:
            raise RunError(where, f"is not of schema version {SCHEMA_VERSION}", "read it with the robaudit that wrote it")
        info = unsealed(info, self.path / "run.json")
        lacking = [key for key in (*_ALWAYS, *(_COMPLETE if info.get("status") == "complete" else ())) if key not in info]
        if lacking:
            raise RunError(where, f"is damaged (it lacks {lacking[0]!r})", "run the audit again in another folder")
        check_info(info, where)
        return info

    def outputs_intact(self, info: Mapping[str, Any]) -> bool:
        """Whether the outputs of a complete run are those that its run.json describes."""
        return all(file_sha256(self.path / name) == info["files"].get(name) for name in OUTPUTS)

    def open_state(self) -> State:
        """The state, to be written to; made where there is none.

        Raises:
            RunError: it is damaged, or the file system refuses.
        """
        self._refuse_empty_state()
        return State.create(self.path / NAME, self.guard)

    def rows_so_far(self) -> list[Row]:
        """The rows of the state, each once: samples as they came, noise levels and estimators as in the spec.

        Raises:
            RunError: the state is damaged.
        """
        spec = self.info()["spec"]
        labels = [label_of(entry) for entry in spec["estimators"]]
        tasks = {task: i for i, task in enumerate((sigma, label) for sigma in spec["noise"]["sigma"] for label in labels)}
        with self._known_state() as state:
            state.check()
            rows = list(state.rows())
        samples = {sample_id: i for i, sample_id in enumerate(dict.fromkeys(row.sample_id for row in rows))}
        return sorted(rows, key=lambda row: (samples[row.sample_id], tasks.get((row.sigma, row.estimator), len(tasks))))

    def image_digests(self) -> dict[str, str]:
        """Digests of the pixels by sample id; none where the state was deleted.

        Raises:
            RunError: the state is damaged.
        """
        with self._known_state() as state:
            state.check(["samples", "images"])
            return state.images()

    def clean(self) -> None:
        """Remove what killed processes left behind; the folder's lock is held."""
        remove_leftovers(self.path)

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write run.json."""
        write_atomically(self.path / "run.json", json_bytes(sealed(info)), self.guard)

    def _known_state(self) -> State:
        """The state, to be read; an empty one where there is none."""
        self._refuse_empty_state()
        path = self.path / NAME
        return State(path if os.path.lexists(path) else None)

    def _refuse_empty_state(self) -> None:
        """Of a run whose run.json is there, the state has its tables."""
        with contextlib.suppress(OSError):
            if self.exists and (self.path / NAME).lstat().st_size == 0:
                raise damaged(str(self.path / NAME), "it is empty")


def label_of(entry: Mapping[str, Any]) -> str:
    """The name in the results of an estimator of a spec's document."""
    return str(entry["options"].get("label") or entry["name"])
