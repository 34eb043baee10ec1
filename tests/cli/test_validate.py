"""`robaudit validate`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robaudit.methods.average_case.mc import MonteCarlo
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, save_npz, tree, write

ESTIMATORS = [{"mc": {"draws": 200}}, "logit_gaussian", "taylor", "softmax"]
FEW = ("--images", "12", "--reference-draws", "200")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return write(tmp_path, digits(limit=40, noise={"sigma": [0.25]}, estimators=ESTIMATORS))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_validation(spec: Path, run_cli: RunCli, tmp_path: Path, golden: Golden) -> None:
    code, out, err = run_cli("validate", spec, *FEW, "--out", "found")
    assert code == 0
    assert "12 images against mc with 200 draws of independent noise" in out
    assert "softmax estimates confidence, not p_robust: only its order is compared" in out
    assert "-> " in out
    golden.lines(err)
    found = tmp_path / "found"
    assert {p.name for p in found.iterdir()} == {"validation.csv", "validation.json"}
    rows = table(found / "validation.csv")
    assert len(rows) == 12 * 4
    assert {row["reference_draws"] for row in rows} == {"200"}
    for row in rows:
        value = float(row["value"])
        reference = float(row["reference"])
        assert float(row["reference_lower"]) <= reference <= float(row["reference_upper"])
        assert row["difference"] == (
            "" if row["estimator"] == "softmax" else str(value - reference)
        )
    document = json.loads((found / "validation.json").read_text())
    assert (document["schema_version"], document["samples"], document["reference"]["draws"]) == (
        2,
        12,
        200,
    )
    assert {
        "spec",
        "versions",
        "device",
        "seed",
        "model",
        "data",
        "noise",
        "command",
        "started",
    } <= set(document)
    mc = next(one for one in document["comparisons"] if one["estimator"] == "mc")
    bias = np.mean([float(row["difference"]) for row in rows if row["estimator"] == "mc"])
    assert mc["error"]["bias"] == pytest.approx(bias)
    assert (mc["forwards"], mc["kind"]) == (201, "mc")
    assert any(row["value"] != row["reference"] for row in rows if row["estimator"] == "mc"), (
        "the reference has noise of its own"
    )
    assert 0 < mc["error"]["rmse_error"] < 0.2
    assert "rmse_upper" not in mc["error"]


def test_json_and_the_same_again(spec: Path, run_cli: RunCli, tmp_path: Path) -> None:
    asked = (
        "validate",
        spec,
        *FEW,
        "--set",
        "estimators=[{mc: {draws: 100}}, softmax]",
        "--out",
        "found",
        "--format",
        "json",
        "-q",
    )
    first = run_cli(*asked)
    assert (first.code, first.err) == (0, "")
    before = (tmp_path / "found" / "validation.csv").read_bytes()
    again = run_cli(*asked)
    assert (tmp_path / "found" / "validation.csv").read_bytes() == before
    one, two = (json.loads(outcome.out) for outcome in (first, again))
    assert one["words"][0]["verdicts"].keys() == {"mc", "softmax"}
    drop = ("started", "seconds", "sessions", "comparisons", "words")
    assert {k: v for k, v in one.items() if k not in drop} == {
        k: v for k, v in two.items() if k not in drop
    }


def test_the_default_folder_and_the_random_subset(
    spec: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    assert run_cli("validate", spec, *FEW, "--set", "estimators=[softmax]").code == 0
    (folder,) = (tmp_path / "runs").glob("spec-validation-*")
    ids = {row["sample_id"] for row in table(folder / "validation.csv")}
    assert (
        run_cli("validate", spec, *FEW, "--set", "estimators=[softmax]", "--set", "run.seed=1").code
        == 0
    )
    (other,) = set((tmp_path / "runs").glob("spec-validation-*")) - {folder}
    assert len(ids) == 12
    assert {row["sample_id"] for row in table(other / "validation.csv")} != ids


def test_a_foreign_folder_is_never_written_into(
    spec: Path, refuse: Refuse, run_cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refuse("validate", spec, "--out", "mine")
    (tmp_path / "file").write_text("")
    refuse("validate", spec, "--out", "file")
    assert run_cli("estimate", spec, "--out", "run", "--limit", "2").code == 0
    refuse("validate", spec, "--out", "run")


@pytest.mark.parametrize(
    "args",
    [
        ("--images", "1"),
        ("--reference-draws", "10"),
        ("--set", "mc.draws=no"),
        ("--set", "estimators=[difficulty]"),
    ],
)
def test_bad_options(args: tuple[str, ...], spec: Path, refuse: Refuse) -> None:
    refuse("validate", spec, *args)


def test_bad_samples_stop_it_or_are_left_out(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    save_npz(tmp_path / "x.npz", count=12, labels=[0, 1, 2, 3, 99, 5, 6, 7, 8, 9, 0, 1])
    spec = write(
        tmp_path,
        digits(dataset={"kind": "npz", "path": "x.npz"}, estimators=[{"mc": {"draws": 10}}]),
    )
    refused = run_cli("validate", spec, "--reference-draws", "100")
    assert refused.code == 2
    golden.lines(refused.err)
    code, _, err = run_cli(
        "validate", spec, "--reference-draws", "100", "--on-error", "skip", "--out", "found"
    )
    assert code == 0
    golden.lines(err)
    document: dict[str, Any] = json.loads((tmp_path / "found" / "validation.json").read_text())
    assert document["samples"] == 11
    assert [one["sample_id"] for one in document["skipped"]] == ["4"]


def test_ctrl_c_leaves_nothing(
    spec: Path, run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MonteCarlo, "further", interrupted)
    before = tree(tmp_path)
    done = run_cli("validate", spec, "--out", "found")
    assert done.code == 130
    golden.lines(done.err)
    assert tree(tmp_path) == before


def test_models_of_noise_beside_recorded_noise(tmp_path: Path, run_cli: RunCli) -> None:
    """Frames of normal noise are what a Gaussian of their deviation does to the predictions."""
    np.savez(
        tmp_path / "noise.npz",
        frames=np.random.default_rng(0).normal(size=(50, 1, 8, 8)),
        brightness=[0.5],
        variance=[[0.25**2]],
    )
    write(
        tmp_path,
        {
            "noise": [
                {"sigma": [0.25, 0.5]},
                {"kind": "frames", "file": "noise.npz", "level": [0.5, 1]},
            ]
        },
        "noise.yaml",
    )
    spec = write(tmp_path, digits(limit=40, noise="noise.yaml", estimators=["softmax"]))
    code, out, err = run_cli("validate", spec, *FEW, "--out", "found")
    assert code == 0, err
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("p_robust of the reference"))
    assert lines[first + 1].split() == [
        "noise",
        "mean",
        "p_robust",
        "minus",
        "frames",
        "level",
        "1",
    ]
    names = [line[:16].strip() for line in lines[first + 3 : first + 7]]
    assert names == ["sigma 0.25", "sigma 0.5", "frames level 0.5", "frames level 1"]
    (comparison,) = json.loads((tmp_path / "found" / "validation.json").read_text())[
        "recorded_noise"
    ]
    assert (comparison["noise"], comparison["level"]) == ("frames", 1.0)
    same, stronger, *recorded = comparison["levels"]
    assert [level["difference"] for level in recorded] == [None, None]
    assert same["difference"]["lower"] <= 0 <= same["difference"]["upper"]
    assert stronger["difference"]["upper"] < 0
    rows = table(tmp_path / "found" / "validation.csv")
    references = [float(row["reference"]) for row in rows if row["level"] == "0.25"]
    assert same["value"] == pytest.approx(np.mean(references))


def test_without_recorded_noise_there_is_no_such_table(
    spec: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    done = run_cli("validate", spec, *FEW, "--set", "estimators=[softmax]", "--out", "found")
    assert "recorded noise" not in done.out
    document = json.loads((tmp_path / "found" / "validation.json").read_text())
    assert document["recorded_noise"] == []
