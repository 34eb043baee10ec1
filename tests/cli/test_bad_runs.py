"""Run folders and outputs that cannot be used: one line, exit 2, and what is on disk stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robaudit import audit, load_spec
from robaudit.runs.folder import locked
from tests.cli.conftest import Refuse
from tests.specs import digits, read_info, write


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec and its finished run; tests copy it."""
    folder = tmp_path_factory.mktemp("finished")
    audit(load_spec(write(folder, digits())), out=folder / "run")
    return folder


def change_info(run: Path, **values: Any) -> None:
    info = read_info(run) | values
    (run / "run.json").write_text(json.dumps({key: value for key, value in info.items() if value is not None}))


def test_no_run_to_read(run: Path, refuse: Refuse) -> None:
    refuse("show", "rnu", says="rnu: is not a run folder; name a folder that robaudit estimate has written")
    refuse("show", "spec.yaml", says="spec.yaml: is not a run folder")
    refuse("show", "run/run.json", says="is not a run folder; name its folder, run")
    (run / "empty").mkdir()
    refuse("show", "run/empty", says="run/empty/run.json: no such file")
    refuse("show", "x" * 300, says="")


def test_filter_that_nothing_meets(run: Path, refuse: Refuse) -> None:
    command = "bias-report"
    refuse(command, "run", "--estimator", "taylor", says="run: has no estimator taylor; it has mc")
    refuse(command, "run", "--sigma", "0.3", says="run: has no sigma 0.3; it has 0.2")
    refuse(command, "run", "--sigma", "high", says="--sigma: 'high' is not a positive number; give one noise level, such as 0.05 or 8/255")
    refuse(command, "run", "--sigma", "-1", says="--sigma: '-1' is not a positive number")


def test_unfinished(run: Path, refuse: Refuse) -> None:
    change_info(run, status="running")
    refuse("show", "run", says="run: this run is unfinished; resume it: run the same robaudit estimate command again")


INFOS: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda run: (run / "run.json").write_text((run / "run.json").read_text()[:100]), "run.json: is damaged (not valid JSON)"),
    "without end": (lambda run: (run / "run.json").write_text('{"a":' * 100_000), "run.json: is damaged (not valid JSON)"),
    "another version": (
        lambda run: change_info(run, schema_version=99),
        "run.json: is not of schema version 2; read it with the robaudit that",
    ),
    "a key less": (lambda run: change_info(run, base_identity=None), "run.json: is damaged ('base_identity' is missing)"),
    "a number for the model": (
        lambda run: change_info(run, model=3, checksum=None),
        "run.json: is damaged (model: must be a mapping (key: value))",
    ),
    "a text for the noise": (
        lambda run: change_info(run, spec=read_info(run)["spec"] | {"noise": "gaussian"}, checksum=None),
        "run.json: is damaged (spec: noise must be a list of mappings, each with a name)",
    ),
    "a number for the spec's model": (
        lambda run: change_info(run, spec=read_info(run)["spec"] | {"model": 3}, checksum=None),
        "run.json: is damaged (spec: model and run must be mappings)",
    ),
}


@pytest.mark.parametrize("command", ["show run", "estimate spec.yaml --out run"])
@pytest.mark.parametrize(("damage", "says"), INFOS.values(), ids=list(INFOS))
def test_damaged_description(damage: Callable[[Path], object], says: str, command: str, run: Path, refuse: Refuse) -> None:
    damage(run)
    refuse(*command.split(), says=says)


@pytest.mark.parametrize("text", [None, '{"rows": []}'])
def test_damaged_samples(text: str | None, run: Path, refuse: Refuse) -> None:
    (run / "samples.json").unlink() if text is None else (run / "samples.json").write_text(text)
    refuse(
        "show", "run", says="samples.json: is missing, or has changed since it was written; run the same robaudit estimate command again"
    )


def flip(state: Path) -> None:
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)


def test_damaged_state(run: Path, refuse: Refuse) -> None:
    flip(run / "state.db")
    refuse("estimate", "spec.yaml", "--out", "run", says="run/state.db: is damaged (it has changed since it was written); delete this file")


def test_run_of_another_spec(run: Path, refuse: Refuse) -> None:
    says = "run: holds a run of another spec (model, data set, seed or precision); choose another --out"
    for change in (["--seed", "1"], ["--set", "dataset.split=train"], ["--set", "run.precision=fp64"]):
        refuse("estimate", "spec.yaml", "--out", "run", *change, says=says)
        refuse("estimate", "spec.yaml", "--out", "run", "--extend", *change, says=says)


def test_noise_of_one_name_with_other_options(run: Path, refuse: Refuse) -> None:
    says = "run: has run the noise gaussian with other options; give the new one a name of its own, or choose another --out"
    for change in ("noise.clip=true", "noise={eps: 0.2}", "noise={sigma: 0.2, amount: 3}"):
        refuse("estimate", "spec.yaml", "--out", "run", "--set", change, says=says)
        refuse("estimate", "spec.yaml", "--out", "run", "--extend", "--set", change, says=says)


def test_other_results_need_extend(run: Path, refuse: Refuse) -> None:
    for change in (["--sigma", "0.3"], ["--estimator", "softmax"], ["--limit", "9"], ["--set", "mc.samples=30"]):
        refuse("estimate", "spec.yaml", "--out", "run", *change, says="add --extend to extend it, or choose another --out")


def test_extend_what_is_not_there(run: Path, refuse: Refuse) -> None:
    refuse("estimate", "spec.yaml", "--out", "new", "--extend", says="new: there is no run to extend; leave --extend out")
    refuse("estimate", "spec.yaml", "--extend", says="--extend: there is no run of spec with this model and data under runs/")


def test_folder_in_use(run: Path, refuse: Refuse) -> None:
    with locked(run):
        refuse("estimate", "spec.yaml", "--out", "run", says="run: another robaudit is writing here; wait for it, or choose another --out")


OUTS = {
    "a file": ("spec.yaml", "spec.yaml: cannot be used as a run folder"),
    "below a file": ("spec.yaml/run", "spec.yaml/run: cannot be used as a run folder: Not a directory; choose another --out"),
    "a folder of other things": (".", "is not a run folder, and not empty"),
    "a name too long": ("x" * 300, "cannot be used as a run folder: File name too long"),
}


@pytest.mark.parametrize(("out", "says"), OUTS.values(), ids=list(OUTS))
def test_out_that_cannot_be_written(out: str, says: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, digits()), "--out", out, says=says)


def test_nothing_left_is_exit_5(run: Path, refuse: Refuse) -> None:
    refuse("flag-samples", "run", "--only", "wrong", code=5, says="none of the 8 samples is known to be wrong; leave --only out")
