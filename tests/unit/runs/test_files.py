"""Files of a run folder: the old one or the new one, one writer at a time, and nothing that killed
processes left."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.errors import RunError
from robaudit.files import remove_leftovers, sealed, unsealed, write_atomically, writing
from robaudit.runs.folder import locked
from tests.golden import Golden


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@settings(deadline=None)  # each example syncs a file to the disk
@given(st.lists(st.binary(max_size=20_000), max_size=5))
def test_pieces_make_a_file_and_its_checksum(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    with writing(path) as sink:
        for piece in pieces:
            sink.write(piece)
    whole = b"".join(pieces)
    assert path.read_bytes() == whole
    assert sink.sha256 == hashlib.sha256(whole).hexdigest()


def test_the_old_file_is_there_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with writing(path) as sink:
        sink.write(bytes(10**6))
        assert path.read_bytes() == b"old"
        (temporary,) = names(tmp_path) - {"file"}
        assert temporary.startswith(".file.")
        assert temporary.endswith(".tmp")
    assert path.read_bytes() == bytes(10**6)
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize("name", ["a" * 255, "\u4e9c" * 85], ids=["ASCII", "three bytes each"])
def test_the_longest_names(name: str, tmp_path: Path) -> None:
    write_atomically(tmp_path / name, b"new")
    assert names(tmp_path) == {name}


class Stop(BaseException):
    """Neither an error nor an interrupt."""


@pytest.mark.parametrize(
    "raised",
    [Stop(), KeyboardInterrupt(), ValueError("x"), OSError(errno.EIO, "of the caller")],
    ids=repr,
)
def test_an_exception_within_leaves_the_old_file_alone(
    raised: BaseException, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(type(raised)) as found, writing(path):
        raise raised
    assert found.value is raised, "what the caller raises is no failure to write"
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize("call", ["fsync", "fchmod", "replace", "write"])
def test_what_the_file_system_refuses_is_one_clear_error(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "write":
        monkeypatch.setattr("os.fdopen", lambda handle, mode: open("/dev/full", mode))  # noqa: PTH123, SIM115
    else:
        monkeypatch.setattr(f"os.{call}", refuse)
    with pytest.raises(RunError) as error:
        write_atomically(path, b"new")
    golden(error.value)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize("what", ["missing", "a file"])
def test_no_folder_to_write_into(what: str, tmp_path: Path, golden: Golden) -> None:
    if what == "a file":
        (tmp_path / "folder").touch()
    with pytest.raises(RunError) as error:
        write_atomically(tmp_path / "folder" / "file", b"")
    golden(error.value)


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\nfrom robaudit.files import writing\nwith "
        "writing(pathlib.Path(sys.argv[1])):\n    os._exit(9)\n"
    )
    for name in ("run.json", "a b\n\u00fc"):
        assert (
            subprocess.run(
                [sys.executable, "-c", code, tmp_path / name], check=False, timeout=60
            ).returncode
            == 9
        )
    random = "0123456789abcdef"
    strangers = {
        ".lock",
        "run.json",
        ".run.json.tmp",
        f"run.json.{random}.tmp",
        f".run.json.{random[1:]}.tmp",
        f".{random}.tmp",
        ".tmp",
    }
    for name in strangers:
        (tmp_path / name).touch()
    (tmp_path / f".run.json.{random[::-1]}.tmp").mkdir()
    (tmp_path / f".run.json.{8 * 'ab'}.tmp").symlink_to("run.json")
    assert len(names(tmp_path)) == len(strangers) + 4
    remove_leftovers(tmp_path)
    assert names(tmp_path) == {
        *strangers,
        f".run.json.{random[::-1]}.tmp",
        f".run.json.{8 * 'ab'}.tmp",
    }


@pytest.mark.parametrize("call", ["pathlib.Path.unlink", "pathlib.Path.iterdir"])
def test_leftovers_that_cannot_be_removed(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / ".run.json.0123456789abcdef.tmp").touch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(call, refuse)
    with pytest.raises(RunError) as error:
        remove_leftovers(tmp_path)
    golden(error.value)


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def make_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def make_anew_with_a_lock(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    (folder / ".lock").touch()


def delete_the_lock(folder: Path) -> None:
    (folder / ".lock").unlink()


def make_the_lock_anew(folder: Path) -> None:
    (folder / ".lock").rename(folder / "kept")  # its inode is not free for the new one
    (folder / ".lock").touch()


def put_a_file_in_its_place(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def link_to_the_lock(folder: Path) -> None:
    (folder / ".lock").rename(folder / "kept")
    (folder / ".lock").symlink_to("kept")


CHANGES = [
    remove,
    make_anew,
    make_anew_with_a_lock,
    delete_the_lock,
    make_the_lock_anew,
    put_a_file_in_its_place,
    link_to_the_lock,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_folder_that_is_no_longer_ours(
    change: Callable[[Path], None], tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run") as lock:
        lock.check()
        change(tmp_path / "run")
        with pytest.raises(RunError) as error:
            lock.check()
        golden(error.value)


@pytest.mark.parametrize(
    "change", [make_anew, make_anew_with_a_lock], ids=lambda change: change.__name__
)
def test_what_is_being_written_never_gets_into_another_folder(
    change: Callable[[Path], None], tmp_path: Path, golden: Golden
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with locked(run) as lock:
        with contextlib.suppress(RunError), writing(run / "file", lock.check) as sink:
            change(run)
            sink.write(b"new")
        assert names(run) <= {".lock"}
        with pytest.raises(RunError) as error:
            write_atomically(run / "file", b"new", lock.check)
        golden(error.value)
        assert names(run) <= {".lock"}
    moved = tmp_path / "moved"
    assert not moved.exists() or (moved / "file").read_bytes() == b"new", (
        "it went where it was meant to"
    )


def test_a_lock_lost_while_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Between opening the file and locking it somebody deletes the folder and makes it anew: two
    would write into it."""
    flock = __import__("fcntl").flock

    def late(handle: int, operation: int) -> None:
        make_the_lock_anew(tmp_path)
        flock(handle, operation)

    monkeypatch.setattr("fcntl.flock", late)
    with pytest.raises(RunError) as error, locked(tmp_path):
        pytest.fail("this lock is nobody's")
    golden(error.value)


