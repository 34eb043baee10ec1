"""The harness of the fault tests itself: it sees what an audit does to its folder, and breaks the operation that it is told to break."""

from __future__ import annotations

import builtins
import io
import json
import os
import posix
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disk import install
from tests.faults.durable import lost
from tests.faults.fault import Event

NAMES = {"builtins": builtins, "io": io, "os": os, "posix": posix, "Path": Path}


def run(tmp_path: Path, code: str, **values: Any) -> tuple[int, list[dict[str, object]]]:
    """Python code in a process with a harness, forked from this one; its exit code and notes."""
    folder, notes = tmp_path / "run", tmp_path / "events"
    folder.mkdir()
    (folder / "old").write_bytes(b"0123456789")
    notes.touch()
    child = os.fork()
    if child == 0:
        done = 1
        try:
            os.chdir(tmp_path)
            with (folder / "old").open("r+b", buffering=0) as before:
                install(str(folder), str(notes), **values)
                exec(code, {**NAMES, "folder": folder, "before": before})  # noqa: S102
            done = 0
        finally:
            os._exit(done)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), [json.loads(line) for line in notes.read_text().splitlines()]


def events(notes: list[dict[str, object]]) -> list[tuple[object, ...]]:
    found = [note["event"] for note in notes if "event" in note]
    return [tuple(event) for event in found if isinstance(event, list)]


WAYS = {
    "(folder / 'new').write_bytes(b'abc')": [("open", ["run/new"], 0), ("write", ["run/new"], 3)],
    "with open(folder / 'old', 'wb') as file: file.write(bytes(20000)); os.fsync(file.fileno())": [
        *(("open", ["run/old"], 0), ("write", ["run/old"], 20000), ("fsync", ["run/old"], 0)),
    ],
    "handle = os.open('run', os.O_RDONLY); os.fsync(handle)": [("fsync", ["run"], 0)],
    "handle = os.open('run', os.O_RDONLY); os.close(os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=handle))": [("open", ["run/x"], 0)],
    "handle = os.open('run', os.O_RDONLY); os.replace('old', 'x', src_dir_fd=handle, dst_dir_fd=handle)": [
        ("replace", ["run/old", "run/x"], 0)
    ],
    "handle = os.open('run/x', os.O_CREAT | os.O_WRONLY); os.write(handle, b'ab'); os.fchmod(handle, 0o600)": [
        *(("open", ["run/x"], 0), ("write", ["run/x"], 2), ("fchmod", ["run/x"], 0)),
    ],
    "os.makedirs('run/a/b')": [("mkdir", ["run/a"], 0), ("mkdir", ["run/a/b"], 0)],
    "Path('run/old').rename('elsewhere')": [("rename", ["run/old"], 0)],
    "Path('elsewhere').touch(); Path('elsewhere').replace('run/x')": [("replace", ["run/x"], 0)],
    "Path('run').chmod(0o755)": [("chmod", ["run"], 0)],
}


@pytest.mark.parametrize("code", WAYS)
def test_the_ways_in_which_an_audit_changes_its_folder_are_counted(code: str, tmp_path: Path) -> None:
    done, notes = run(tmp_path, code)
    assert done == 0
    assert events(notes) == WAYS[code]


WRITE = "(folder / 'old').write_bytes(b'abcdef')\n(folder / 'next').touch()\n"
FAULTS: dict[str, tuple[dict[str, object], int, bytes, bool]] = {
    "before it is opened": ({"at": 1, "side": "before", "action": "kill"}, -signal.SIGKILL, b"0123456789", False),
    "after it is opened": ({"at": 1, "side": "after", "action": "kill"}, -signal.SIGKILL, b"", False),
    "half written": ({"at": 2, "side": "half", "action": "kill"}, -signal.SIGKILL, b"abc", False),
    "written": ({"at": 2, "side": "after", "action": "kill"}, -signal.SIGKILL, b"abcdef", False),
    "refused": ({"at": 1, "side": "before", "action": "EROFS"}, 1, b"0123456789", False),
    "half refused": ({"at": 2, "side": "half", "action": "ENOSPC"}, 1, b"abc", False),
    "later": ({"at": 9, "side": "before", "action": "kill"}, 0, b"abcdef", True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_strikes_where_it_should(name: str, tmp_path: Path) -> None:
    fault, code, content, goes_on = FAULTS[name]
    done, notes = run(tmp_path, WRITE, fault=fault)
    assert done == code
    assert (tmp_path / "run" / "old").read_bytes() == content
    assert (tmp_path / "run" / "next").exists() == goes_on
    assert any("struck" in note for note in notes) == (code != 0)


LASTING = {"ENOSPC": ("write", "mkdir"), "EIO": ("write", "mkdir", "unlink")}
TRIES = """
def attempt(name, do):
    try:
        do()
    except OSError as error:
        os.write(1, f"{name}\\n".encode())

attempt("first", lambda: (folder / "a").touch())
attempt("write", lambda: (folder / "b").write_bytes(b"x"))
attempt("mkdir", lambda: (folder / "c").mkdir())
attempt("unlink", lambda: (folder / "old").unlink())
"""


@pytest.mark.parametrize("error", LASTING)
def test_an_error_that_lasts(error: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done, _ = run(tmp_path, TRIES, fault={"at": 1, "side": "before", "action": error, "lasting": True})
    assert done == 0
    assert tuple(capfd.readouterr().out.split()) == ("first", *LASTING[error])


def operations(text: str) -> list[Event]:
    """``write a; replace a b`` as operations in ``run``."""
    return [
        Event(name, tuple(f"run/{path}" if path != "." else "run" for path in paths)) for name, *paths in map(str.split, text.split(";"))
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("open t; write t; fsync t; replace t a; fsync .; write t2; fsync t2; replace t2 b; fsync .; write log.txt", 0),
        ("write t; replace t a; fsync .", 1),
        ("write t; fsync t; write t; replace t a; fsync .", 1),
        ("write t; fsync t; replace t a", 1),
        ("write t; fsync t; replace t a; write t; fsync t; replace t b; fsync .", 1),
        ("write t; replace t a; write t; replace t b", 4),
    ],
)
def test_what_a_power_cut_would_lose(text: str, problems: int) -> None:
    assert len(lost(operations(text))) == problems
