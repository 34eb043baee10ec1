"""Images at once: one at first, then what takes about two seconds, never more than memory holds by
what was measured."""

from __future__ import annotations

import pytest
import torch

from robaudit.auditing.chunk_sizes import MOST_IMAGES, ChunkSizer
from robaudit.auditing.rounds import Work
from robaudit.engine.registry import Task, reference_class
from robaudit.memory import CPU
from tests.levels import sigma

WORK = tuple(
    Work(Task(reference_class().model_validate({"draws": 999}), "mc", sigma(level)))
    for level in (0.1, 0.2)
)


class Counted(ChunkSizer):
    """Free bytes, and chunks that take a fixed part and one for each image."""

    def __init__(
        self, free: int = 10**9, each: int = 0, fixed: int = 0, least: int = 1, rows: int = 1
    ) -> None:
        super().__init__(tuple(part.task for part in WORK), 10, 64, CPU, 10**15, least, rows)
        self.free = free
        self.each = each
        self.fixed = fixed
        self.images = 0

    def taken(self, device: torch.device) -> int:
        return max(1, self.fixed + self.each * self.images)


def grown(sizer: Counted, seconds: float = 1e-6, chunks: int = 20) -> list[int]:
    """Images of the chunks of a run, by what an image takes."""
    found = []
    for _ in range(chunks):
        found.append(sizer.next_images(WORK))
        sizer.images = found[-1]
        sizer.begin()
        sizer.took(WORK, found[-1], seconds * found[-1])
    return found


def test_the_first_chunk_is_a_single_image() -> None:
    assert grown(Counted())[:3] == [1, 8, 64]
    assert max(grown(Counted())) == MOST_IMAGES


@pytest.mark.parametrize(
    ("free", "each", "fixed"),
    [(1000, 10, 0), (1000, 10, 400), (1000, 300, 0), (1000, 5, 900), (100, 200, 0)],
)
def test_chunks_grow_as_far_as_memory_allows(free: int, each: int, fixed: int) -> None:
    found = grown(Counted(free, each, fixed))
    assert found == sorted(found)
    assert all(fixed + each * images <= free for images in found if images > 1)
    assert (
        found[-1] == 1
        or fixed == 900
        or found[-1] >= 0.9 * min(MOST_IMAGES, (free - fixed) // each)
    )


def test_a_chunk_that_takes_more_than_those_before_makes_the_next_smaller() -> None:
    sizer = Counted(1000, 10)
    for images, each, following in ((1, 10, 8), (8, 10, 64), (64, 10, 100), (100, 40, 25)):
        sizer.images = images
        sizer.each = each
        sizer.took(WORK, images, 0.0)
        assert sizer.next_images(WORK) == following


@pytest.mark.parametrize("each", [1e-4, 0.01, 0.1, 0.3, 0.9, 30.0])
def test_chunks_come_to_take_two_seconds_at_most(each: float) -> None:
    images = grown(Counted(), each)[-1]
    assert images * each >= 1.0 or images == MOST_IMAGES
    assert images * each <= 2.0 or images == 1


def test_what_was_too_much_for_the_memory_is_not_tried_again() -> None:
    sizer = Counted()
    sizer.took(WORK, 1, 0.0)
    sizer.shrink(8)
    assert sizer.next_images(WORK) == sizer.most == 4
    sizer.took(WORK, 4, 0.0)
    assert sizer.next_images(WORK) == 4
    for _ in range(9):
        sizer.shrink(sizer.most)
    assert sizer.next_images(WORK) == 1


def test_a_steady_pace_depends_on_no_clock_and_no_memory() -> None:
    sizer = ChunkSizer(tuple(part.task for part in WORK), 10, 3 * 32 * 32)
    assert sizer.next_images(WORK) == 8
    sizer.begin()
    sizer.took(WORK, 8, 0.001)
    sizer.took(WORK, 8, 100.0)
    assert sizer.next_images(WORK) == 8


def test_chains_share_their_passes() -> None:
    """As many images as fill a pass, from the first chunk on and however long it takes; fewer where
    memory ran out."""
    assert set(grown(Counted(least=6), 5.0)) == {6}
    sizer = Counted(least=6)
    sizer.shrink(6)
    sizer.took(WORK, 3, 30.0)
    assert sizer.next_images(WORK) == 3


def test_the_first_chunk_of_a_round_of_few_copies_fills_a_pass() -> None:
    sizer = Counted(rows=128)
    of_round = [Work(part.task, 8, 16) for part in WORK]
    assert sizer.next_images(of_round) == 16
    # With work of another kind a chunk begins with a single image.
    assert sizer.next_images([*of_round, *WORK]) == 1
    later = [Work(part.task, 16, 528) for part in WORK]
    assert sizer.next_images(later) == 1


def test_images_that_stay_in_memory_are_not_counted_as_those_of_a_chunk() -> None:
    sizer = ChunkSizer((), 10, 64, CPU, 10**15)
    without = sizer.taken(CPU)
    sizer.held = 2**40
    assert sizer.taken(CPU) == 1 <= without
