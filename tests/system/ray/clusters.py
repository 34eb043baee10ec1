"""Ray clusters of this machine for tests, and the processes that belong to them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cli.test_entry import plain

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0
"""Seconds after which a test gives up."""


def needs_ray() -> None:
    """Skip where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (the extra ray)")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A folder that Ray keeps its files in: short, because the paths of sockets are, and by which
    its processes are known."""

    folder: str

    @property
    def environment(self) -> dict[str, str]:
        """Of programs that start or find a cluster here."""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        mine = {
            "RAY_TMPDIR": self.folder,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        return {
            key: value for key, value in plain({}).items() if not key.startswith("RAY_")
        } | mine  # audits of this process leave some

    def processes(self) -> list[psutil.Process]:
        """All that belong to it, but for the shells of programs that are ending."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    process.environ().get("RAY_TMPDIR") == self.folder
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """The processes of the audit's workers."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[0].startswith("ray::RayWorker"):
                    found.append(process)
        return found

    def deserted(self) -> bool:
        """Whether all processes have ended; some take a moment."""
        return wait_for(lambda: not self.processes(), 30.0)


def wait_for(happened: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Wait until something has happened; False if it did not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.02)
    return bool(happened())


@contextlib.contextmanager
def surroundings() -> Iterator[Surroundings]:
    """Surroundings in which nothing is left running or lying about."""
    needs_ray()
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    here = Surroundings(folder)
    try:
        yield here
    finally:
        deserted = here.deserted()
        for process in here.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        assert deserted, "processes of Ray were left behind"


@dataclass(slots=True)
class Nodes:
    """Two nodes, each with room for one worker.

    Attributes:
        here: their surroundings.
        address: of the head node.
    """

    here: Surroundings
    address: str
    _process: subprocess.Popen[str]

    def remove(self) -> None:
        """Kill all processes of the second node."""
        self._tell("remove")

    def add(self) -> None:
        """Start a second node again."""
        self._tell("add")

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert line_of(self._process) == "done"


@contextlib.contextmanager
def two_nodes() -> Iterator[Nodes]:
    """A cluster of two nodes; skips where it cannot be started."""
    with surroundings() as here:
        command = [sys.executable, str(Path(__file__).with_name("nodes.py"))]
        log = Path(here.folder, "nodes.txt")
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command,
                env=here.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                address = line_of(process)
                if not address:
                    pytest.skip(f"Ray's cluster cannot be started here: {log.read_text()[-500:]}")
                yield Nodes(here, address, process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; empty if it does not."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline().strip() if selector.select(PATIENCE) else ""


@dataclass(slots=True)
class Audit:
    """An audit in a process of its own.

    Attributes:
        process: of it.
        folder: its working folder.
    """

    process: subprocess.Popen[str]
    folder: Path

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, standard output and standard error, once it has ended."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextlib.contextmanager
def estimating(
    folder: Path, here: Surroundings, *args: str, environment: Mapping[str, str] | None = None
) -> Iterator[Audit]:
    """``robaudit estimate spec.yaml ARGS``; it is killed if it still runs at the end of the
    block."""
    command = [sys.executable, "-c", PROGRAM, "estimate", "spec.yaml", *args]
    started = {**here.environment, **(environment or {})}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=started,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # as a terminal does
        text=True,
    ) as process:
        try:
            yield Audit(process, folder)
        finally:
            process.kill()


PROGRAM = """
from robaudit.auditing import main_loop
from robaudit.cli import main
main_loop._FLUSH_SECONDS = 0.0  # what has come is written at once
main()
"""


def estimate(
    folder: Path, here: Surroundings, *args: str, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """The same, from start to end."""
    with estimating(folder, here, *args, environment=environment) as audit:
        return audit.ended()
