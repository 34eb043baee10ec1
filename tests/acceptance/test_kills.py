"""Killed at any moment: the same command, given again, ends with the bytes of a run that nobody disturbed.

Small runs are killed before, after and in the middle of every operation on their folder; the default suite takes a few of these
moments.
"""

from __future__ import annotations

import random
import signal

import pytest

from tests.faults.durable import lost
from tests.faults.fault import KILL, Fault, Side, points
from tests.faults.judge import chosen, each_scenario, every, finished, reader, refusal, resumed
from tests.faults.rig import Rig
from tests.faults.scenarios import EXTEND, OTHER_OPTIONS, Scenario

SIDES: tuple[Side, ...] = ("before", "half", "after")


@each_scenario
def test_the_power_may_go_off(scenario: Scenario, rig: Rig) -> None:
    assert lost(rig.events[scenario.whole]) == []


@each_scenario
@every(313)
def test_killed_at_an_operation(step: int, scenario: Scenario, rig: Rig) -> None:
    events = rig.events[scenario.whole]
    moments = chosen(points(events, *SIDES), step)
    wrong = []
    for number, side in moments:
        rig.begin(run=scenario.base)
        killed = rig.run(*scenario.command, fault=Fault(number, side, KILL))
        assert killed.answer.code == -signal.SIGKILL, killed.answer.err
        found = reader(rig, scenario) + resumed(rig, scenario)
        wrong += [f"killed {side} {events[number - 1]}: {problem}" for problem in found]
    print(f"{len(events)} operations, {len(moments)} kills")  # noqa: T201
    assert wrong == []


@each_scenario
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_killed_again_and_again(seed: int, scenario: Scenario, rig: Rig) -> None:
    """The process that resumes is killed, too, and the one after it."""
    draw = random.Random(seed)
    moments = list(points(rig.events[scenario.whole], *SIDES))
    rig.begin(run=scenario.base)
    kills = 0
    for _ in range(8):
        number, side = draw.choice(moments[: len(moments) // 4])
        outcome = rig.run(*scenario.command, fault=Fault(number, side, KILL))
        assert outcome.answer.code == (-signal.SIGKILL if outcome.struck else 0), outcome.answer.err
        kills += outcome.struck
        assert reader(rig, scenario) == []
    assert kills >= 2
    assert resumed(rig, scenario) == []


@pytest.mark.slow
@every(83)
def test_another_extension_after_one_that_was_killed(step: int, rig: Rig) -> None:
    """An estimator with other options under the same name is refused, or computed: never taken from what the dead process left."""
    wrong = []
    for number, event in chosen(enumerate(rig.events[EXTEND.whole], 1), step):
        rig.begin(run=EXTEND.base)
        rig.run(*EXTEND.command, fault=Fault(number, "after", KILL))
        other = rig.run(*OTHER_OPTIONS.command)
        if other.answer.code == 0:
            wrong += [f"killed after {event}: {problem}" for problem in finished(rig, OTHER_OPTIONS)]
        else:
            wrong += [f"killed after {event}: {problem}" for problem in refusal(other, "error: run: has run few with other options")]
            wrong += [f"killed after {event}: {problem}" for problem in resumed(rig, EXTEND)]
    assert wrong == []
