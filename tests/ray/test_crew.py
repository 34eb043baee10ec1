"""Several workers on one audit, without processes: whatever is lost and when, nothing is missing and nothing is there twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.auditing.batches import RowCheck
from robaudit.auditing.crew import Crew
from robaudit.auditing.loop import compute_missing, task_names
from robaudit.auditing.messages import Done, Failed, Item, Opened
from robaudit.auditing.prepare import open_audit
from robaudit.auditing.worker import Worker
from robaudit.errors import ModelError, RobauditError, SpecError
from robaudit.progress import Listener
from robaudit.rows import Row
from robaudit.store.info import RowBits
from robaudit.store.state import State
from tests.ray.teams import DirectTeam, opened, plan
from tests.specs import digits

SPEC = digits(limit=7, estimators=[{"mc": {"samples": 5}}, "softmax"], noise={"sigma": [0.1, 0.4]})


class Heard(Listener):
    """Remembers notes and warnings; asks to stop from a moment on."""

    def __init__(self) -> None:
        self.told, self.stop = list[str](), False

    def note(self, text: str) -> None:
        self.told.append(text)

    def warn(self, text: str) -> None:
        self.told.append(text)

    def stop_asked(self) -> bool:
        return self.stop


@pytest.fixture(scope="module")
def worker() -> Worker:
    found = Worker(plan(SPEC))
    opened(found)
    return found


class Recorded(State):
    """A state that counts how often a row was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = list[Any]()

    def write(self, flush: Any) -> None:
        self.written += [row.key for row in flush.rows]
        super().write(flush)


def carried_out(
    team: DirectTeam,
    said: Sequence[Opened],
    spec: Mapping[str, Any] = SPEC,
    heard: Heard | None = None,
    *,
    on_error: Any = "stop",
    reading: bool = True,
) -> list[Row]:
    """The rows of an audit by a team, each written once."""
    parts = open_audit(plan(spec), Listener())
    state = Recorded()
    with state:
        state.begin(parts.samples, task_names(parts.tasks))
        crew = Crew(team, said, parts.samples, reading=reading)
        try:
            compute_missing(state, parts.samples, parts.tasks, crew, heard or Heard(), on_error=on_error)
        finally:
            assert len(set(state.written)) == len(state.written), "a row was written twice"
        return [row for sample in state.results() for row in sample.rows]


@pytest.fixture(scope="module")
def alone(worker: Worker) -> list[Row]:
    """The rows when nothing goes wrong and one worker does all."""
    return carried_out(DirectTeam(worker, 1), [opened(worker)])


@settings(max_examples=25, deadline=None)
@given(
    members=st.integers(1, 3),
    lost_at=st.lists(st.integers(0, 40), max_size=3),
    images=st.integers(1, 7),
    reading=st.booleans(),
)
def test_lost_workers(worker: Worker, alone: list[Row], members: int, lost_at: list[int], images: int, reading: bool) -> None:
    said, heard = replace(opened(worker), images=images), Heard()
    team = DirectTeam(worker, members, lost_at, returns=said)
    assert carried_out(team, [said] * members, heard=heard, reading=reading) == alone
    notes = [
        text for text in heard.told if re.fullmatch(r"worker \d on \S+: lost \(killed\); its work goes to others until it is back", text)
    ]
    assert notes == heard.told
    assert len(notes) == sum(at < team.items_sent for at in lost_at)


def test_a_sample_that_kills_workers_ends_the_audit(worker: Worker) -> None:
    said = replace(opened(worker), images=2)
    name = opened(worker).facts.check.seen
    team = DirectTeam(worker, 2, deadly=list(name)[5], returns=said)
    with pytest.raises(
        RobauditError, match=r"^worker \d on \S+: was lost 4 times at sample '.*' \(lost \(killed\)\); look for lack of memory"
    ):
        carried_out(team, [said] * 2)
    assert sum(list(name)[5] in order.ids for _, order in team.given) == 4


