"""The verdict on a disturbed command: it must say one clear line, and end as if undisturbed when given again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest

from tests.faults.rig import Outcome, Rig, results, temporaries, timeless
from tests.faults.scenarios import SCENARIOS, Scenario

Moment = TypeVar("Moment")
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=list(SCENARIOS))


MANY = 11
"""In the slow suite one of so many moments is disturbed: a run of the rig makes some hundred system calls, most of them alike."""


def every(some: int) -> pytest.MarkDecorator:
    """One of :data:`MANY` moments in the slow suite, one of ``some`` in the default one."""
    return pytest.mark.parametrize("step", [pytest.param(MANY, id="many", marks=pytest.mark.slow), pytest.param(some, id="some")])


def chosen(moments: Iterable[Moment], step: int) -> list[Moment]:
    """One of ``step`` moments, from the middle of the first ones."""
    return list(moments)[step // 2 :: step]


def refusal(outcome: Outcome, *says: str) -> list[str]:
    """What is wrong with a refusal: it must be one line that says all of this, and exit code 2."""
    answer, lines = outcome.answer, outcome.lines
    right = answer.code == 2 and len(lines) == 1 and lines[0].startswith("error: ") and not answer.out
    return [] if right and all(text in lines[0] for text in says) else [f"it ends with {answer.code} and says {answer.err!r}"]


def reader(rig: Rig, scenario: Scenario) -> list[str]:
    """What is wrong with ``show`` of a run whose process has died: it must print a whole run, old or new, or one line."""
    found = rig.run("show", "run")
    if found.answer.code != 0:
        return [f"show: {problem}" for problem in refusal(found, "error: run")]
    whole = timeless(found.answer.out) in [timeless(rig.shown[name]) for name in (scenario.base, scenario.whole) if name]
    return [] if whole else ["show prints what is neither the old run nor the new one"]


def finished(rig: Rig, scenario: Scenario, spared: str = "") -> list[str]:
    """What is wrong with a finished run: its results must be those of the undisturbed one, and nothing else may be left.

    Args:
        rig: with the run.
        scenario: how it was made.
        spared: a file that may be left if it is empty.
    """
    expected, found = results(rig.kept(scenario.whole)), results(rig.run_folder)
    wrong = [f"{name} is another" for name, value in expected.items() if found[name] != value]
    left = [name for name in temporaries(rig.run_folder) if name != spared or (rig.run_folder / name).stat().st_size]
    return wrong + [f"{name} is left" for name in left]


def resumed(rig: Rig, scenario: Scenario) -> list[str]:
    """What is wrong when the same command is given again: it must end well, as if undisturbed."""
    again = rig.run(*scenario.command)
    return finished(rig, scenario) if again.answer.code == 0 else [f"resumed, it ends with {again.answer.code}: {again.answer.err}"]
