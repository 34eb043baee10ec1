"""The run folder: run.json, the state, the outputs written from it, and the lock of the process
that writes there.

The lock is a ``flock`` on ``.lock``. SQLite's own locks last for a transaction and cover only the
database. This lock lasts for a session and also covers run.json, the outputs and the log. It ends
with its process, even if children outlive it. Its inode shows whether the folder has been removed
or replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robaudit.errors import RunError
from robaudit.files import file_sha256, json_bytes, read_json, sealed, unsealed, write_atomically
from robaudit.runs.info import RunInfo
from robaudit.runs.serialise import SCHEMA_VERSION
from robaudit.runs.state import NAME, State, damaged, no_guard
from robaudit.settings import FRESH, OUT
from robaudit.spec.gate_grammar import QUANTITIES, parse_gate

RUNS = Path("runs")
"""The default folder of run folders."""
OUTPUTS = ("samples.csv", "samples.json", "summary.json")
_LOCK = ".lock"
# Bytes of a database's first page at least: SQLite takes a shorter file for an empty database.
_HEADER = 512
_lock_handles: set[int] = set()  # descriptors of the locks that this process holds


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock held by this process.

    Attributes:
        folder: the locked folder.
        file: device and inode of the lock's file.
    """

    folder: Path
    file: tuple[int, int]

    def check(self) -> None:
        """Refuse to continue in a folder that has been deleted, moved or replaced since it was
        locked.

        Raises:
            RunError: the folder's lock is no longer the file that this process holds.
        """
        # lstat looks the name up anew. The open descriptor cannot tell: it keeps the inode alive
        # after the folder is gone, which is also why no other file can get the same number.
        try:
            status = (self.folder / _LOCK).lstat()
        except (FileNotFoundError, NotADirectoryError):
            status = None
        except OSError as error:
            raise RunError(
                str(self.folder),
                f"cannot be read: {error.strerror or error}",
                "choose another " + OUT,
            ) from error
        if status is None or (status.st_dev, status.st_ino) != self.file:
            raise RunError(
                str(self.folder),
                "was removed or replaced while robaudit was writing here",
                "choose another " + OUT,
            )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Hold the folder's lock within the block; it ends with this process, even if children outlive
    it.

    An audit takes this lock after it has checked model and data, and before it writes anything.
    SQLite's locks are always taken within it.

    Raises:
        RunError: another process holds it, or the folder cannot be written.
    """
    # Closed on exec, so that a program started by this process does not keep the lock.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(folder / _LOCK, flags, 0o644)
    except OSError as error:
        raise RunError(
            str(folder), f"cannot be written: {error.strerror or error}", "choose another " + OUT
        ) from error
    _lock_handles.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                str(folder),
                "another robaudit is writing here",
                "wait for it, or choose another " + OUT,
            ) from error
        except OSError as error:
            raise RunError(
                str(folder), f"cannot be locked: {error.strerror or error}", "choose another " + OUT
            ) from error
        status = os.fstat(handle)
        lock = Lock(folder, (status.st_dev, status.st_ino))
        lock.check()  # the folder may have been replaced between open and flock
        yield lock
    finally:
        # A forked child has closed it already, and the number may belong to another file there.
        if handle in _lock_handles:
            _lock_handles.remove(handle)
            os.close(handle)


def _release_in_child() -> None:
    """Close the locks in a forked child: they belong to the parent, and a child that outlives it
    must not keep them."""
    # Closing a copy of the descriptor does not unlock: flock ends with the last copy.
    while _lock_handles:
        with contextlib.suppress(OSError):
            os.close(_lock_handles.pop())


os.register_at_fork(after_in_child=_release_in_child)


def _refuse_unwritable(path: Path) -> None:
    """Raise an OSError where a new folder could not be written.

    Its nearest existing parent must take files.
    """
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    with tempfile.TemporaryFile(dir=parent):
        pass


class RunFolder:
    """Reads and writes a run folder: run.json and the outputs by atomic rename, the state by
    transactions.

    Attributes:
        guard: raises if this process may no longer write to the folder (:meth:`Lock.check` while it
            is locked).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.guard: Callable[[], None] = no_guard

    @property
    def exists(self) -> bool:
        """Whether the folder has a run."""
        try:
            return (self.path / "run.json").exists()
        except OSError:  # not a name for the file system: create() reports it
            return False

    def check(self) -> None:
        """Refuse a path that cannot be a run folder, before any expensive work and without creating
        anything.

        Raises:
            RunError: it is a file, a folder with foreign files, or in a folder that takes no files.
        """
        try:
            if not self.path.exists():
                _refuse_unwritable(self.path)
                return
            names = {path.name for path in self.path.iterdir()}
        except OSError as error:
            raise RunError(
                str(self.path),
                f"cannot be used as a run folder: {error.strerror or error}",
                "choose another " + OUT,
            ) from error
        # A kill before the first run.json leaves the lock (a hidden file) and perhaps the state and
        # its journal: such a folder is taken for an empty one.
        left_by_kill = (NAME, f"{NAME}-journal")
        foreign = sorted(
            name for name in names if not name.startswith(".") and name not in left_by_kill
        )
        if foreign and not self.exists:
            raise RunError(
                str(self.path),
                f"is not a run folder, and not empty (it contains {foreign[0]})",
                "choose another " + OUT,
            )

    def create(self) -> None:
        """Create the folder.

        Raises:
            RunError: it cannot be created.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                str(self.path),
                f"cannot be used as a run folder: {error.strerror or error}",
                "choose another " + OUT,
            ) from error

    def info(self) -> RunInfo:
        """The content of run.json, with its checksum, version, keys and types checked.

        Raises:
            RunError: it is missing, damaged or of another version, or an output is a link.
        """
        if not self.path.is_dir():
            remedy = "name a folder that robaudit estimate has written"
            if self.path.is_file() and RunFolder(self.path.parent).exists:
                remedy = f"name its folder, {self.path.parent}"
            raise RunError(str(self.path), "is not a run folder", remedy)
        # A link may lead to files that the folder's maker cannot read.
        for name in ("run.json", *OUTPUTS):
            if (self.path / name).is_symlink():
                what = "is a symbolic link, and links in a run folder are not followed"
                raise RunError(str(self.path / name), what, "put the file itself there")
        where = str(self.path / "run.json")
        document = read_json(self.path / "run.json")
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise RunError(
                where,
                f"is not of schema version {SCHEMA_VERSION}",
                "read it with the robaudit that wrote it",
            )
        return RunInfo.read(unsealed(document, self.path / "run.json"), where)

    def outputs_intact(self, info: RunInfo) -> bool:
        """Whether the outputs of a complete run match the digests in its run.json."""
        return all(file_sha256(self.path / name) == info.files.get(name) for name in OUTPUTS)

    def open_state(self, info: RunInfo | None) -> State:
        """Open the state for writing; create it if there is none.

        Args:
            info: the existing run.json.

        Raises:
            RunError: it is damaged, or the file system refuses.
        """
        return State.create(self.path / NAME, self.guard, check=not self._state_intact(info))

    def image_digests(self, info: RunInfo) -> dict[str, str]:
        """Pixel digests by sample id; empty if the state was deleted. ``info``: the content of
        run.json.

        Raises:
            RunError: the state is damaged.
        """
        with self.read_state(info) as state:
            return state.images()

    def write_info(self, info: RunInfo) -> None:
        """Write run.json."""
        # By rename: a kill leaves the old file or the new one. The guard is asked once the folder
        # is open, and the file is then written into that folder, whatever takes its name.
        write_atomically(self.path / "run.json", json_bytes(sealed(info.document())), self.guard)

    def read_state(self, info: RunInfo) -> State:
        """Open the state for reading; an empty state if it does not exist.

        Args:
            info: the content of run.json.

        Raises:
            RunError: the state is damaged.
        """
        path = self.path / NAME
        intact = self._state_intact(info)
        if not os.path.lexists(path):
            return State()
        return State(path, check=not intact, is_read=True)

    def _state_intact(self, info: RunInfo | None) -> bool:
        """Whether the state has the digest in run.json; an unfinished run or extension has none.

        Raises:
            RunError: it has changed, or SQLite would take it for a new database.
        """
        path = self.path / NAME
        # run.json is written after the state's tables, so a run whose state has no header has lost
        # it. Without run.json, an empty file is what a kill during creation leaves.
        if info and path.is_file() and path.stat().st_size < _HEADER:
            raise damaged(str(path), "it ends within its header")
        recorded = info.files.get(NAME) if info and info.has_outputs else None
        if recorded is None:
            return False
        digest = file_sha256(path)
        if digest is None:  # deleted, which is allowed
            return False
        if digest != recorded:
            raise damaged(str(path), "it has changed since it was written")
        return True


def in_runs(name: str, out: Path | None = None) -> Path:
    """The folder ``name`` below ``out``, by default below :data:`RUNS`.

    Raises:
        RunError: ``out`` is not given, and the folder or ``runs`` is a symbolic link.
    """
    if out is not None:
        return out / name
    # Nobody typed this path: a link there may have come with a stranger's files.
    for path in (RUNS, RUNS / name):
        if path.is_symlink():
            raise RunError(
                str(path),
                "is a symbolic link, which the default folder must not be",
                "name the folder with " + OUT,
            )
    return RUNS / name


def refuse_existing(folder: Path) -> None:
    """Refuse an existing run folder, even a broken one (``--fresh``).

    Raises:
        RunError: it exists.
    """
    if os.path.lexists(folder):
        raise RunError(
            str(folder),
            "is there already, and " + FRESH + " starts a new run",
            "delete it, or choose another " + OUT,
        )


def refuse_other_gates(folder: Path, info: RunInfo, gates: Sequence[str]) -> None:
    """Refuse to change the gates of a run that is sampled until they are decided.

    Args:
        folder: the run folder.
        info: its run.json.
        gates: of the current command.

    Raises:
        RunError: they differ from the gates in run.json.
    """
    # Parsed, so that another spelling of the same gates is no change.
    recorded = [str(parse_gate(text, QUANTITIES, str(folder))) for text in info.gates]
    current = [str(parse_gate(text, QUANTITIES, str(folder))) for text in gates]
    if info.until_decided and recorded != current:
        raise sampled_for_other_gates(folder)


def sampled_for_other_gates(folder: Path) -> RunError:
    """The error for other gates on a run that is sampled until its gates are decided."""
    return RunError(
        str(folder),
        "was sampled for other gates",
        "decide gates on it with robaudit gate RUN GATE, or choose another " + OUT,
    )
