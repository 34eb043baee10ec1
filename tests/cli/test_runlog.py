"""The log of a run: what every session said, in order, and nothing a terminal would obey."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock, call

import pytest

import robaudit
from robaudit.auditing import main_loop
from robaudit.progress import Listener
from robaudit.runs.log import Logged
from tests.clock import Clock
from tests.conftest import RunCli
from tests.specs import digits, write

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 .+")


def lines(run: Path) -> list[str]:
    found = (run / "log.txt").read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in found)
    return [line.partition(" ")[2] for line in found]


@pytest.mark.bits
def test_a_run_is_logged_and_a_finished_one_left_alone(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_loop, "_FLUSH_SECONDS", 0.0)  # every step is a flush
    spec = write(tmp_path, digits(limit=70))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    said = lines(tmp_path / "run")
    assert said[0].startswith("note: clean accuracy ")
    assert said[1] == "auditing 70 samples, 0 already on disk"
    assert said[-1] == "20 of 20 copies: 70 of 70 samples"
    rounds = dict[int, list[int]]()
    for line in said[2:]:
        counted = re.fullmatch(r"(\d+) of 20 copies: (\d+) of 70 samples", line)
        if counted is None:
            assert re.fullmatch(r"so far: p_robust 0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\]", line)
            continue
        rounds.setdefault(int(counted[1]), []).append(int(counted[2]))
    assert list(rounds) == [1, 8, 16, 20]
    for done in rounds.values():
        # how many at once is a matter of speed
        assert done == sorted(set(done))
        assert done[-1] == 70
    assert run_cli("estimate", spec, "--out", "run").code == 0
    assert lines(tmp_path / "run") == said
    assert run_cli("estimate", spec, "--out", "run", "--extend", "--limit", "71").code == 0
    assert "auditing 71 samples, 70 already on disk" in lines(tmp_path / "run")
    assert lines(tmp_path / "run")[-1] == "20 of 20 copies: 71 of 71 samples"


def test_control_characters_are_escaped_and_what_came_before_is_kept(tmp_path: Path) -> None:
    log = Logged(Listener())
    log.warn("a\x1b[2Jb\nc")
    log.open(tmp_path)
    log.note("umlaut \u00fc")
    assert lines(tmp_path) == ["warning: a\\x1b[2Jb\\nc", "note: umlaut \u00fc"]


def test_a_log_that_cannot_be_written_costs_only_the_log(tmp_path: Path) -> None:
    (tmp_path / "run" / "log.txt").mkdir(parents=True)
    spec = robaudit.load_spec(write(tmp_path, digits(limit=2)))
    log = Logged(Listener())
    log.open(tmp_path / "run")
    log.note("lost")
    log.note("lost, too")
    run = robaudit.audit(spec, out=tmp_path / "other")
    assert len(run.rows) == 2


def test_a_long_part_gets_a_line_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    log = Logged(Listener(), clock)
    log.open(tmp_path)
    log.begin(1000, 400)
    for _ in range(1000):
        clock.now += 0.2
        log.working((clock.now - 1000) / 2000)
    log.advance(60)
    log.advance(0)  # a part that completes no sample
    clock.now += 59.0
    log.working(0.1295)
    clock.now += 1.0
    log.working(0.13)
    assert lines(tmp_path) == [
        "auditing 1000 samples, 400 already on disk",
        "400 of 1000 samples, about 32 min left",
        "400 of 1000 samples, about 31 min left",
        "400 of 1000 samples, about 30 min left",
        "460 of 1000 samples",
        "460 of 1000 samples, 18/min, 29 min left",
    ]


def test_everything_is_passed_on() -> None:
    heard = Mock(spec=Listener)
    log = Logged(heard)
    log.begin(10, 2)
    log.working(0.25)
    log.advance(4)
    assert heard.mock_calls == [call.begin(10, 2), call.working(0.25), call.advance(4)]


@pytest.mark.parametrize(
    ("raised", "word"),
    [(KeyboardInterrupt(), "interrupted"), (SystemExit(143), "terminated")],
    ids=str,
)
def test_how_it_ended_is_kept(raised: BaseException, word: str, tmp_path: Path) -> None:
    log = Logged(Listener())
    log.open(tmp_path)
    with pytest.raises(type(raised)), log.until_interrupted():
        raise raised
    assert lines(tmp_path) == [word]
