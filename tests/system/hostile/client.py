"""Commands in processes of their own, with homes of their own and under limits; what they did, and
what they left behind."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forks

ROOT = Path(__file__).resolve().parents[3]
LARGE = 2**24
HEADROOM = 2 * 2**30
LARGEST_FILE = 64 * 2**20


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
    megabytes: float


def run(
    *args: str,
    folder: Path,
    outputs: Path,
    seconds: float = 60.0,
    before: Callable[[], object] = lambda: None,
) -> Answer:
    """``robaudit ARGS`` in ``folder``, with its own HOME and TMPDIR in ``outputs``; ``before`` is
    called first, in its process."""

    def limited() -> None:
        os.environ.update(homes(outputs))
        sys.dont_write_bytecode = True
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for which, most in (
            (resource.RLIMIT_DATA, writable_memory() + HEADROOM),
            (resource.RLIMIT_FSIZE, LARGEST_FILE),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(which, (most, most))
        before()

    deadline = time.monotonic() + seconds
    with forks.started(folder, *args, before=limited) as command:
        while not (ended := command.ended()) and time.monotonic() < deadline:
            time.sleep(0.002)
        if not ended:
            command.kill()
        done = command.answer()
        return Answer(done.returncode, done.stdout, done.stderr, not ended, command.megabytes)


def writable_memory() -> int:
    """What RLIMIT_DATA counts: bytes of private writable mappings."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


def homes(place: Path) -> dict[str, str]:
    """Where a command may think the user's folders are."""
    found = {
        name: str(place / name.lower())
        for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_HOME")
    }
    for path in found.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    return found


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder: kind, size, and content or, of large files, time of change; links
    are not followed."""
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
            found[os.path.relpath(path, folder)] = (
                about.st_mode,
                about.st_size if stat.S_ISREG(about.st_mode) else None,
                content,
            )
    return found