def test_a_stop_lets_present_steps_finish(worker: Worker, alone: list[Row]) -> None:
    heard = Heard()

    def told(item: Item) -> None:
        heard.stop = heard.stop or (isinstance(item, Done) and item.step.task is not None)

    said = replace(opened(worker), images=2)
    team = DirectTeam(worker, 2, told=told)
    parts = open_audit(plan(SPEC), Listener())
    with State() as state:
        state.begin(parts.samples, task_names(parts.tasks))
        crew = Crew(team, [said, said], parts.samples, reading=True)
        with pytest.raises(KeyboardInterrupt):
            compute_missing(state, parts.samples, parts.tasks, crew, heard)
        rows = [row for sample in state.results() for row in sample.rows]
        assert 0 < len(rows) <= 2 * 2 * 2, "a step of each worker at most, after the one during which the stop was asked for"
        heard.stop = False
        again = Crew(DirectTeam(worker, 2), [said, said], parts.samples, reading=True)
        compute_missing(state, parts.samples, parts.tasks, again, heard)
        assert [row for sample in state.results() for row in sample.rows] == alone


def with_facts(said: Opened, **changes: Any) -> Opened:
    return replace(said, host="elsewhere", facts=replace(said.facts, **changes))


def test_workers_must_be_alike(worker: Worker) -> None:
    said = opened(worker)
    parts = open_audit(plan(SPEC), Listener())

    def refuse(other: Opened, kind: type[RobauditError], words: str) -> None:
        with pytest.raises(kind, match=words):
            Crew(DirectTeam(worker, 2), [said, other], parts.samples, reading=True)

    other_model = with_facts(said, model={**said.facts.model, "sha256": "0" * 64})
    refuse(other_model, ModelError, r"^elsewhere: .*: has other weights there \(sha256 0{12}, and 75f1b664.... on the first worker\)")
    other_device = with_facts(said, device="cuda:0 (A)")
    refuse(
        other_device,
        SpecError,
        r"^worker 1 on elsewhere: is cuda:0 \(A\), and the first worker cpu .*: they draw other noise; use devices of one kind$",
    )
    other_torch = with_facts(said, versions={**said.facts.versions, "torch": "1"})
    refuse(other_torch, SpecError, r"^worker 1 on elsewhere: has torch 1, and the first worker .*; install the same version everywhere$")
    other_threads = with_facts(said, device=re.sub(r"\d+ thread.*\)", "77 threads)", said.facts.device))
    Crew(DirectTeam(worker, 2), [said, other_threads], parts.samples, reading=True)


def test_a_worker_that_comes_back_with_another_model_is_refused(worker: Worker) -> None:
    said = opened(worker)
    other = with_facts(said, model={**said.facts.model, "sha256": "0" * 64})
    with pytest.raises(ModelError, match=r"^elsewhere: .* has other weights there"):
        carried_out(DirectTeam(worker, 2, [2], returns=other), [said] * 2)


def test_a_worker_that_fails_ends_the_audit(worker: Worker) -> None:
    class Failing(DirectTeam):
        def __init__(self, failed: Failed) -> None:
            super().__init__(worker, 1)
            self.failed = failed

        def items(self, seconds: float) -> Iterator[Any]:
            yield 0, self.failed

    with pytest.raises(SpecError, match=r"^here: is wrong; do better$"):
        carried_out(Failing(Failed(SpecError("here", "is wrong", "do better"))), [opened(worker)])
    with pytest.raises(RuntimeError, match=r"worker 0 on \S+:\nTraceback of a bug"):
        carried_out(Failing(Failed(None, "Traceback of a bug")), [opened(worker)])


def test_a_network_that_sees_the_whole_batch_gets_usable_images_only(worker: Worker) -> None:
    """Where others stand in for the unusable images of a chunk, the chunks are those of one machine."""
    said = opened(worker)
    together = with_facts(said, rows=RowCheck(RowBits.MIXED, 0.3))
    parts = open_audit(plan(SPEC), Listener())
    assert not Crew(DirectTeam(worker, 1), [together], parts.samples, reading=True).reading
