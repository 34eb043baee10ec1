"""A command on a disk where something goes wrong, and what is in the run folder afterwards."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.faults.fault import Event, Fault
from tests.hostile.client import Answer, Server, homes, snapshot

OUTPUTS = ("samples.csv", "samples.json", "summary.json")
TEMPORARY = re.compile(r"\..+\.tmp|state\.db-.+")
RANDOM = re.compile(r"\.[0-9a-f]{16}\.tmp$")
TICK = 0.15  # seconds of the clock of commands that are disturbed
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did, and to the run folder.

    Attributes:
        notes: what the process noted of itself, in order.
    """

    answer: Answer
    notes: list[dict[str, Any]]

    @property
    def events(self) -> list[Event]:
        """The operations on the run folder; the random part of temporary names is left out."""
        found = [note["event"] for note in self.notes if "event" in note]
        return [Event(name, tuple(RANDOM.sub(".*.tmp", path) for path in paths), size) for name, paths, size in found]

    @property
    def struck(self) -> bool:
        """Whether the fault came to pass."""
        return any("struck" in note for note in self.notes)

    @property
    def lines(self) -> list[str]:
        """What it said besides notes, warnings and progress."""
        return [line for line in self.answer.err.splitlines() if not line.startswith(("note: ", "warning: ", "auditing"))]


class Rig:
    """A place with a spec, in which commands make, extend and show the folder ``run``.

    Args:
        server: runs the commands; it has imported `tests.faults.clock` and `tests.faults.disk`.
        place: an empty folder.

    Attributes:
        work: where commands run.
        shown: what ``show`` prints of the kept runs, by name.
        events: the operations that made them.
    """

    def __init__(self, server: Server, place: Path) -> None:
        self._server = server
        self.work, self._outputs, self._kept = place / "work", place / "outputs", place / "kept"
        self.run_folder = self.work / "run"
        self.shown: dict[str, str] = {}
        self.events: dict[str, list[Event]] = {}
        for folder in (self.work, self._outputs, self._kept):
            folder.mkdir()
        homes(self._outputs)

    def run(self, *args: str, fault: Fault | None = None, largest: int | None = None) -> Outcome:
        """``robaudit ARGS``."""
        events = self._outputs / "events"
        events.unlink(missing_ok=True)
        values = {"folder": str(self.run_folder), "events": str(events), "fault": asdict(fault) if fault else None}
        hook = ("tests.faults.disk:install", {**values, "largest": largest, "tick": TICK})
        answer = self._server.run(*args, folder=self.work, outputs=self._outputs, seconds=SECONDS, hook=hook)
        return Outcome(answer, [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else [])

    def good(self, *args: str) -> Outcome:
        """The same where nothing may go wrong."""
        outcome = self.run(*args)
        if outcome.answer.code != 0:
            raise AssertionError(outcome.answer.err)
        return outcome

    def make(self, name: str, base: str | None, *command: str) -> None:
        """Make a run where nothing goes wrong, starting from a kept one or from nothing, and keep it under a name."""
        self.begin(run=base)
        self.events[name] = self.good(*command).events
        self.shown[name] = self.good("show", "run").answer.out
        self.run_folder.rename(self.kept(name))

    def kept(self, name: str) -> Path:
        """The folder of a kept run."""
        return self._kept / name

    def begin(self, **folders: str | None) -> None:
        """Copies of kept runs as these folders (None: there is none), and no others."""
        for path in self.work.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        for folder, name in folders.items():
            if name is not None:
                shutil.copytree(self.kept(name), self.work / folder)


def results(run: Path) -> dict[str, Any]:
    """What must be the same in every run of a spec; its times and its history are left out."""
    info = json.loads((run / "run.json").read_text())
    for key in ("started", "finished", "seconds", "command", "sessions", "checksum"):
        info.pop(key)
    info["totals"].pop("seconds")
    info["files"].pop("state.db")  # it holds the times
    return {**{name: (run / name).read_bytes() for name in OUTPUTS}, "run.json": info}


def timeless(shown: str) -> str:
    """What ``show`` prints without its last column, the seconds: a session that goes on passes its first images by themselves again."""
    return re.sub(r" +[\d.,]+$", "", shown, flags=re.MULTILINE)


def temporaries(run: Path) -> list[str]:
    """Temporary files and journals, which only a killed process may leave."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if TEMPORARY.fullmatch(path.name))


def content(folder: Path) -> str:
    """All of a folder in one line."""
    return repr(sorted(snapshot(folder).items())) if folder.exists() else "no folder"
