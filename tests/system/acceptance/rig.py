"""A place in which commands make, extend and show a run, die at a given moment, or meet a disk that
refuses.

A moment is an operation on the run folder that Python's audit events report (a file is opened for
writing, renamed, removed, ...), or a statement that SQLite begins.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.specs import digits, write
from tests.system.hostile.client import Answer, homes, run

OUTPUTS = ("samples.csv", "samples.json", "summary.json")
TEMPORARY = re.compile(r"\..+\.tmp|state\.db-.+")
MC = {"mc": {"draws": 8}}
FEW = {"mc": {"draws": 4, "label": "few"}}
SPECS = {
    "spec.yaml": digits(
        limit=70, noise={"sigma": [0.1, 0.2]}, estimators=[MC, FEW]
    ),  # more images than are computed at once
    "old.yaml": digits(limit=35, noise={"sigma": [0.1]}, estimators=[MC]),
}
FIRST = ("estimate", "spec.yaml", "--out", "run")
SCENARIOS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "first": (None, FIRST),
    "extended": ("old", (*FIRST, "--extend")),
}
"""By the name of the run that it makes: the run that a command starts from, and its arguments."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.mkdir", "os.remove", "os.rename")
_NEED_ROOM = ("open", "os.mkdir")


def disturb(
    folder: str,
    log: str,
    kill: int | None = None,
    fail: tuple[int, str, bool] | None = None,
    largest: int | None = None,
) -> None:
    """Let something go wrong in this process.

    Args:
        folder: the run folder.
        log: a file, elsewhere, that gets the name of each operation.
        kill: the number, from 0, of the operation before which the process is killed.
        fail: the number of the operation that fails, the name of its error, and whether all later
            ones that need room fail, too.
        largest: bytes that a file may have (RLIMIT_FSIZE).
    """
    from robaudit.auditing import main_loop

    setattr(main_loop, "FLUSH_ROWS", 1)  # noqa: B010  mypy: imported there; every step is a flush, however fast the machine
    if largest is not None:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )
    names = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    number = -1

    def operation(name: str) -> None:
        nonlocal number
        number += 1
        os.write(names, f"{name}\n".encode())
        if number == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if fail is not None and (
            number == fail[0] or (fail[2] and number > fail[0] and name in _NEED_ROOM)
        ):
            code = getattr(errno, fail[1])
            raise OSError(code, os.strerror(code))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in _CHANGES or (
            event == "open" and isinstance(args[2], int) and args[2] & _WRITING
        ):
            path = args[0] if isinstance(args[0], int) else os.fsdecode(args[0])
            # A relative path may be relative to an open folder
            if isinstance(path, str) and (
                not path.startswith("/") or Path(path).is_relative_to(folder)
            ):
                operation(event)

    def connected(*args: Any, connect: Any = sqlite3.connect, **options: Any) -> sqlite3.Connection:
        found: sqlite3.Connection = connect(*args, **options)
        found.set_trace_callback(lambda _: operation("SQL"))
        return found

    sqlite3.connect = connected  # type: ignore[assignment]
    sys.addaudithook(hook)


class Rig:
    """Makes runs in an empty folder.

    Attributes:
        work: where commands run.
        run_folder: the run that they write or read.
        operations: those that made the kept runs, by name.
        shown: what ``show`` prints of the kept runs.
    """

    def __init__(self, place: Path) -> None:
        self.work, self._outputs, self._kept = place / "work", place / "outputs", place / "kept"
        self.run_folder = self.work / "run"
        self.operations: dict[str, list[str]] = {}
        self.shown: dict[str, str] = {}
        for folder in (self.work, self._outputs, self._kept):
            folder.mkdir()
        homes(self._outputs)
        for name, document in SPECS.items():
            write(self.work, document, name)
        for name, (base, command) in {
            "old": (None, ("estimate", "old.yaml", "--out", "run")),
            **SCENARIOS,
        }.items():
            self.begin(base)
            made = self.run(*command)
            assert made.code == 0, made.err
            self.operations[name] = (self._outputs / "log").read_text().split()
            self.shown[name] = timeless(self.run("show", "run").out)
            self.run_folder.rename(self.kept(name))

    def run(self, *args: str, **disturbed: Any) -> Answer:
        """``robaudit ARGS``, with what :func:`disturb` is to do."""
        before = partial(disturb, str(self.run_folder), str(self._outputs / "log"), **disturbed)
        return run(*args, folder=self.work, outputs=self._outputs, before=before)

    def kept(self, name: str) -> Path:
        """The folder of a kept run."""
        return self._kept / name

    def begin(self, base: str | None) -> None:
        """Start from a copy of a kept run, or from nothing."""
        shutil.rmtree(self.run_folder, ignore_errors=True)
        if base is not None:
            shutil.copytree(self.kept(base), self.run_folder)

    def resumed(self, name: str) -> list[str]:
        """What is wrong when the command of a scenario is given again: it must end as if
        undisturbed, and leave nothing else."""
        again = self.run(*SCENARIOS[name][1])
        if again.code != 0:
            return [f"resumed, it ends with {again.code}: {again.err}"]
        expected = results(self.kept(name))
        found = results(self.run_folder)
        wrong = [f"{file} is another" for file, value in expected.items() if found[file] != value]
        return wrong + [
            f"{path.name} is left"
            for path in self.run_folder.rglob("*")
            if TEMPORARY.fullmatch(path.name)
        ]


def refusal(answer: Answer, *says: str) -> list[str]:
    """What is wrong with a refusal: it must be one line that says all of this, and exit code 2."""
    lines = [
        line
        for line in answer.err.splitlines()
        if not line.startswith(("note: ", "warning: ", "auditing"))
    ]
    right = (
        answer.code == 2 and len(lines) == 1 and lines[0].startswith("error: ") and not answer.out
    )
    return (
        []
        if right and all(text in lines[0] for text in says)
        else [f"it ends with {answer.code} and says {answer.err!r}"]
    )


def results(run: Path) -> dict[str, Any]:
    """What must be the same in every run of a spec; its times and its history are left out."""
    info = json.loads((run / "run.json").read_text())
    for key in ("started", "finished", "seconds", "command", "sessions", "checksum"):
        info.pop(key)
    info["totals"].pop("seconds")
    info["files"].pop("state.db")  # it holds the times
    return {**{name: (run / name).read_bytes() for name in OUTPUTS}, "run.json": info}


def timeless(shown: str) -> str:
    """What ``show`` prints without its last column, the seconds: a session that goes on passes its
    first images by themselves again."""
    return re.sub(r" +[\d.,]+$", "", shown, flags=re.MULTILINE)


def spread(moments: Sequence[int], count: int) -> list[int]:
    """So many of the moments, evenly spread."""
    return [moments[int((i + 0.5) * len(moments) / count)] for i in range(min(count, len(moments)))]
