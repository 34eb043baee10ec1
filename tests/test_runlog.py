"""The log of a run: what every session said, in order, and nothing a terminal would obey."""

from __future__ import annotations

import re
from pathlib import Path

import robaudit
from robaudit.progress import Silent
from robaudit.runlog import Logged
from tests.conftest import RunCli
from tests.specs import digits, write

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 .+")


def lines(run: Path) -> list[str]:
    found = (run / "log.txt").read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in found)
    return [line.partition(" ")[2] for line in found]


def test_a_run_is_logged_and_a_finished_one_left_alone(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=70))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    said = lines(tmp_path / "run")
    assert said[0].startswith("note: clean accuracy ")
    assert said[1:] == ["auditing 70 samples, 0 on disk already", "64 of 70 samples", "70 of 70 samples"]
    assert run_cli("estimate", spec, "--out", "run").code == 0
    assert lines(tmp_path / "run") == said
    assert run_cli("estimate", spec, "--out", "run", "--extend", "--limit", "71").code == 0
    assert lines(tmp_path / "run")[-2:] == ["auditing 71 samples, 70 on disk already", "71 of 71 samples"]


def test_control_characters_are_escaped_and_what_came_before_is_kept(tmp_path: Path) -> None:
    log = Logged(Silent())
    log.warn("a\x1b[2Jb\nc")
    log.open(tmp_path)
    log.note("umlaut \u00fc")
    assert lines(tmp_path) == ["warning: a\\x1b[2Jb\\nc", "note: umlaut \u00fc"]


def test_a_log_that_cannot_be_written_costs_only_the_log(tmp_path: Path) -> None:
    (tmp_path / "run" / "log.txt").mkdir(parents=True)
    spec = robaudit.load_spec(write(tmp_path, digits(limit=2)))
    log = Logged(Silent())
    log.open(tmp_path / "run")
    log.note("lost")
    log.note("lost, too")
    run = robaudit.audit(spec, out=tmp_path / "other")
    assert len(run.rows) == 2
