"""Images at once: one at first, then what takes about a second, never more than memory holds by what was measured."""

from __future__ import annotations

import pytest

from robaudit.auditing.setup import MOST_IMAGES, Pace
from robaudit.estimators.registry import build, tasks_at
from robaudit.memory import CPU, Headroom, Limit
from robaudit.spec.model import EstimatorSpec
from tests.levels import sigma

TASKS = tasks_at([sigma(0.1), sigma(0.2)], build([EstimatorSpec(name="mc", options={"samples": 999})]))
PLENTY = Limit(10**15, "plenty")


class Counted(Headroom):
    """Free bytes, and a chunk that takes a fixed part and one for each image."""

    def __init__(self, free: int, each: int = 0, fixed: int = 0) -> None:
        super().__init__(CPU, PLENTY)
        self.free, self.each, self.fixed, self.images = free, each, fixed, 0

    def taken(self) -> int:
        return self.fixed + self.each * self.images


def grown(room: Counted, chunks: int = 20) -> list[int]:
    """Images of the chunks of a run that is short of memory only."""
    pace = Pace(TASKS, 10, 64, room)
    found = []
    for _ in range(chunks):
        found.append(pace.next_images(TASKS))
        room.images = found[-1]
        pace.begin()
        pace.fitted(TASKS, found[-1])
        pace.took(found[-1], longest=0.001)
    return found


def test_the_first_chunk_is_a_single_image() -> None:
    assert grown(Counted(10**9))[:3] == [1, 8, 64]
    assert max(grown(Counted(10**9))) == MOST_IMAGES


@pytest.mark.parametrize(("free", "each", "fixed"), [(1000, 10, 0), (1000, 10, 400), (1000, 300, 0), (1000, 5, 900), (100, 200, 0)])
def test_chunks_grow_as_far_as_memory_allows(free: int, each: int, fixed: int) -> None:
    found = grown(Counted(free, each, fixed))
    assert found == sorted(found)
    assert all(fixed + each * images <= free for images in found if images > 1)
    assert found[-1] == 1 or fixed == 900 or found[-1] >= 0.9 * min(MOST_IMAGES, (free - fixed) // each)


def test_a_chunk_that_takes_more_than_those_before_makes_the_next_smaller() -> None:
    room = Counted(1000, 10)
    pace = Pace(TASKS, 10, 64, room)
    for images, each, allowed in ((1, 10, 8), (8, 10, 64), (50, 10, 100), (50, 40, 25)):
        room.images, room.each = images, each
        pace.fitted(TASKS, images)
        assert pace.allowed(TASKS) == allowed


def test_each_set_of_tasks_is_measured() -> None:
    room = Counted(1000, 10)
    pace = Pace(TASKS, 10, 64, room)
    room.images = 1
    pace.fitted(TASKS[:1], 1)
    assert pace.allowed(TASKS[:1]) == 8
    assert pace.allowed(TASKS) == 1, "others may take more"
    pace.fitted(TASKS, 1)
    assert pace.allowed(TASKS[1:]) == 8, "a part of the tasks takes no more than all of them"


@pytest.mark.parametrize("each", [1e-4, 0.01, 0.1, 0.3, 0.9, 30.0])
def test_chunks_come_to_take_about_a_second(each: float) -> None:
    pace = Pace(TASKS, 10, 1024, Counted(10**9))
    for _ in range(20):
        pace.took(pace.images, longest=pace.images * each)
    seconds = pace.images * each
    assert seconds >= 0.3 or pace.images == MOST_IMAGES
    assert seconds <= 2.0 or pace.images == 1


def test_many_short_steps_do_not_make_chunks_smaller() -> None:
    pace = Pace(TASKS, 10, 64, Counted(10**9))
    pace.took(64, longest=0.9)
    assert pace.images == 64
    pace.took(64, longest=0.1)
    assert pace.images == 128, "however long all steps together took"


def test_a_short_last_chunk_says_nothing() -> None:
    pace = Pace(TASKS, 10, 64, Counted(10**9))
    pace.took(3, longest=0.01)
    assert pace.images == 64


def test_what_was_too_much_for_the_memory_is_not_tried_again() -> None:
    pace = Pace(TASKS, 10, 64, Counted(10**9))
    pace.shrink(64)
    assert pace.images == pace.most == 32
    pace.took(32, longest=0.001)
    assert pace.images == 32
    for _ in range(9):
        pace.shrink(pace.images)
    assert pace.images == 1


def test_a_steady_pace_depends_on_no_clock_and_no_memory() -> None:
    pace = Pace(TASKS, 10, 3 * 32 * 32)
    before = pace.next_images(TASKS)
    assert before == 8
    pace.begin()
    pace.fitted(TASKS, before)
    pace.took(before, longest=0.001)
    pace.took(before, longest=100.0)
    assert pace.next_images(TASKS) == before


def test_chains_share_their_passes() -> None:
    """As many images as fill a pass, from the first chunk on and however long it takes; fewer where memory ran out."""
    pace = Pace(TASKS, 10, 64, Counted(10**9), least=6)
    assert pace.next_images(TASKS) == 6
    pace.took(6, longest=30.0)
    assert pace.next_images(TASKS) == 6
    pace.shrink(6)
    assert pace.next_images(TASKS) == 3
    pace.took(3, longest=30.0)
    assert pace.next_images(TASKS) == 3
