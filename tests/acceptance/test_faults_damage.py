"""Files of a run folder that are not what was written: a line that names them, or the right results, never silently others."""

from __future__ import annotations

import functools
import operator
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.fault import KILL, Fault
from tests.faults.judge import chosen, every, finished, refusal
from tests.faults.rig import OUTPUTS, Outcome, Rig
from tests.faults.scenarios import FIRST

Damage = tuple[str, Callable[[bytes], bytes]]
SEED, FLIPS = 7, 40
STATE = "state.db"


def truncations(size: int) -> list[Damage]:
    """Every class of lengths: nothing, within the first bytes, around half, and without the end."""
    lengths = (0, 1, 63, 64, 65, 66, size // 2, size - 2, size - 1)
    return [(f"{length} of {size} bytes", operator.itemgetter(slice(length))) for length in lengths]


def replaced(size: int) -> list[Damage]:
    """What a file system may hand out after a crash, and what people do to files."""
    return [
        ("zeros", lambda data: bytes(len(data))),
        ("zeros at the end", lambda data: data[: size // 2] + bytes(size - size // 2)),
        ("a byte too many", lambda data: data + b"\n"),
        ("twice", lambda data: data + data),
        ("other ends of lines", lambda data: data.replace(b"\n", b"\r\n")),
    ]


def flips(size: int, count: int) -> list[Damage]:
    """Single bytes changed at random places."""
    draw = random.Random(SEED)
    found = [(draw.randrange(size), draw.randrange(1, 256)) for _ in range(count)]
    return [(f"byte {place} ^ {change}", functools.partial(flipped, place, change)) for place, change in found]


def other_digits(data: bytes, count: int) -> list[Damage]:
    """Single digits changed to the next at random places: still text that can be read."""
    places = random.Random(SEED).sample([i for i, byte in enumerate(data) if chr(byte).isdigit()], count)
    return [
        (f"digit {place}", functools.partial(flipped, place, data[place] ^ (ord("0") + (data[place] - ord("0") + 1) % 10)))
        for place in places
    ]


def in_records(data: bytes, count: int) -> list[Damage]:
    """Single bytes changed in text that rows, images and tasks hold."""
    words = [match.start() for match in re.finditer(rb"clopper-pearson|p_robust|gaussian|[0-9a-f]{32}", data)]
    places = random.Random(SEED).sample(words, count)
    return [(f"record at {place}", functools.partial(flipped, place + 1, 1)) for place in places]


def flipped(place: int, change: int, data: bytes) -> bytes:
    return data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]


@pytest.fixture(scope="module")
def unfinished(rig: Rig) -> str:
    """A run that was killed when its state was whole and no output there: its results come from the state alone."""
    events = rig.events[FIRST.whole]
    number = next(i for i, event in enumerate(events, 1) if "samples.csv" in event.paths[0])
    rig.begin()
    assert rig.run(*FIRST.command, fault=Fault(number, "before", KILL)).answer.code < 0
    rig.run_folder.rename(rig.kept("unfinished"))
    return "unfinished"


def damaged(rig: Rig, name: str, damage: Callable[[bytes], bytes]) -> Path:
    """Change a file of the run in place."""
    path = rig.run_folder / name
    path.write_bytes(damage(path.read_bytes()))
    return path


def unseen(outcome: Outcome, expected: str) -> bool:
    """Whether a command prints exactly what it must: the damage is where nothing is kept."""
    return (outcome.answer.code, outcome.answer.out) == (0, expected)


@every(33)
def test_a_damaged_state(step: int, unfinished: str, rig: Rig) -> None:
    """What a crash leaves is told, or changes nothing: SQLite leaves room in its pages that no record uses."""
    data = (rig.kept(unfinished) / STATE).read_bytes()
    rig.begin(run=unfinished)
    exported = rig.good("show", "run", "rows").answer.out
    wrong, told = [], 0
    damages = chosen([*truncations(len(data)), *replaced(len(data))], -(-step // 4))
    for what, damage in damages:
        rig.begin(run=unfinished)
        path = damaged(rig, STATE, damage)
        harmless = unseen(rig.run("show", "run", "rows"), exported)
        told += not harmless
        if harmless:
            wrong += [f"{what}: {problem}" for problem in mended(rig)]
            continue
        for command in (FIRST.command, ("show", "run", "rows")):
            found = refusal(rig.run(*command), f"error: run/{STATE}: ")
            wrong += [f"{what}: {problem}" for problem in found]
        path.unlink()
        wrong += [f"{what}, deleted: {problem}" for problem in mended(rig)]
    assert wrong == []
    assert told >= len(damages) // 2


@every(33)
def test_a_flipped_byte_of_a_state_that_grew(step: int, unfinished: str, rig: Rig) -> None:
    """It has no digest yet, so a changed value may pass; what cannot be read is told in one line."""
    data = (rig.kept(unfinished) / STATE).read_bytes()
    wrong = []
    for what, damage in chosen([*flips(len(data), FLIPS), *in_records(data, FLIPS)], step):
        rig.begin(run=unfinished)
        damaged(rig, STATE, damage)
        for command in (("show", "run", "rows"), FIRST.command):
            outcome = rig.run(*command)
            if outcome.answer.code != 0:
                wrong += [f"{what}: {problem}" for problem in refusal(outcome, "error: ")]
    assert wrong == []


def mended(rig: Rig) -> list[str]:
    """What is wrong after the same command: it must end as an undisturbed run."""
    again = rig.run(*FIRST.command)
    return finished(rig, FIRST) if again.answer.code == 0 else [f"it ends with {again.answer.code}: {again.answer.err!r}"]


@every(33)
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_damaged_output(name: str, step: int, rig: Rig) -> None:
    """Readers refuse what they read, and estimate makes it anew."""
    size = (rig.kept(FIRST.whole) / name).stat().st_size
    wrong = []
    for what, damage in chosen([*truncations(size), *flips(size, FLIPS)], step):
        rig.begin(run=FIRST.whole)
        damaged(rig, name, damage)
        shown = rig.run("show", "run")
        found = (
            refusal(shown, f"error: run/{name}: is missing, or has changed since it was written")
            if name == "samples.json"
            else same(rig, shown)
        )
        wrong += [f"{name}, {what}: {problem}" for problem in found + mended(rig)]
    assert wrong == []


def same(rig: Rig, shown: Outcome) -> list[str]:
    """What is wrong with a reader of a file that is whole: it must print what it always prints."""
    return [] if (shown.answer.code, shown.answer.out) == (0, rig.shown[FIRST.whole]) else [f"it prints {shown.answer.err!r}"]


@every(33)
def test_a_damaged_state_of_a_complete_run(step: int, rig: Rig) -> None:
    """Its results are there already: they are shown. Every change of the state is told, and without it the run is made again."""
    data = (rig.kept(FIRST.whole) / STATE).read_bytes()
    wrong = []
    damages = [*truncations(len(data)), *replaced(len(data)), *flips(len(data), FLIPS), *in_records(data, FLIPS)]
    for what, damage in chosen([one for one in damages if one[1](data) != data], step):
        rig.begin(run=FIRST.whole)
        path = damaged(rig, STATE, damage)
        found = same(rig, rig.run("show", "run")) + refusal(rig.run(*FIRST.command), f"error: run/{STATE}: is damaged (it ")
        path.unlink()
        found += mended(rig)
        wrong += [f"{what}: {problem}" for problem in found]
    assert wrong == []


@every(33)
def test_a_damaged_run_json(step: int, rig: Rig) -> None:
    """Every byte of it that means something is covered by its checksum: nothing else is printed, or it is refused."""
    data = (rig.kept(FIRST.whole) / "run.json").read_bytes()
    rows = (rig.kept(FIRST.whole) / "samples.csv").read_text()
    wrong = []
    for what, damage in chosen(flips(len(data), FLIPS) + other_digits(data, FLIPS), step):
        rig.begin(run=FIRST.whole)
        damaged(rig, "run.json", damage)
        for command in (("show", "run"), ("show", "run", "rows"), FIRST.command):
            outcome = rig.run(*command)
            if outcome.answer.code != 0:
                wrong += [f"{what}, {command[0]}: {problem}" for problem in refusal(outcome, "error: run")]
            elif command[-1] == "rows" and outcome.answer.out != rows:
                wrong.append(f"{what}: export prints other rows")
            elif command[-1] != "rows" and outcome.answer.out != rig.shown[FIRST.whole]:
                wrong.append(f"{what}: {command[0]} prints something else")
    assert wrong == []