def test_a_lock_that_leads_elsewhere(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError) as error, locked(tmp_path):
        pytest.fail("a link is no lock")
    golden(error.value)
    assert names(tmp_path) == {".lock"}


def test_no_locks_on_this_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunError) as error, locked(tmp_path):
        pytest.fail("it is not locked")
    golden(error.value)


PARENT = """
import os, pathlib, signal, sys, time
from robaudit.runs.folder import Lock, locked

with locked(pathlib.Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        print(os.getpid(), flush=True)
        time.sleep(60)
    time.sleep(60)
"""


def test_a_child_that_outlives_its_parent_holds_no_lock(tmp_path: Path, golden: Golden) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with pytest.raises(RunError) as error, locked(tmp_path):
                pytest.fail("the parent holds it")
            golden(error.value)
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # it is still there
            with locked(tmp_path) as lock:
                lock.check()
        finally:
            os.kill(child, signal.SIGKILL)


CHILD_LEAVES = """
import os, pathlib, sys
from robaudit.errors import RunError
from robaudit.runs.folder import Lock, locked

folder = pathlib.Path(sys.argv[1])
with locked(folder):
    child = os.fork()
    if child == 0:
        sys.stdin.close()
        reused = os.open(os.devnull, os.O_RDONLY)
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
if child == 0:
    for handle in (reused, *others):
        os.fstat(handle)
    os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with locked(folder):
    pass
sys.exit(code)
"""


def test_a_child_that_leaves_the_block_closes_no_file_of_its_own(tmp_path: Path) -> None:
    assert (
        subprocess.run(
            [sys.executable, "-c", CHILD_LEAVES, tmp_path], check=False, timeout=60
        ).returncode
        == 7
    )


def test_a_child_that_leaves_the_block_does_not_unlock(tmp_path: Path, golden: Golden) -> None:
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(RunError) as error, locked(tmp_path):
            pytest.fail("this process holds it")
        golden(error.value)


@given(
    st.dictionaries(
        st.text(),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
    )
)
def test_a_sealed_document_comes_back_and_a_changed_one_does_not(document: dict[str, Any]) -> None:
    document.pop("checksum", None)
    written = json.loads(json.dumps(sealed(document)))
    assert unsealed(written, Path("run.json")) == document
    with pytest.raises(RunError, match="checksum does not match"):
        unsealed(
            {**written, "another": 1 if "another" not in document else [document["another"]]},
            Path("run.json"),
        )
