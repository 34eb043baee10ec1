"""Which results there are: parts in any number and order, samples that come and go, hashes that collide."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.errors import DataError
from robaudit.estimators.registry import Task, build, tasks_of
from robaudit.ledger import Ledger
from robaudit.parts import HeldPart, PartFiles, PartRecord, Skip
from robaudit.results import results
from robaudit.rows import Row
from robaudit.spec import EstimatorSpec
from tests.test_runs import row

LABELS = ("mc", "taylor")
TASKS = tasks_of([0.1, 0.2], build([EstimatorSpec(name=name) for name in LABELS]))
NAMES = [(task.sigma, task.chosen.label) for task in TASKS]
PLACES = st.integers(0, 7)


class Ids:
    """A data set of which only the ids matter."""

    where, class_names = "ids", None

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def sample_id(self, index: int) -> str:
        return self.ids[index]

    def labels(self) -> None:
        return None

    def __getitem__(self, index: int) -> None:
        raise IndexError


class Held(PartFiles):
    """Parts in memory."""

    def __init__(self, records: list[PartRecord]) -> None:
        super().__init__(Path())
        self.records = records

    def held(self, number: int) -> HeldPart:
        return HeldPart(self.records[number])


def test_a_sample_in_many_parts_does_not_make_each_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robaudit.parts._HELD_ROWS", 1)
    files, read = PartFiles(tmp_path), list[int]()
    for task in NAMES:
        files.write(PartRecord([one(name, task) for name in "abcd"]))
    real = PartFiles.read

    def counted(self: PartFiles, number: int) -> PartRecord:
        read.append(number)
        return real(self, number)

    monkeypatch.setattr(PartFiles, "read", counted)
    ledger = ledger_of(list("abcd"), [real(files, number) for number in files.numbers()])
    found = list(results(Ids(list("abcd")), TASKS, ledger, files))  # type: ignore[arg-type]
    assert [len(sample.rows) for sample in found] == [4, 4, 4, 4]
    assert read == [0, 1, 2, 3]


def one(sample: str, task: tuple[float, str]) -> Row:
    return row(sample, task[0], task[1], value=hash((sample, task)) % 1000 / 1000)


def ledger_of(ids: list[str], parts: list[PartRecord]) -> Ledger:
    ledger = Ledger(Ids(ids), TASKS)  # type: ignore[arg-type]
    for number, part in enumerate(parts):
        ledger.take(number, part)
    return ledger


PARTS = st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh?!"), st.sampled_from([*NAMES, (0.3, "mc")])), max_size=6), max_size=8)


@given(
    PARTS, st.lists(st.tuples(PLACES, st.sampled_from("abch?"), st.sampled_from([None, *NAMES, (0.3, "mc")])), max_size=3), st.booleans()
)
def test_it_knows_what_a_plain_list_would(
    rows: list[list[tuple[str, tuple[float, str]]]], skips: list[tuple[int, str, tuple[float, str] | None]], collide: bool
) -> None:
    ids = list("abcdefgh")
    parts = [PartRecord([one(*r) for r in part], [Skip(s, "why", t) for at, s, t in skips if at == i]) for i, part in enumerate(rows)]
    skipped = {skip.sample_id for part in parts for skip in part.skipped if skip.task is None or skip.task in NAMES}
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr("robaudit.ledger.hash", lambda text: ord(text) % 3, raising=False)
        ledger = ledger_of(ids, parts)
        assert [ledger.index(name) for name in ("a", "h", "?")] == [0, 7, None]
    done = {name: {n for part in parts for n in {(r.sigma, r.estimator) for r in part.rows if r.sample_id == name}} for name in ids}
    for i, name in enumerate(ids):
        wanted = [] if name in skipped else [n for n in NAMES if n not in done[name]]
        assert [(t.sigma, t.chosen.label) for t in ledger.missing(i)] == wanted
    left = [i for i in range(len(ids)) if ledger.missing(i)]
    assert list(ledger.unfinished()) == left
    assert ledger.complete == len(ids) - len(left)
    assert sum(count for count, tasks in ledger.lacking() if tasks) == len(left)
    assert sum(count for count, _ in ledger.lacking()) == len(ids)


@given(st.permutations([(name, task) for name in "dcab" for task in NAMES]), st.lists(st.integers(1, 5), min_size=16, max_size=16))
def test_results_come_in_the_order_of_data_and_spec(rows: list[tuple[str, tuple[float, str]]], sizes: list[int]) -> None:
    parts = []
    for size in sizes:
        parts.append(PartRecord([one(*r) for r in rows[:size]], images={name: f"digest of {name}" for name, _ in rows[:size]}))
        rows = rows[size:]
    ids = ["d", "c", "a", "b"]
    found = list(results(Ids(ids), TASKS, ledger_of(ids, parts), Held(parts)))  # type: ignore[arg-type]
    assert [r for sample in found for r in sample.rows] == [one(name, task) for name in ids for task in NAMES]
    assert [sample.digest for sample in found] == [f"digest of {name}" for name in ids]


def test_a_skipped_sample_has_no_rows_and_a_skip_of_another_spec_does_not_count() -> None:
    parts = [
        PartRecord([one(name, NAMES[0]) for name in "abc"]),
        PartRecord([], [Skip("a", "broken", NAMES[1]), Skip("b", "broken elsewhere", (0.3, "mc"))]),
    ]
    found = list(results(Ids(list("abc")), TASKS, ledger_of(list("abc"), parts), Held(parts)))  # type: ignore[arg-type]
    assert [(len(sample.rows), sample.skip and sample.skip.reason) for sample in found] == [(0, "broken"), (1, None), (1, None)]


def test_an_id_twice_is_refused_and_a_collision_is_not() -> None:
    with pytest.raises(DataError, match="ids: the id 'b' stands twice; give every sample an id of its own"):
        ledger_of(["a", "b", "c", "b"], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robaudit.ledger.hash", lambda text: 1, raising=False)
        assert ledger_of(["a", "b"], []).index("b") == 1


def test_parts_keep_few_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robaudit.parts._HELD_ROWS", 5)
    files = PartFiles(tmp_path)
    for number in range(6):
        assert files.write(PartRecord([one(f"{number}.{i}", NAMES[0]) for i in range(2)])) == number
    for number in (0, 1, 0, 2, 3, 4, 5, 0):
        assert list(files.held(number).rows) == [f"{number}.0", f"{number}.1"]
    assert list(files._held) == [5, 0]


def test_seconds_add_up() -> None:
    parts = [PartRecord(seconds={"clean": 0.5, "mc@0.1": 1.0}), PartRecord(seconds={"clean": 0.25})]
    assert ledger_of(["a"], parts).seconds == {"clean": 0.75, "mc@0.1": 1.0}


def test_tasks_cost_what_their_passes_do() -> None:
    mc, taylor = (Task(0.1, chosen) for chosen in build([EstimatorSpec(name="mc", options={"samples": 99}), EstimatorSpec(name="taylor")]))
    assert (mc.cost(10), taylor.cost(10)) == (100, 2 + 2 * 9)
