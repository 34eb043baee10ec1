"""The run folder goes away, or another takes its place, while robaudit writes: one clear line, and the other stays as it is."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.fault import REMOVE, REPLACE, Fault
from tests.faults.judge import chosen, each_scenario, every, finished, refusal
from tests.faults.rig import Outcome, Rig, content
from tests.faults.scenarios import EXTEND, FIRST, OTHER_OPTIONS, SCENARIOS, Scenario
from tests.hostile.client import ROOT
from tests.specs import digits, write
from tests.states import flushes

SECONDS = 120


@each_scenario
@every(157)
def test_removed_after_an_operation(step: int, scenario: Scenario, rig: Rig) -> None:
    wrong = []
    for number, event in chosen(enumerate(rig.events[scenario.whole], 1), step):
        rig.begin(run=scenario.base)
        outcome = rig.run(*scenario.command, fault=Fault(number, "after", REMOVE))
        assert outcome.struck
        wrong += [f"removed after {event}: {problem}" for problem in removed(rig, scenario, outcome)]
    assert not wrong, "\n".join(wrong)


def removed(rig: Rig, scenario: Scenario, outcome: Outcome) -> list[str]:
    """Either all is made anew, or the command says what happened and makes nothing."""
    if outcome.answer.code == 0:
        return finished(rig, scenario)
    return refusal(outcome, "error: run") + (["it made the folder again"] if rig.run_folder.exists() else [])


@each_scenario
@every(157)
def test_replaced_after_an_operation(step: int, scenario: Scenario, rig: Rig) -> None:
    """By a finished run of somebody else, made of other noise: it is not written to, and its results are not shown as ours."""
    untouched = content(rig.kept("another"))
    wrong = []
    for number, event in chosen(enumerate(rig.events[scenario.whole], 1), step):
        rig.begin(run=scenario.base, another="another")
        outcome = rig.run(*scenario.command, fault=Fault(number, "after", REPLACE))
        assert outcome.struck
        found = [] if outcome.answer.code == 0 and outcome.answer.out == rig.shown[scenario.whole] else refusal(outcome, "error: run")
        if content(rig.run_folder) != untouched:
            found.append("it wrote into the folder of somebody else")
        wrong += [f"replaced after {event}: {problem}" for problem in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("scenario", "other"), [(FIRST, "another"), (EXTEND, OTHER_OPTIONS.whole)], ids=list(SCENARIOS))
def test_another_process_was_quicker(scenario: Scenario, other: str, rig: Rig) -> None:
    """Two commands begin (or extend) a run in the same folder; the slower one finds what the other has made when it gets the lock."""
    lock = next(number for number, event in enumerate(rig.events[scenario.whole], 1) if event.paths == ("run/.lock",))
    rig.begin(run=scenario.base, another=other)
    outcome = rig.run(*scenario.command, fault=Fault(lock, "before", REPLACE))
    assert outcome.struck
    assert refusal(outcome, "error: run") == []
    assert content(rig.run_folder) == content(rig.kept(other))


@pytest.mark.slow
@pytest.mark.parametrize("action", [REMOVE, REPLACE])
def test_a_real_run_whose_folder_goes_away(action: str, tmp_path: Path) -> None:
    """Stopped while it computes; what comes next cannot know when to look."""
    spec = write(tmp_path, digits(limit=150, estimators=[{"mc": {"samples": 2000}}]))
    command = [sys.executable, "-m", "robaudit", "estimate", str(spec), "--out"]
    run, another = tmp_path / "run", tmp_path / "another"
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""}
    process = subprocess.Popen([*command, "run"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        deadline = time.monotonic() + SECONDS
        while not flushes(run) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        if action == REPLACE:
            shutil.copytree(run, another)
        before = content(another)
        shutil.rmtree(run)
        if action == REPLACE:
            another.rename(run)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (2, "")
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if not line.startswith(("note: ", "auditing"))]
    assert lines == ["error: run: was removed or replaced while robaudit was writing here; choose another --out"]
    assert content(run) == before
