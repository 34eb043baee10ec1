"""Processes that are killed, disks that refuse, and damaged files: one clear line, nothing silently
wrong, and the same command ends well.

The default suite takes a few moments of two small runs; the slow suite takes many.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.system.acceptance.rig import SCENARIOS, Rig, refusal, spread, timeless

each_scenario = pytest.mark.parametrize("name", SCENARIOS)
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO")


def moments(few: int, many: int) -> pytest.MarkDecorator:
    """How many moments are disturbed in the default suite and in the slow one."""
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])


@each_scenario
@moments(2, 40)
def test_killed_before_an_operation(count: int, name: str, rig: Rig) -> None:
    base, command = SCENARIOS[name]
    wrong = []
    for number in spread(range(len(rig.operations[name])), count):
        rig.begin(base)
        assert rig.run(*command, kill=number).code == -signal.SIGKILL
        shown = rig.run("show", "run")
        if shown.code != 0:
            problems = refusal(shown, "error: run")
        else:
            whole = timeless(shown.out) in [rig.shown[one] for one in (base, name) if one]
            partly = shown.out.startswith("so far ") or "has no results yet" in shown.err
            problems = [] if whole or partly else ["show prints neither run, nor a part of one"]
        wrong += [
            f"killed before operation {number}: {problem}"
            for problem in problems + rig.resumed(name)
        ]
    assert wrong == []


@each_scenario
@moments(2, 48)
def test_an_operation_fails(count: int, name: str, rig: Rig) -> None:
    """Once, or with all later operations that need room."""
    base, command = SCENARIOS[name]
    wrong = []
    places = [number for number, operation in enumerate(rig.operations[name]) if operation != "SQL"]
    for i, number in enumerate(spread(places, count)):
        rig.begin(base)
        error = ERRORS[i % len(ERRORS)]
        lasting = (i + i // len(ERRORS)) % 2 == 1
        answer = rig.run(*command, fail=(number, error, lasting))
        # the log is no reason to stop
        problems = [] if answer.code == 0 else refusal(answer, "error: run")
        wrong += [f"{error} at {number}: {problem}" for problem in problems + rig.resumed(name)]
    assert wrong == []


@each_scenario
@moments(1, 8)
def test_no_room_for_a_file(count: int, name: str, rig: Rig) -> None:
    """The kernel's own limit (RLIMIT_FSIZE): SIGXFSZ kills nobody, and what does not fit is
    said."""
    base, command = SCENARIOS[name]
    sizes = {
        path.stat().st_size
        for path in rig.kept(name).rglob("*")
        if path.is_file() and path.name != "log.txt"
    }
    for limit in spread(
        sorted({max(1024, size - 1) for size in sizes}), count
    ):  # what the command prints goes to files, too
        rig.begin(base)
        answer = rig.run(*command, largest=limit)
        # SQLite does not say which error it was
        written = "disk I/O error" if "state.db: " in answer.err else "File too large"
        assert refusal(answer, "error: run/", f"cannot be written: {written}") == []
        assert rig.resumed(name) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write where nobody may")
def test_a_folder_that_may_not_be_written(rig: Rig) -> None:
    base, command = SCENARIOS["extended"]
    rig.begin(base)
    rig.run_folder.chmod(0o500)
    try:
        assert refusal(rig.run(*command), "error: run", "Permission denied") == []
    finally:
        rig.run_folder.chmod(0o700)
    assert rig.resumed("extended") == []


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda data: data[: len(data) // 2],
    "a flipped bit": lambda data: (
        data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1 :]
    ),
}


@pytest.fixture(scope="module")
def killed(rig: Rig) -> str:
    """The name of a run that was killed when its state was nearly complete."""
    rig.begin(None)
    last = next(
        i
        for i, name in enumerate(rig.operations["first"])
        if i > len(rig.operations["first"]) // 2 and name == "open"
    )
    assert rig.run(*SCENARIOS["first"][1], kill=last).code == -signal.SIGKILL
    rig.run_folder.rename(rig.kept("killed"))
    return "killed"


@pytest.mark.parametrize("damage", ["half", "a flipped bit"])
def test_a_damaged_state_that_grew(damage: str, killed: str, rig: Rig) -> None:
    """It has no digest yet: what cannot be read is told in one line, and without it the run begins
    anew."""
    rig.begin(killed)
    path = rig.run_folder / "state.db"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again = rig.run(*SCENARIOS["first"][1])
    if damage != "a flipped bit" or again.code != 0:
        assert refusal(again, "error: run/state.db: ") == []
    path.unlink()
    assert rig.resumed("first") == []
