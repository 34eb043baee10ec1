"""The rounds of an audit, and what they read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robaudit.auditing.chunk_sizes import ChunkSizer
from robaudit.auditing.main_loop import compute_missing, task_names
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.auditing.remembered import RememberedImages
from robaudit.auditing.rounds import Round, draws_of_rounds, rounds_of, work_of
from robaudit.datasets.dataset import Dataset, Sample
from robaudit.engine.registry import tasks_of
from robaudit.memory import CPU
from robaudit.progress import Listener
from robaudit.runs.state import State
from robaudit.spec.model import AuditSpec
from tests.specs import digits

MIXED = AuditSpec.model_validate(
    digits(estimators=[{"mc": {"draws": 40}}, "softmax", {"mc": {"draws": 9, "label": "few"}}])
)


@pytest.mark.parametrize(
    ("most", "rounds"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (8, (1, 8)),
        (9, (1, 8, 9)),
        (17, (1, 8, 17)),
        (100, (1, 8, 16, 32, 64, 100)),
        (1000, (1, 8, 16, 32, 64, 128, 256, 512, 1000)),
        (1025, (1, 8, 16, 32, 64, 128, 256, 512, 1025)),
    ],
)
def test_they_double_and_the_last_adds_an_eighth(most: int, rounds: tuple[int, ...]) -> None:
    assert draws_of_rounds(most) == rounds


@given(st.integers(1, 10**8))
def test_few_rounds_lead_to_any_number(most: int) -> None:
    draws = draws_of_rounds(most)
    assert list(draws) == sorted(set(draws))
    assert (draws[0], draws[-1]) == (1, most)
    assert len(draws) <= 2 + max(0, (most - 1).bit_length() - 2)


def test_estimators_without_rounds_have_a_single_one() -> None:
    assert rounds_of(tasks_of(AuditSpec.model_validate(digits(estimators=["softmax"])))) == (
        Round(0, 1.0),
    )


def test_other_estimators_keep_pace_with_the_copies() -> None:
    tasks = tasks_of(MIXED)
    rounds = rounds_of(tasks)
    assert [(one.draws, one.share) for one in rounds] == [
        (1, 1 / 40),
        (8, 0.2),
        (16, 0.4),
        (32, 0.8),
        (40, 1.0),
    ]
    assert {one.share for one in rounds_of(tasks, others_first=True)} == {1.0}
    nothing_yet = dict.fromkeys(range(3), 0)

    def in_round(number: int, missing: dict[int, int], *, turn: bool) -> list[tuple[Any, ...]]:
        work = work_of(tasks, missing, rounds[number], turn=turn, flag=None)
        return [(part.task.label, part.start, part.draws) for part in work]

    assert in_round(0, nothing_yet, turn=True) == [
        ("mc", 0, 1),
        ("softmax", 0, None),
        ("few", 0, 1),
    ]
    assert in_round(0, nothing_yet, turn=False) == [("mc", 0, 1), ("few", 0, 1)]
    assert in_round(2, {0: 8, 2: 8}, turn=True) == [("mc", 8, 16), ("few", 8, 9)]
    assert in_round(2, {0: 16}, turn=True) == []


class Recorder(Listener):
    """Remembers the samples on disk after each round."""

    def __init__(self) -> None:
        self.rounds = list[tuple[int, int]]()

    def round(self, draws: int, most: int, done: int) -> None:
        self.rounds.append((draws, done))


def prepared() -> PreparedAudit:
    return prepare(Request(MIXED), torch.device("cpu"), Listener())


@pytest.mark.bits
def test_results_are_those_of_all_copies_at_once_in_any_order() -> None:
    ready = prepared()

    def rows(**options: Any) -> list[Any]:
        with State() as state:
            state.begin(ready.data, task_names(ready.tasks))
            compute_missing(state, ready.data, ready.tasks, ready.worker(), Listener(), **options)
            return [row for sample in state.results() for row in sample.rows]

    at_once = rows()
    listener = Recorder()
    assert rows(rounds=rounds_of(ready.tasks)) == at_once
    order = [5, 2, 7, 0, 1, 6, 4, 3]
    with State() as state:
        state.begin(ready.data, task_names(ready.tasks))
        seen = list[list[str]]()

        def look(_: bool) -> bool:
            others = [
                sample.rows[0].sample_id
                for sample in state.results()
                if any(row.estimator == "softmax" for row in sample.rows)
            ]
            seen.append(others)
            return False

        compute_missing(
            state,
            ready.data,
            ready.tasks,
            ready.worker(),
            listener,
            rounds=rounds_of(ready.tasks),
            after_round=look,
            order=order,
        )
        assert [row for sample in state.results() for row in sample.rows] == at_once
    ids = [ready.data.sample_id(place) for place in order]
    assert [set(others) for others in seen] == [set(ids[:n]) for n in (1, 2, 4, 7, 8)]
    assert [draws for draws, _ in listener.rounds] == [1, 8, 16, 32, 40]


class Counted:
    """A data set that counts what is read."""

    where = "counted"
    class_names = None

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.read = Counter[int]()

    def __len__(self) -> int:
        return len(self.data)

    def sample_id(self, index: int) -> str:
        return self.data.sample_id(index)

    def labels(self) -> None:
        return None

    def __getitem__(self, index: int) -> Sample:
        self.read[index] += 1
        return self.data[index]


def test_decoded_images_are_read_again_only_where_they_do_not_fit() -> None:
    data = Counted(prepared().data)
    size = data[0].pixels.nbytes
    data.read.clear()
    sizer = ChunkSizer((), 10, 64, CPU, 10**15)
    remembered = RememberedImages(data, 3 * size, sizer)
    for _ in range(4):
        for place in range(len(data)):
            assert remembered[place].id == data.sample_id(place)
    assert data.read == {place: 1 if place < 3 else 4 for place in range(8)}
    assert sizer.held == 3 * size
