"""Run folders and outputs that cannot be used: one line, exit 2, and what is on disk stays as it
is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robaudit import audit, load_spec
from robaudit.runs.folder import locked
from tests.cli.conftest import Refuse
from tests.specs import digits, read_info, write
from tests.states import change_info


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec and its finished run; tests copy it."""
    folder = tmp_path_factory.mktemp("finished")
    audit(load_spec(write(folder, digits())), out=folder / "run")
    return folder


def test_no_run_to_read(run: Path, refuse: Refuse) -> None:
    refuse("show", "rnu")
    refuse("show", "spec.yaml")
    refuse("show", "run/run.json")
    (run / "empty").mkdir()
    refuse("show", "run/empty")
    refuse("show", "x" * 300)


def test_a_run_is_no_spec(run: Path, refuse: Refuse) -> None:
    refuse("estimate", "run")


def test_filter_that_nothing_meets(run: Path, refuse: Refuse) -> None:
    command = "bias-report"
    refuse(command, "run", "--estimator", "taylor")
    refuse(command, "run", "--sigma", "0.3")
    refuse(command, "run", "--sigma", "high")
    refuse(command, "run", "--sigma", "-1")


def until(possible: list[int]) -> dict[str, Any]:
    """The schedule of a run that is sampled until its gates are decided."""
    return {"confidence": 0.95, "possible": possible, "growths": 0, "draws": [], "point": False}


INFOS: dict[str, Callable[[Path], object]] = {
    "cut": lambda run: (run / "run.json").write_text((run / "run.json").read_text()[:100]),
    "without end": lambda run: (run / "run.json").write_text('{"a":' * 100_000),
    "another version": lambda run: change_info(run, schema_version=99),
    "a key less": lambda run: change_info(run, base_identity=None),
    "a number for the model": lambda run: change_info(run, model=3, checksum=None),
    "a text for the noise": lambda run: change_info(
        run, spec=read_info(run)["spec"] | {"noise": "gaussian"}, checksum=None
    ),
    "analyses that take days": lambda run: change_info(
        run, until_decided=until(possible=[1, 2**52, 2**52 + 1]), checksum=None
    ),
    "thousands of analyses": lambda run: change_info(
        run, until_decided=until(possible=list(range(1, 3000))), checksum=None
    ),
    "a number for the spec's model": lambda run: change_info(
        run, spec=read_info(run)["spec"] | {"model": 3}, checksum=None
    ),
}


@pytest.mark.parametrize("command", ["show run", "estimate spec.yaml --out run"])
@pytest.mark.parametrize("damage", INFOS.values(), ids=list(INFOS))
def test_damaged_description(
    damage: Callable[[Path], object], command: str, run: Path, refuse: Refuse
) -> None:
    damage(run)
    refuse(*command.split())


@pytest.mark.parametrize("text", [None, '{"rows": []}'])
def test_damaged_samples(text: str | None, run: Path, refuse: Refuse) -> None:
    (run / "samples.json").unlink() if text is None else (run / "samples.json").write_text(text)
    refuse("show", "run")


def flip(state: Path) -> None:
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)


def test_damaged_state(run: Path, refuse: Refuse) -> None:
    flip(run / "state.db")
    refuse("estimate", "spec.yaml", "--out", "run")


def test_run_of_another_spec(run: Path, refuse: Refuse) -> None:
    for change in (
        ["--seed", "1"],
        ["--set", "dataset.split=train"],
        ["--set", "run.precision=fp64"],
    ):
        refuse("estimate", "spec.yaml", "--out", "run", *change)
        refuse("estimate", "spec.yaml", "--out", "run", "--extend", *change)


def test_noise_of_one_name_with_other_options(run: Path, refuse: Refuse) -> None:
    for change in ("noise.clip=true", "noise={eps: 0.2}", "noise={sigma: 0.2, amount: 3}"):
        refuse("estimate", "spec.yaml", "--out", "run", "--set", change)
        refuse("estimate", "spec.yaml", "--out", "run", "--extend", "--set", change)


def test_other_results_need_extend(run: Path, refuse: Refuse) -> None:
    for change in (
        ["--sigma", "0.3"],
        ["--estimator", "softmax"],
        ["--limit", "9"],
        ["--set", "mc.draws=30"],
    ):
        refuse("estimate", "spec.yaml", "--out", "run", *change)


def test_extend_what_is_not_there(run: Path, refuse: Refuse) -> None:
    refuse("estimate", "spec.yaml", "--out", "new", "--extend")
    refuse("estimate", "spec.yaml", "--extend")


def test_folder_in_use(run: Path, refuse: Refuse) -> None:
    with locked(run):
        refuse("estimate", "spec.yaml", "--out", "run")


OUTS = {
    "a file": "spec.yaml",
    "below a file": "spec.yaml/run",
    "a folder of other things": ".",
    "a name too long": "x" * 300,
}


@pytest.mark.parametrize("out", OUTS.values(), ids=list(OUTS))
def test_out_that_cannot_be_written(out: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, digits()), "--out", out)


def test_nothing_left_is_exit_5(run: Path, refuse: Refuse) -> None:
    refuse("flag-samples", "run", "--only", "wrong", code=5)
