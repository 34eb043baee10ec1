"""A disk that refuses: one clear line, nothing silently wrong, and the same command ends well as soon as the disk does.

Every operation of small runs on their folder fails once, with an error that lasts or does not; real limits and file systems follow.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tests.faults.fault import ERRORS, Event, Fault, Side, points
from tests.faults.judge import chosen, each_scenario, every, finished, refusal, resumed
from tests.faults.rig import Rig, temporaries
from tests.faults.scenarios import EXTEND, Scenario

SIDES: tuple[Side, ...] = ("before", "half")
STATE = "state.db"


def refused(rig: Rig, scenario: Scenario, fault: Fault, event: Event) -> list[str]:
    """What is wrong with the command on a disk with this fault."""
    outcome = rig.run(*scenario.command, fault=fault)
    if not outcome.struck:
        return ["nothing went wrong"]
    if outcome.answer.code == 0 and event.is_end_of_journal:
        return finished(rig, scenario, spared=f"{STATE}-journal")
    if outcome.answer.code == 0 and event.is_log and not fault.lasting:
        return finished(rig, scenario)
    wrong = refusal(outcome, "error: run")
    if not fault.lasting:
        wrong += [f"{name} is left" for name in temporaries(rig.run_folder)]
    return wrong


@each_scenario
@every(397)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_an_operation_fails(lasting: bool, step: int, scenario: Scenario, rig: Rig) -> None:
    events = rig.events[scenario.whole]
    moments = chosen(
        zip(points(events, *SIDES), itertools.cycle(ERRORS), strict=False), step
    )  # in turn: each meets every kind of operation
    wrong = []
    for (number, side), error in moments:
        rig.begin(run=scenario.base)
        event = events[number - 1]
        found = refused(rig, scenario, Fault(number, side, error, lasting), event) + resumed(rig, scenario)
        wrong += [f"{error} {side} {event}: {problem}" for problem in found]
    print(f"{len(events)} operations, {len(moments)} errors")  # noqa: T201
    assert wrong == []


def largest_files(rig: Rig, scenario: Scenario) -> list[int]:
    """Limits below the size of each file of the finished run."""
    sizes = {path.stat().st_size for path in rig.kept(scenario.whole).rglob("*") if path.is_file() and path.name != "log.txt"}
    return sorted({max(1024, size - 1) for size in sizes})  # what the command prints goes to files, too


@each_scenario
@every(8)
def test_no_room_for_a_file(step: int, scenario: Scenario, rig: Rig) -> None:
    """The kernel's own limit (RLIMIT_FSIZE): SIGXFSZ kills nobody, and what does not fit is said."""
    limits = largest_files(rig, scenario)
    assert len(limits) >= 4
    for limit in chosen(limits, step):
        rig.begin(run=scenario.base)
        outcome = rig.run(*scenario.command, largest=limit)
        written = "disk I/O error" if f"{STATE}: " in outcome.answer.err else "File too large"  # SQLite does not say which error it was
        assert refusal(outcome, "error: run/", f"cannot be written: {written}") == []
        assert temporaries(rig.run_folder) == []
        assert resumed(rig, scenario) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write where nobody may")
@pytest.mark.parametrize("place", ["run", "."])
def test_a_folder_that_may_not_be_written(place: str, rig: Rig) -> None:
    rig.begin(run=EXTEND.base)
    folder: Path = rig.work / place
    folder.chmod(0o500)
    try:
        outcome = rig.run(*EXTEND.command)
    finally:
        folder.chmod(0o700)
    if place == ".":
        assert outcome.answer.code == 0, "the run folder itself may be written"
    else:
        assert refusal(outcome, "error: run", "Permission denied") == []
    assert resumed(rig, EXTEND) == []
