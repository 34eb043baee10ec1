"""How many images at once: a rule at first, then what a second takes, never more than memory allows."""

from __future__ import annotations

import pytest

from robaudit.pace import MOST_IMAGES, Pace
from robaudit.plan import tasks_of
from robaudit.registry import build
from robaudit.spec.model import EstimatorSpec

TASKS = tasks_of([0.1], build([EstimatorSpec(name="mc", options={"samples": 999})]))


def test_the_first_chunk_is_a_rule_of_the_work() -> None:
    assert Pace(TASKS, 10, 3 * 32 * 32).images == 1
    assert Pace(TASKS, 10, 64).images == 64
    assert Pace(TASKS, 10, 64, most=10).images == 10
    assert Pace(TASKS, 10, 3 * 224 * 224, most=0).images == 1


@pytest.mark.parametrize("each", [1e-4, 0.01, 0.1, 0.3, 0.9, 30.0])
def test_chunks_come_to_take_about_a_second(each: float) -> None:
    pace = Pace(TASKS, 10, 1024)
    for _ in range(20):
        pace.took(pace.images, longest=pace.images * each)
    seconds = pace.images * each
    assert seconds >= 0.3 or pace.images == MOST_IMAGES
    assert seconds <= 2.0 or pace.images == 1


def test_many_short_steps_do_not_make_chunks_smaller() -> None:
    pace = Pace(TASKS, 10, 64)
    pace.took(64, longest=0.9)
    assert pace.images == 64
    pace.took(64, longest=0.1)
    assert pace.images == 128, "however long all steps together took"


def test_a_short_last_chunk_says_nothing() -> None:
    pace = Pace(TASKS, 10, 64)
    pace.took(3, longest=0.01)
    assert pace.images == 64


def test_what_was_too_much_for_the_memory_is_not_tried_again() -> None:
    pace = Pace(TASKS, 10, 64)
    pace.shrink(64)
    assert pace.images == 32
    pace.took(32, longest=0.001)
    assert pace.images == 32
    for _ in range(9):
        pace.shrink(pace.images)
    assert pace.images == 1


def test_a_steady_pace_depends_on_no_clock() -> None:
    pace = Pace(TASKS, 10, 3 * 32 * 32, timed=False)
    before = pace.images
    assert before == 8
    pace.took(before, longest=0.001)
    pace.took(before, longest=100.0)
    assert pace.images == before
