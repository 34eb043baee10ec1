"""What a user sees of an audit that computes: lines without a terminal, a bar on one, and nothing
that a gone reader could break."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from robaudit.cli.console import Reporter
from tests.cli.test_entry import plain, read_all
from tests.clock import Clock

SCRIPT = """
import os, time
from robaudit.cli.console import Reporter
with Reporter() as told:
    told.begin(1000, 400)
    step_time = float(os.environ.get("STEP", "0.01"))
    time.sleep(2 * step_time)
    for step in range(1, 7):
        time.sleep(step_time)
        told.working(step / 6)
        if step % 3 == 0:
            told.advance(300)
        if step == 4:
            told.warn("one is damaged")
"""


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """What was printed to standard error since the last time."""

    def read() -> list[str]:
        out, err = capsys.readouterr()
        assert out == ""
        return err.splitlines()

    return read


def test_lines_without_a_terminal(lines: Callable[[], list[str]]) -> None:
    clock = Clock()
    told = Reporter(clock=clock)
    told.begin(1000, 0)
    for _ in range(60):  # a long first part
        clock.now += 1
        told.working((clock.now - 1000) / 6000)
    assert lines() == [
        "auditing: 0 of 1000 samples, about 1.7 h left",
        "auditing: 0 of 1000 samples, about 1.6 h left",
    ]
    told.advance(10)
    clock.now += 30
    told.working(90 / 6000)
    assert lines() == ["auditing: 10 of 1000 samples, 10/min, 1.6 h left"]
    for _ in range(40):  # short parts
        clock.now += 0.5
        told.working((clock.now - 1000) / 6000)
        told.advance(1)
    assert lines() == []
    told.end()


def test_what_is_computed(lines: Callable[[], list[str]]) -> None:
    clock = Clock()
    told = Reporter(clock=clock)
    told.doing("loading the model")
    assert lines() == [], "soon done"
    clock.now += 31
    told.doing("checking model and data")
    assert lines() == ["checking model and data"]
    told.begin(10, 0)
    for what, share in (("mc at sigma 0.05", 0.1), ("splitting at sigma 0.1", 0.2)):
        told.doing(what)
        clock.now += 31
        told.working(share)
    assert [re.sub(r"about .* left", "about ... left", line) for line in lines()] == [
        "auditing: 0 of 10 samples, about ... left (mc at sigma 0.05)",
        "auditing: 0 of 10 samples, about ... left (splitting at sigma 0.1)",
    ]
    told.end()


def test_a_resumed_audit_starts_where_it_stood(lines: Callable[[], list[str]]) -> None:
    clock = Clock()
    told = Reporter(clock=clock)
    told.begin(1000, 640)
    clock.now += 30
    told.working(0.25)
    told.end()
    assert lines() == [
        "auditing: 640 of 1000 samples, about 90 s left",
    ]


def on_terminal(tmp_path: Path, script: str = SCRIPT, **environment: str) -> str:
    """What the script writes to a terminal, escape codes and all."""
    controller, terminal = pty.openpty()
    settings = plain({"TERM": "xterm", "COLORTERM": "", "COLUMNS": "80", **environment})
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=settings, stderr=terminal
    ):
        os.close(terminal)
        return read_all(controller)


STAGES = """
from robaudit.cli.console import Reporter
with Reporter() as told:
    told.doing("loading the model")
    told.note("a note")
    told.begin(10, 0)
    told.doing("certified_radius at sigma 0.25")
    told.advance(5)
"""


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("100", r"[-\\|/] certified_radius at sigma 0.25 "),
        ("60", r"[-\\|/] certified_radius … "),
        ("40", "auditing "),
    ],
)
def test_stages_on_a_terminal(columns: str, says: str, tmp_path: Path) -> None:
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", on_terminal(tmp_path, STAGES, COLUMNS=columns))
    assert re.search(r"[-\\|/] loading the model", text)
    assert "note: a note" in text
    assert re.search(rf"{says} *[━╸╺]{{4,}}", text)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_reader_that_is_gone_does_not_end_the_work(terminal: bool, tmp_path: Path) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    code = SCRIPT + 'print("done")\n'
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=plain({"TERM": "xterm", "STEP": "0.1"}),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        assert os.read(ours, 10)
        os.close(ours)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done\n")
