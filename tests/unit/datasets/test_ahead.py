"""Samples read ahead: in order and the same with any number of workers, never more than requested,
and no thread is left."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robaudit.datasets.ahead import Read, read_ahead, readers
from robaudit.datasets.dataset import Labels, Sample
from robaudit.errors import SampleError

WORKERS = (0, 1, 2, 5)


class Numbers:
    """Sample i has the one pixel i; reading it calls ``first``, which may wait or raise. ``begun``
    counts what was read."""

    where = "numbers"
    class_names = None

    def __init__(self, first: Callable[[int], object] = lambda index: None) -> None:
        self._first = first
        self.begun = threading.Semaphore(0)

    def __len__(self) -> int:
        return 2**31

    def sample_id(self, index: int) -> str:
        return str(index)

    def labels(self) -> Labels | None:
        return None

    def __getitem__(self, index: int) -> Sample:
        self.begun.release()
        self._first(index)
        return Sample(str(index), torch.full((1, 1, 1), float(index), dtype=torch.float64), None)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def refuse(bad: set[int]) -> Callable[[int], None]:
    def first(index: int) -> None:
        if index in bad:
            raise SampleError(f"sample {index}", "is bad")

    return first


def told(found: Iterator[Read]) -> list[tuple[int, str, float | None]]:
    """What was read, in a form that compares."""
    return [
        (i, str(s), None) if isinstance(s, SampleError) else (i, s.id, float(s.pixels))
        for i, s in found
    ]


@given(
    indices=st.lists(st.integers(0, 50), max_size=40),
    bad=st.sets(st.integers(0, 50)),
    workers=st.integers(1, 8),
    depth=st.integers(1, 12),
)
def test_the_same_with_any_number_of_workers(
    indices: list[int], bad: set[int], workers: int, depth: int
) -> None:
    alone = told(read_ahead(Numbers(refuse(bad)), indices, 0, 0))
    assert [(i, text) for i, text, _ in alone] == [
        (i, f"sample {i}: is bad" if i in bad else str(i)) for i in indices
    ]
    assert told(read_ahead(Numbers(refuse(bad)), indices, workers, depth)) == alone


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_of_the_data_set_is_raised_at_its_place(workers: int) -> None:
    raised = threading.Event()

    def first(index: int) -> None:
        if index == 3:
            raised.set()
            raise ZeroDivisionError
        if index == 2 and workers > 1:
            raised.wait()  # the error is there before what comes before it

    taken: list[int] = []
    with pytest.raises(ZeroDivisionError):
        taken.extend(
            index for index, _ in read_ahead(Numbers(first), itertools.count(), workers, 8)
        )
    assert taken == [0, 1, 2]


@pytest.mark.parametrize(("workers", "depth"), [(1, 1), (4, 2), (3, 9)])
def test_never_more_samples_than_requested_and_none_after_the_end(workers: int, depth: int) -> None:
    data = Numbers()
    with closing(read_ahead(data, itertools.count(), workers, depth)) as found:
        assert not data.begun.acquire(blocking=False), "nothing is read before the first request"
        taken = [next(found)[0] for _ in range(20)]
        for _ in range(20 + depth):
            assert data.begun.acquire(timeout=60)
    assert taken == list(range(20))
    assert not data.begun.acquire(blocking=False)


@pytest.mark.parametrize(
    ("device", "kind", "threads"),
    [("cuda:0", "images", 4), ("cpu", "images", 0), ("cuda", "python", 0)],
)
def test_how_many_threads(device: str, kind: str, threads: int) -> None:
    assert readers(torch.device(device), kind) == threads
