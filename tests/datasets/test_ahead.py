"""Samples read ahead: in order and the same whatever the number of workers, never more than asked for, and no thread is left."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robaudit.datasets.ahead import Read, default_workers, read_ahead
from robaudit.datasets.base import Labels, Sample
from robaudit.errors import SampleError
from tests.conftest import RunCli
from tests.specs import digits, write

WORKERS = (0, 1, 2, 5)


class Numbers:
    """Sample i has the one pixel i; reading it calls ``first``, which may wait or raise. ``begun`` lists what was read."""

    where, class_names = "numbers", None

    def __init__(self, first: Callable[[int], object] = lambda index: None) -> None:
        self._first = first
        self.begun: list[int] = []

    def __len__(self) -> int:
        return 2**31

    def sample_id(self, index: int) -> str:
        return str(index)

    def labels(self) -> Labels | None:
        return None

    def __getitem__(self, index: int) -> Sample:
        self.begun.append(index)
        self._first(index)
        return Sample(str(index), torch.full((1, 1, 1), float(index), dtype=torch.float64), None)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert true()


def refuse(bad: set[int]) -> Callable[[int], None]:
    """Refuses some indices, and reads every third one slowly."""

    def first(index: int) -> None:
        if index % 3 == 0:
            time.sleep(0.0005)
        if index in bad:
            raise SampleError(f"sample {index}", "is bad")

    return first


def told(found: Iterator[Read]) -> list[tuple[int, str, float | None]]:
    """What was read, in a form that compares."""
    return [(i, str(s), None) if isinstance(s, SampleError) else (i, s.id, float(s.pixels)) for i, s in found]


@given(
    indices=st.lists(st.integers(0, 50), max_size=40),
    bad=st.sets(st.integers(0, 50)),
    workers=st.integers(1, 8),
    depth=st.integers(1, 12),
)
def test_the_same_whatever_the_number_of_workers(indices: list[int], bad: set[int], workers: int, depth: int) -> None:
    alone = told(read_ahead(Numbers(refuse(bad)), indices, 0, 0))
    assert [(i, text) for i, text, _ in alone] == [(i, f"sample {i}: is bad" if i in bad else str(i)) for i in indices]
    assert told(read_ahead(Numbers(refuse(bad)), indices, workers, depth)) == alone


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_of_the_data_set_is_raised_at_its_place(workers: int) -> None:
    def first(index: int) -> None:
        if index == 3:
            raise ZeroDivisionError
        time.sleep(0.01 * (index < 3))  # the error is there before what comes before it

    taken: list[int] = []
    with pytest.raises(ZeroDivisionError):
        taken.extend(index for index, _ in read_ahead(Numbers(first), itertools.count(), workers, 8))
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_more_is_read_after_the_end(workers: int) -> None:
    """Readers finish what they read, and leave what is ordered."""
    gate = threading.Event()
    data = Numbers(lambda index: index < 8 or gate.wait(30))
    found = read_ahead(data, itertools.count(), workers, 20)
    assert [next(found)[0] for _ in range(6)] == list(range(6))
    wait_until(lambda: len(data.begun) == 8 + workers)
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    found.close()
    opener.join()
    assert sorted(data.begun) == list(range(8 + workers))


def test_an_exception_of_the_caller_ends_the_readers() -> None:
    def take() -> None:
        for index, _ in read_ahead(Numbers(), itertools.count(), 3, 5):
            if index == 7:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take()
    wait_until(lambda: not any(thread.name.startswith("reader") for thread in threading.enumerate()))


@pytest.mark.parametrize(("workers", "depth"), [(1, 1), (1, 6), (4, 2), (3, 9)])
def test_never_more_samples_than_asked_for(workers: int, depth: int) -> None:
    data = Numbers()
    with closing(read_ahead(data, itertools.count(), workers, depth)) as found:
        assert data.begun == [], "nothing is read before it is asked for"
        for taken in range(1, 20):
            next(found)
            wait_until(lambda taken=taken: len(data.begun) == taken + depth)  # type: ignore[misc]
            if taken % 5 == 0:
                time.sleep(0.01)
                assert len(data.begun) == taken + depth


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path: Path, run_cli: RunCli) -> None:
    noise = np.random.default_rng(0)
    for number in range(10):
        (tmp_path / "digits" / str(number)).mkdir(parents=True)
        for copy in range(3):
            Image.fromarray(noise.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / "digits" / str(number) / f"{copy}.png")
    (tmp_path / "digits" / "3" / "1.png").write_bytes(b"damaged")
    spec = write(tmp_path, digits(dataset={"kind": "images", "path": "digits", "channels": 1}))
    for workers in WORKERS:
        assert run_cli("estimate", spec, "--out", f"run{workers}", "--workers", str(workers), "--on-error", "skip").code == 0
    for name in ("samples.csv", "samples.json", "summary.json"):
        assert len({(tmp_path / f"run{workers}" / name).read_bytes() for workers in WORKERS}) == 1


@pytest.mark.parametrize(
    ("asked", "device", "kind", "workers"),
    [
        ("auto", "cuda:0", "images", 4),
        ("auto", "cpu", "images", 0),
        ("auto", "cuda", "python", 0),
        (3, "cpu", "images", 3),
        (2, "cuda", "python", 2),
        (0, "cuda", "images", 0),
    ],
)
def test_default_workers(asked: int | Literal["auto"], device: str, kind: str, workers: int) -> None:
    assert default_workers(asked, torch.device(device), kind) == workers
