"""`robaudit verify` and `robaudit export`."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from robaudit import audit, load_spec
from tests.conftest import RunCli
from tests.specs import WEIGHTS, digits, laid_out, read_info, save_npz, write

ESTIMATORS = [{"mc": {"samples": 50}}, "logit_gaussian", "taylor", {"mmse": {"samples": 4}}]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of 30 samples, with its spec."""
    folder = tmp_path_factory.mktemp("finished")
    spec = write(folder, digits(limit=30, noise={"sigma": [0.25, 0.1]}, estimators=ESTIMATORS))
    audit(load_spec(spec), out=folder / "run")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def change(run: Path, index: int, **values: Any) -> str:
    """Change a row and make the checksums fit; the id of its sample."""
    path = run / "samples.json"
    document = json.loads(path.read_text())
    row = document["rows"][index]
    row.update({key: value(row[key]) if callable(value) else value for key, value in values.items()})
    path.write_bytes(laid_out(document))
    about = read_info(run)
    about["files"]["samples.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(about))
    return str(row["sample_id"])


def index_of(run: Path, estimator: str, low: float = 0.2, high: float = 0.995) -> int:
    rows = json.loads((run / "samples.json").read_text())["rows"]
    return next(i for i, row in enumerate(rows) if row["estimator"] == estimator and low < row["value"] < high)


@pytest.mark.bits
def test_a_run_comes_out_again(run: Path, run_cli: RunCli) -> None:
    for samples, rows in (("all", 240), ("3", 24)):
        code, out, _ = run_cli("verify", run, "--samples", samples)
        assert code == 0
        assert out == f"{rows} rows of {rows // 8} samples recomputed: all as written, bit for bit\n"
    assert run_cli("verify", run, "--samples", "2", "-q") == (0, "", "")


@pytest.mark.parametrize("estimator", ["mc", "logit_gaussian", "taylor", "mmse"])
def test_a_changed_third_digit_is_found(estimator: str, run: Path, run_cli: RunCli) -> None:
    name = change(run, index_of(run, estimator), value=lambda value: value - 0.001 if value > 0.5 else value + 0.001)
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert out.startswith(f"{name}, {estimator} at sigma 0.25: value is 0.")
    assert out.endswith("240 rows of 30 samples recomputed: 1 numbers differ\n")


@pytest.mark.slow
@pytest.mark.parametrize(("field", "value"), [("predicted", 3), ("lower", 0.0), ("interval", "none"), ("upper", None)])
def test_other_columns_are_compared(field: str, value: object, run: Path, run_cli: RunCli) -> None:
    change(run, index_of(run, "logit_gaussian"), **{field: value})
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert f"logit_gaussian at sigma 0.25: {field} is " in out


def test_votes_are_compared(run: Path, run_cli: RunCli) -> None:
    change(run, index_of(run, "mc"), votes=lambda votes: [*votes[1:], votes[0]], kept=None)
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert "votes is " in out


def test_draws_are_compared(run: Path, run_cli: RunCli) -> None:
    index = index_of(run, "mc", 0.5, 0.95)
    change(run, index, kept=lambda text: base64.b64encode(base64.b64decode(text)[-2::-1] + base64.b64decode(text)[-1:]).decode())
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert re.search(r"mc at sigma 0.25: kept of draw \d+ is (True in the run and False|False in the run and True) now", out)


def test_votes_that_are_not_those_of_the_draws_are_refused(run: Path, run_cli: RunCli) -> None:
    change(run, index_of(run, "mc"), votes=lambda votes: [*votes[1:], votes[0]])
    code, _, err = run_cli("verify", run, "--samples", "all")
    assert code == 2
    assert "kept: " in err


def test_an_altered_file_is_named(run: Path, run_cli: RunCli) -> None:
    text = (run / "samples.csv").read_text()
    (run / "samples.csv").write_text(text.replace("0.25", "0.26", 1))
    code, out, _ = run_cli("verify", run, "--samples", "1")
    assert code == 1
    assert out.startswith(f"{run}/samples.csv has changed since it was written\n")


def test_the_rows_are_drawn_at_random(run: Path, run_cli: RunCli) -> None:
    """A changed row is found when its sample is drawn, and only then."""
    change(run, index_of(run, "mc"), value=0.5)
    codes = set()
    for seed in range(12):
        codes.add(run_cli("verify", run, "--samples", "5", "--seed", seed).code)
        if codes == {0, 1}:
            return
    raise AssertionError(codes)


def test_other_weights_or_data_are_refused(tmp_path: Path, run_cli: RunCli) -> None:
    shutil.copy(WEIGHTS, tmp_path / "w.safetensors")
    spec = write(tmp_path, digits(limit=4, model={"path": "w.safetensors", "architecture": "robaudit:digits_cnn"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    weights = load_file(tmp_path / "w.safetensors")
    save_file({key: value * 1.01 for key, value in weights.items()}, tmp_path / "w.safetensors")
    code, out, err = run_cli("verify", "run")
    assert (code, out) == (2, "")
    assert err.startswith("error: run: was made with other weights than ")


def test_a_changed_image_is_named(tmp_path: Path, run_cli: RunCli) -> None:
    save_npz(tmp_path / "x.npz", count=12)
    spec = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    with np.load(tmp_path / "x.npz") as data:
        images, labels = data["images"].copy(), data["labels"]
    images[3] = 255 - images[3]
    np.savez(tmp_path / "x.npz", images=images, labels=labels)
    code, out, err = run_cli("verify", "run")
    assert (code, out) == (2, "")
    assert err.endswith("x.npz: 3: this image has changed since the run; restore the data of the run\n")


def test_a_network_that_sees_the_whole_batch_is_verified_as_a_whole(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "together.py").write_text(
        "def model():\n    return lambda x: x.flatten(1)[:, :10] - x.flatten(1)[:, :10].mean(0)\n", encoding="utf-8"
    )
    spec = write(tmp_path, digits(limit=30, model={"format": "python", "architecture": "together:model"}))
    assert run_cli("estimate", spec, "--out", "run", "--trust").code == 0
    code, out, err = run_cli("verify", "run", "--samples", "3", "--trust")
    assert (code, out) == (0, "30 rows of 30 samples recomputed: all as written, bit for bit\n")
    assert "note: its model looks at all the images of a batch, so all samples are recomputed" in err


def test_many_differences_are_not_all_printed(run: Path, run_cli: RunCli) -> None:
    for i in range(25):
        change(run, i, predicted=11, kept=None, split=None)
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert len(out.splitlines()) == 22
    assert out.splitlines()[20] == "and 5 more"


@pytest.mark.parametrize("samples", ["0", "-1", "some", "1.5", "\u0663"])
def test_bad_number_of_samples(samples: str, run_cli: RunCli) -> None:
    code, _, err = run_cli("verify", "run", f"--samples={samples}")
    assert (code, err) == (2, f"error: --samples {samples}: is not a number of samples; give a whole number of at least 1, or all\n")


def test_export_gives_the_same_bytes(run: Path, run_cli: RunCli) -> None:
    assert run_cli("export", run).out == (run / "samples.csv").read_text()
    assert run_cli("export", run, "--format", "json", "-o", run.parent / "rows.json") == (0, "", "")
    assert (run.parent / "rows.json").read_bytes() == (run / "samples.json").read_bytes()


def test_export_of_an_unfinished_run_gives_what_there_is(run: Path, run_cli: RunCli) -> None:
    about = read_info(run)
    (run / "run.json").write_text(json.dumps({**about, "status": "running"}))
    whole = (run / "samples.csv").read_text()
    code, out, err = run_cli("export", run)
    assert (code, out) == (0, whole)
    assert err == f"note: {run} is unfinished: these are the 240 rows it has so far\n"
