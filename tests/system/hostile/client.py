"""The other end of `server`: ask for a command, get what it did and what it left behind."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.hostile.case import MARKER

ROOT = Path(__file__).resolve().parents[3]
LARGE = 2**24


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command did.

    Attributes:
        code: its exit code; negative: the signal it died of.
        late: it was killed at the deadline.
        megabytes: the most memory it had at once.
    """

    code: int
    out: str
    err: str
    late: bool
    seconds: float
    megabytes: float


class Server:
    """A process that has imported everything and forks for each command; it is still importing when this returns."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("COLUMNS", "FORCE_COLOR", "ROBAUDIT_TRACEBACK", "TTY_COMPATIBLE"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.hostile.server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ready = False

    def run(self, *args: str, folder: Path, outputs: Path, seconds: float, hook: tuple[str, dict[str, Any]] | None = None) -> Answer:
        """Run ``robaudit ARGS`` in ``folder`` with its own HOME and TMPDIR beside it, after a hook: ``module:function`` and arguments."""
        places = {"folder": str(folder), "outputs": str(outputs), "environment": homes(outputs)}
        request = {"args": args, **places, "seconds": seconds, "hook": hook}
        if self._process.stdin is None:
            raise RuntimeError("the server has no input")
        if not self._ready and self._read() != "ready\n":
            raise RuntimeError("the server did not start")
        self._ready = True
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._read())
        return Answer(out=shown(outputs / "out"), err=shown(outputs / "err"), **found)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait(10)

    def _read(self) -> str:
        return self._process.stdout.readline() if self._process.stdout is not None else ""


def shown(path: Path) -> str:
    """What a command printed."""
    return path.read_bytes().decode("utf-8", "backslashreplace")


def homes(place: Path) -> dict[str, str]:
    """Where a command may think the user's folders are."""
    found = {name: str(place / name.lower()) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_HOME")}
    for path in found.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    return {**found, MARKER: ""}


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder: kind, size, and content or, of large files, time of change; links are not followed."""
    found: dict[str, tuple[Any, ...]] = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)  # noqa: PTH118  names may be no text
            about = os.lstat(path)
            content: object = None
            if stat.S_ISLNK(about.st_mode):
                content = os.readlink(path)  # noqa: PTH115
            elif stat.S_ISREG(about.st_mode) and about.st_size <= LARGE and about.st_mode & 0o400:
                with open(path, "rb") as file:  # noqa: PTH123
                    content = hashlib.sha256(file.read()).hexdigest()
            elif stat.S_ISREG(about.st_mode):
                content = about.st_mtime_ns
            found[os.path.relpath(path, folder)] = (about.st_mode, about.st_size if stat.S_ISREG(about.st_mode) else None, content)
    return found
