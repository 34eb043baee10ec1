"""The state of a run: flushes in any number and order, samples that come and go, and files that are
not what was written."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.engine.registry import Task, build
from robaudit.errors import DataError, RunError
from robaudit.runs.info import Skip
from robaudit.runs.rows import Row
from robaudit.runs.state import _EARLIER_SCHEMA, Flush, State, TaskName
from robaudit.spec.model import EstimatorSpec
from tests import states
from tests.golden import Golden
from tests.levels import sigma
from tests.rows import ROWS
from tests.unit.runs.test_runs import row

LABELS = ("mc", "taylor")
BUILT = build([EstimatorSpec(name=name) for name in LABELS])
TASKS = tuple(
    Task(one, label, at)
    for at in (sigma(0.1), sigma(0.2))
    for label, one in build([EstimatorSpec(name=name) for name in LABELS]).items()
)
NAMES = [(task.at, task.label) for task in TASKS]
OTHER = sigma(0.3), "mc"
PLACES = st.integers(0, 7)


class Ids:
    """A data set of which only the ids matter."""

    where = "ids"
    class_names = None

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


def one(sample: str, task: TaskName) -> Row:
    return row(sample, task[0], task[1], value=hash((sample, task)) % 1000 / 1000)


def skip_of(sample: str, reason: str, task: TaskName | None = None) -> Skip:
    return Skip(sample_id=sample, reason=reason, task=task)


def state_of(ids: list[str], flushes: list[Flush]) -> State:
    """A state in memory that has taken these, and is asked for all tasks of these samples."""
    state = State()
    for flush in flushes:
        state.write(flush)
    state.begin(Ids(ids), NAMES)  # type: ignore[arg-type]
    return state


def rows_of(state: State) -> list[Row]:
    """All rows that are stored."""
    return [found for sample in state.stored() for found in sample.rows]


FLUSHES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh?!"), st.sampled_from([*NAMES, OTHER])), max_size=6
    ),
    max_size=8,
)


@given(
    FLUSHES,
    st.lists(
        st.tuples(PLACES, st.sampled_from("abch?"), st.sampled_from([None, *NAMES, OTHER])),
        max_size=3,
    ),
    st.booleans(),
)
def test_it_knows_what_a_plain_list_would(
    rows: list[list[tuple[str, TaskName]]],
    skips: list[tuple[int, str, TaskName | None]],
    backwards: bool,
) -> None:
    ids = list("hgfedcba" if backwards else "abcdefgh")
    flushes = [
        Flush([one(*r) for r in some], [skip_of(s, "why", t) for at, s, t in skips if at == i])
        for i, some in enumerate(rows)
    ]
    skipped = {
        skip.sample_id
        for flush in flushes
        for skip in flush.skipped
        if skip.task is None or skip.task in NAMES
    }
    done = {
        name: {
            n
            for flush in flushes
            for n in {(r.at, r.estimator) for r in flush.rows if r.sample_id == name}
        }
        for name in ids
    }
    with state_of(ids, flushes) as state:
        left = [
            i
            for i, name in enumerate(ids)
            if name not in skipped and not done[name].issuperset(NAMES)
        ]
        assert list(state.unfinished) == left
        for i in left:
            assert [NAMES[number] for number in state.missing(i)] == [
                n for n in NAMES if n not in done[ids[i]]
            ]
        assert [left_of.samples for left_of in state.lacking()] == [
            sum(name not in done[ids[i]] for i in left) for name in NAMES
        ]
        found = {sample.rows[0].sample_id: sample.rows for sample in state.results()}
        wanted = {
            name: [one(name, n) for n in NAMES if n in done[name]]
            for name in ids
            if name not in skipped
        }
        assert found == {name: some for name, some in wanted.items() if some}
        assert [skip.sample_id for skip in state.skips()] == [
            name for name in ids if name in skipped
        ]


@given(
    st.permutations([(name, task) for name in "dcab" for task in NAMES]),
    st.lists(st.integers(1, 5), min_size=16, max_size=16),
)
def test_results_come_in_the_order_of_data_and_spec(
    rows: list[tuple[str, TaskName]], sizes: list[int]
) -> None:
    flushes = []
    for size in sizes:
        flushes.append(
            Flush(
                [one(*r) for r in rows[:size]],
                digests={name: f"digest of {name}" for name, _ in rows[:size]},
            )
        )
        rows = rows[size:]
    ids = ["d", "c", "a", "b"]
    with state_of(ids, flushes) as state:
        found = list(state.results())
        assert state.images() == {name: f"digest of {name}" for name in ids}
    assert [r for sample in found for r in sample.rows] == [
        one(name, task) for name in ids for task in NAMES
    ]
    assert [sample.digest for sample in found] == [f"digest of {name}" for name in ids]


def test_a_skipped_sample_has_no_rows_and_a_skip_of_another_spec_does_not_count() -> None:
    flushes = [
        Flush([one(name, NAMES[0]) for name in "abc"]),
        Flush([], [skip_of("a", "broken", NAMES[1]), skip_of("b", "broken elsewhere", OTHER)]),
    ]
    with state_of(list("abc"), flushes) as state:
        assert [[r.sample_id for r in sample.rows] for sample in state.results()] == [["b"], ["c"]]
        assert list(state.skips()) == [skip_of("a", "broken", NAMES[1])]
        assert [r.sample_id for r in rows_of(state)] == ["c"], (
            "what is shown of an unfinished run leaves out whatever was skipped"
        )


def test_an_id_twice_is_refused(golden: Golden) -> None:
    with pytest.raises(DataError) as error:
        state_of(["a", "b", "c", "b"], [])
    golden(error.value)
    with pytest.raises(DataError) as error:
        state_of(["a", "\ud800"], [])
    golden(error.value)


def test_seconds_add_up_and_steps_keep_their_order() -> None:
    with state_of(
        ["a"],
        [
            Flush(seconds={"clean": 0.5, "mc@gaussian:sigma=0.1": 1.0}),
            Flush(seconds={"clean": 0.25}),
        ],
    ) as state:
        assert list(state.seconds().items()) == [("clean", 0.75), ("mc@gaussian:sigma=0.1", 1.0)]


@pytest.mark.families
def test_tasks_cost_what_their_passes_do() -> None:
    specs = [EstimatorSpec(name="mc", options={"draws": 99}), EstimatorSpec(name="taylor")]
    mc, taylor = (Task(one, label, sigma(0.1)) for label, one in build(specs).items())
    assert (mc.cost(10), taylor.cost(10)) == (100, 2 + 2 * 9)


@given(
    st.lists(ROWS, max_size=3, unique_by=lambda found: found.key),
    st.dictionaries(st.text(), st.text()),
)
def test_every_bit_of_a_row_comes_back(rows: list[Row], images: dict[str, str]) -> None:
    with State() as state:
        state.write(Flush(rows, [skip_of("skipped\0", "why")], images, {"clean": 0.1}))
        found = {r.key: r for r in rows_of(state)}
        assert state.images() == images
    expected = {r.key: r for r in rows if r.sample_id != "skipped\0"}
    assert {key: repr(r) for key, r in found.items()} == {
        key: repr(r) for key, r in expected.items()
    }, "-0.0 is not 0.0, 1 is not 1.0"


def test_the_same_row_again_changes_nothing() -> None:
    """An interrupt may come between a transaction and the note that it is done."""
    with State() as state:
        for _ in range(2):
            state.write(Flush([one("a", NAMES[0])], digests={"a": "digest"}))
        assert rows_of(state) == [one("a", NAMES[0])]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(NAMES[:2]), st.sampled_from([1, 8, 16, None])
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_more_copies_replace_fewer_and_nothing_replaces_a_final_row(
    written: list[tuple[str, TaskName, int | None]], again: bool
) -> None:
    stored = dict[tuple[str, TaskName], int | None]()
    with State() as state:
        for name, task, draws in written:
            made = row(name, *task, value=(draws or 100) / 1000)
            flush = Flush([made], draws={} if draws is None else {made.key: draws})
            state.write(flush)
            before = stored.get((name, task), 0)
            if before is not None and (draws is None or draws > before):
                stored[name, task] = draws
            if again:
                state.write(flush)
        state.begin(Ids(list("abc")), NAMES[:2])  # type: ignore[arg-type]
        for place, name in enumerate("abc"):
            left = {
                number: draws
                for number, task in enumerate(NAMES[:2])
                if (draws := stored.get((name, task), 0)) is not None
            }
            assert state.missing(place) == left
            assert (place in state.unfinished) == bool(left)
            for task in NAMES[:2]:
                if (name, task) in stored:
                    value = (stored[name, task] or 100) / 1000
                    assert state.row(name, task).value == value
        for number, left_of in enumerate(state.lacking()):
            draws_left = [
                draws
                for name in "abc"
                if (draws := stored.get((name, NAMES[number]), 0)) is not None
            ]
            assert (left_of.samples, left_of.draws) == (len(draws_left), sum(draws_left))
            assert left_of.fewest == min(draws_left, default=0)
            assert left_of.most == max(draws_left, default=0)


SAMPLES = [f"sample-{i}" for i in range(60)]


def make(path: Path) -> Path:
    """A state of several pages and three flushes."""
    with State.create(path / "state.db", lambda: None) as state:
        state.begin(Ids(SAMPLES), NAMES, {name: {"name": name, "options": {}} for name in LABELS})  # type: ignore[arg-type]
        for part in (SAMPLES[:20], SAMPLES[20:40], SAMPLES[40:]):
            rows = [one(name, task) for name in part for task in NAMES]
            state.write(Flush(rows, digests=dict.fromkeys(part, "0" * 32), seconds={"clean": 0.5}))
        state.write(Flush([], [skip_of("sample-3", "broken")]))
    return path / "state.db"


def everything(path: Path) -> tuple[object, ...]:
    """All that a state says, checked first."""
    with State(path, check=True) as state:
        state.begin(Ids(SAMPLES), NAMES)  # type: ignore[arg-type]
        found = (
            list(state.results()),
            list(state.skips()),
            state.seconds(),
            state.images(),
            list(state.entries()),
            list(state.noises()),
            rows_of(state),
        )
        return *found, list(state.unfinished), state.lacking()


def test_a_state_leaves_one_file_and_keeps_its_own_settings(tmp_path: Path) -> None:
    path = make(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["state.db"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o133 == 0, (
        "nobody else may write it, and it is no program"
    )
    with State(path) as state:
        setting = {
            name: state._value(f"PRAGMA {name}")
            for name in ("journal_mode", "synchronous", "trusted_schema")
        }
    assert setting == {"journal_mode": "truncate", "synchronous": 3, "trusted_schema": 0}
    before = path.read_bytes(), path.stat().st_mtime_ns
    everything(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before, "who reads does not write"


@pytest.mark.parametrize("length", [4096, 4097, 8192, -4096, -1])
def test_a_truncated_state_never_passes(length: int, tmp_path: Path, golden: Golden) -> None:
    path = make(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RunError) as error:
        everything(path)
    golden(error.value)


STRANGE = {
    "another table": ("CREATE TABLE more (x)",),
    "a trigger": ("CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",),
    "a view for a table": (
        "DROP TABLE seconds",
        "CREATE VIEW seconds AS SELECT 1 AS id, 1 AS flush, 'clean' AS step, 1 AS seconds",
    ),
    "another column": ("ALTER TABLE rows ADD COLUMN more",),
    "no index": ("DROP INDEX skips_of",),
}


@pytest.mark.parametrize("statements", STRANGE.values(), ids=list(STRANGE))
def test_a_database_of_another_shape_is_refused(
    statements: tuple[str, ...], tmp_path: Path, golden: Golden
) -> None:
    path = make(tmp_path)
    states.change(tmp_path, *statements)
    with pytest.raises(RunError) as error:
        everything(path)
    golden(error.value)


def test_a_state_of_a_later_version_is_refused(tmp_path: Path, golden: Golden) -> None:
    path = make(tmp_path)
    states.change(tmp_path, "PRAGMA user_version = 9")
    with pytest.raises(RunError) as error:
        everything(path)
    golden(error.value)


def test_a_state_of_the_earlier_version_is_read_and_not_written(
    tmp_path: Path, golden: Golden
) -> None:
    path = make(tmp_path)
    with State(path) as state:
        images = state.images()
        results = [sample.lines for sample in state.stored()]
    assert results
    as_then = _EARLIER_SCHEMA[2].replace("TABLE rows", "TABLE rows_then")
    states.change(
        tmp_path,
        as_then,
        "INSERT INTO rows_then SELECT id, flush, sample, task, row FROM rows",
        "DROP TABLE rows",
        _EARLIER_SCHEMA[2],
        "INSERT INTO rows SELECT * FROM rows_then",
        "DROP TABLE rows_then",
        "PRAGMA user_version = 6",
    )
    with State(path, is_read=True) as state:
        assert state.images() == images
        assert [sample.lines for sample in state.stored()] == results
    with pytest.raises(RunError) as error:
        State(path)
    golden(error.value)


VALUES = {
    "a row that is a number": "UPDATE rows SET row = 5 WHERE id = 7",
    "a row that is not packed": "UPDATE rows SET row = x'fffe' WHERE id = 7",
    "a row of 60 MB": "UPDATE rows SET row = packed(hex(zeroblob(30000000))) WHERE id = 7",
    "a row that is no JSON": "UPDATE rows SET row = packed('[1') WHERE id = 7",
    "a row that is a list": "UPDATE rows SET row = packed('[1]') WHERE id = 7",
    "a row of another type": "UPDATE rows SET row = packed(replace(unpacked(row), "
    "'\"predicted\": 1', '\"predicted\": -1')) WHERE id = 7",
    "a row of two lines": "UPDATE rows SET row = packed(replace(unpacked(row), ', ', char(44, "
    "10))) WHERE id = 7",
    "a row beyond ASCII": 'UPDATE rows SET row = packed(replace(unpacked(row), \'"note": "\', '
    '\'"note": "\' || char(233))) WHERE id = 7',
    "a row of lists": "UPDATE rows SET row = packed(replace(hex(zeroblob(50000)), '00', '[')) "
    "WHERE id = 7",
    "a noise that is no JSON": "UPDATE tasks SET form = '{' WHERE id = 1",
    "an entry that is no JSON": "UPDATE tasks SET entry = '{' WHERE id = 1",
    "an entry that is a list": "UPDATE tasks SET entry = '[1]' WHERE id = 1",
    "options that are a number": 'UPDATE tasks SET entry = \'{"name": "mc", "options": 3}\' '
    "WHERE id = 1",
}


@pytest.mark.parametrize("statement", VALUES.values(), ids=list(VALUES))
def test_values_of_a_stranger_are_checked(statement: str, tmp_path: Path, golden: Golden) -> None:
    path = make(tmp_path)
    states.change(tmp_path, statement)
    with pytest.raises(RunError) as error:
        everything(path)
    golden(error.value)


def link(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def journal_link(path: Path) -> None:
    path.with_name("state.db-journal").symlink_to("victim")


def journal_of_others(path: Path) -> None:
    """A journal that names another file, which SQLite would delete."""
    path.with_name("state.db-journal").write_bytes(
        b"x" * 600 + b"victim" + bytes(8) + bytes.fromhex("d9d505f920a163d7")
    )


@pytest.mark.parametrize(
    "change",
    [link, pipe, folder, journal_link, journal_of_others],
    ids=lambda change: change.__name__,
)
def test_a_file_that_is_not_to_be_opened(
    change: Callable[[Path], None], tmp_path: Path, golden: Golden
) -> None:
    path = make(tmp_path)
    (tmp_path / "victim").write_text("mine")
    change(path)
    for opened in (lambda: everything(path), lambda: State.create(path, lambda: None)):
        with pytest.raises(RunError) as error:
            opened()
        golden(error.value)
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_full_disk_leaves_the_state_before(tmp_path: Path, golden: Golden) -> None:
    path = make(tmp_path)
    before = everything(path)
    with State(path) as state:
        # some of it fits
        state._db.execute(f"PRAGMA max_page_count = {state._value('PRAGMA page_count') + 8}")
        with pytest.raises(RunError) as error:
            state.write(Flush([one(f"more-{i}", NAMES[0]) for i in range(500)]))
        golden(error.value)
    assert everything(path) == before


def test_a_folder_that_is_gone_is_the_reason(tmp_path: Path, golden: Golden) -> None:
    gone = False

    def guard() -> None:
        if gone:
            raise RunError("run", "was removed")

    (tmp_path / "run").mkdir()
    path = make(tmp_path / "run")
    with State(path, guard) as state:
        (tmp_path / "run").rename(tmp_path / "moved")
        make_anew = tmp_path / "run"
        make_anew.mkdir()
        shutil.copy(tmp_path / "moved" / "state.db", make_anew / "state.db")
        before = (make_anew / "state.db").read_bytes()
        with pytest.raises(RunError) as error:
            # SQLite itself sees that the file has another name
            state.write(Flush([one("more", NAMES[0])]))
        golden(error.value)
        gone = True
        with pytest.raises(RunError) as error:
            state.write(Flush([one("more", NAMES[0])]))
        golden(error.value)
    assert [p.name for p in make_anew.iterdir()] == ["state.db"]
    assert (make_anew / "state.db").read_bytes() == before
