"""What tests of several rooms share: the command line in this process."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from robaudit.cli import main
from tests import golden as messages
from tests.golden import Golden


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--write-messages``, for tests/messages."""
    parser.addoption(
        "--write-messages",
        action="store_true",
        help="write the messages that the tests provoke to tests/messages",
    )


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Keep the messages of tests that are left out."""
    messages.deselected.update(messages.place_of(item) for item in items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the messages, where asked to."""
    if session.config.getoption("--write-messages"):
        messages.write({messages.place_of(item) for item in session.items})


def pytest_configure() -> None:
    """One thread for each process: the tests' networks are tiny, and threads that wait for a busy
    core cost more than they bring."""
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # and processes forked from one whose OpenMP has more threads hang
    )
    # not that of whoever runs the tests
    os.environ.setdefault("HF_DATASETS_CACHE", tempfile.mkdtemp(prefix="robaudit-datasets-"))
    # the first text of a process takes seconds on a busy machine: no fault of a test
    slow = [HealthCheck.too_slow]
    settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=slow)
    settings.register_profile("here", deadline=None, suppress_health_check=slow)
    settings.load_profile("here")
    if os.environ.get(
        "CI"
    ):  # the same examples every time: a change is judged by itself; other runs go on searching
        settings.load_profile("ci")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests of bits where this machine does not give them."""
    if item.get_closest_marker("bits") is not None:
        from tests import bits

        if reason := bits.why_not():
            pytest.skip(reason)


class Outcome(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Outcome]


@pytest.fixture
def run_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunCli:
    """``robaudit ARGS`` in this process, in the test's own folder, without a terminal."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "ROBAUDIT_TRACEBACK", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["robaudit", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return Outcome(int(exit_.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Golden]:
    """Compares messages with those in the file of the test's room: see :mod:`tests.golden`."""
    room, test = messages.place_of(request.node)
    checked = Golden(
        room,
        test,
        tmp_path_factory.getbasetemp(),
        write=request.config.getoption("--write-messages"),
    )
    failed = request.session.testsfailed
    yield checked
    if request.session.testsfailed == failed:
        checked.finished()
