"""`robaudit spectrum`: of a run and of a spec, what it shows, what it checks, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from robaudit import audit
from robaudit.auditing.spectrum import BUDGETS, fitted_spec, whole_spec
from robaudit.spec.load import load_spec
from robaudit.spec.model import EstimatorSpec
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.plugin import planted
from tests.shared import document, needs_shared
from tests.specs import digits, read_rows, save_npz, tree, write

ATTACK: dict[str, Any] = {"radius_attack": {"steps": 5, "restarts": 1, "polish": 5}}
FEW: tuple[Any, ...] = (
    {"mc": {"samples": 50}},
    {"noise_tolerance": {"tolerance": 1.0, "most": 1000}},
    {"qnorm_mc": {"samples": 50, "q": [1, 10]}},
    {"splitting": {"particles": 20, "p_min": 0.01}},
    {"radius_random": {"directions": 30}},
    ATTACK,
)
SMALL: dict[str, dict[str, Any]] = {
    "mc": {"samples": 50},
    "logit_gaussian": {"samples": 32},
    "splitting": {"particles": 20, "p_min": 0.01},
    "noise_tolerance": {"tolerance": 1.0, "most": 1000},
    "radius_random": {"directions": 20},
    "radius_attack": {"steps": 5, "restarts": 1, "polish": 5},
    "qnorm_path": {"temperatures": 16, "steps": 1},
    "adversarial_loss": {"steps": 5, "restarts": 2},
    "certified_radius": {"samples": 200, "selection": 20},
    "smoothed_attack": {"copies": 4, "verify": 200, "steps": 2, "restarts": 0, "polish": 2},
    "smoothed_margin": {"samples": 100},
}
"""Options that make an estimator quick; their results need not be good."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimators of a spectrum with these options."""
    small = tuple(EstimatorSpec(name=one.name, options={**one.options, **SMALL.get(one.name, {})}) for one in BUDGETS)
    monkeypatch.setattr("robaudit.auditing.spectrum.BUDGETS", small)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the digits with results in every band but the certified ones."""
    folder = tmp_path_factory.mktemp("spectrum")
    noise = [{"sigma": [0.1, 0.3]}, {"kind": "uniform", "eps": [0.2]}]
    return audit(write(folder, digits(limit=6, noise=noise, estimators=list(FEW))), out=folder / "run").path


def test_ids_that_are_paths_are_readable(tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ends may be the same, and --sample wants all of them; no column is cut off, however wide the terminal is."""
    names = [f"class{label}" for label in range(10)]
    for label, name in enumerate(names):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("L", (8, 8), 20 * label).save(tmp_path / "images" / name / "0001.png")
    data = {"kind": "images", "path": "images", "channels": 1}
    audit(write(tmp_path, digits(dataset=data, estimators=[{"mc": {"samples": 5}}])), out=tmp_path / "run")
    for width in (60, 79, 80, 99, 100, 120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        out = run_cli("spectrum", tmp_path / "run").out
        table = out[: out.index("~ no interval")]
        assert "\N{HORIZONTAL ELLIPSIS}" not in table
        heads = table[: table.index("\N{BOX DRAWINGS LIGHT HORIZONTAL}")].splitlines()[-2:]
        cut = [tuple(line[i:j].strip() for line in heads) for i in range(len(heads[1])) for j in range(i + 8, i + 20)]
        assert "class3/0001.png" in table or any("class" in first and "/0001.png" in first + second for first, second in cut), table


def test_side_by_side(run: Path, run_cli: RunCli) -> None:
    outcome = run_cli("spectrum", run)
    assert (outcome.code, outcome.err) == (0, "")
    for text in (
        "6 images; shown: 6",
        "average under noise",
        " mc at sigma 0.3",
        " mc at uniform eps 0.2",
        "noise tolerance",
        "0 violations.",
    ):
        assert text in outcome.out
    lines = outcome.out.splitlines()
    places = [next(i for i, line in enumerate(lines) if line.startswith(f" {name}")) for name in ("mc", "qnorm_mc", "noise", "radius")]
    assert places == sorted(places), "from the average to the worst case"
    row = next(line for line in lines if line.startswith(" radius_attack:norm=l2")).split()[1:]
    assert [float(one) for one in row] == sorted(float(one) for one in row), "the least robust first"
    assert "Nothing to compare: certified <= witnessed," in " ".join(outcome.out.split())


def test_the_file_is_the_text(run: Path, run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("spectrum", run, "-o", "all.txt").out == ""
    assert (tmp_path / "all.txt").read_text().split() == run_cli("spectrum", run).out.split()


def test_csv_has_a_line_for_each_image(run: Path, run_cli: RunCli) -> None:
    outcome = run_cli("spectrum", run, "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(outcome.out)))
    rows = {(row["sample_id"], row["estimator"], row["level"]): row for row in read_rows(run)}
    assert (outcome.code, len(lines)) == (0, 6)
    for line in lines:
        row = rows[line["sample_id"], "mc", "0.3"]
        assert [line[f"mc at sigma 0.3{end}"] for end in ("", " lower", " upper")] == [row["value"], row["lower"], row["upper"]]
        assert line["radius_attack:norm=linf"] == rows[line["sample_id"], "radius_attack:norm=linf", "0.0"]["value"]
        assert (line["label"], line["correct"], line["violations"]) == (row["label"], row["correct"], "0")
        assert float(line["margin"]) > 0


def test_json_has_everything(run: Path, run_cli: RunCli) -> None:
    found = json.loads(run_cli("spectrum", run, "--format", "json", "--bottom", "2").out)
    assert (found["images"], len(found["samples"])) == (6, 2)
    assert found["ranked_by"]["estimator"] == "radius_attack:norm=l2"
    assert len(found["samples"][0]["results"]) == len([row for row in read_rows(run) if row["sample_id"] == found["samples"][0]["id"]])
    checks = found["checks"]
    assert (checks["images"], checks["violations"], checks["contradictions"]) == (6, 0, [])
    assert checks["comparisons"] == sum(one["comparisons"] for one in checks["relations"]) > 50
    assert {one["kind"] for one in checks["relations"]} == {"violation", "missed"}


def test_one_image(run: Path, run_cli: RunCli) -> None:
    ids = list(dict.fromkeys(row["sample_id"] for row in read_rows(run)))
    outcome = run_cli("spectrum", run, "--sample", ids[3], "--sample", ids[1])
    assert outcome.code == 0
    assert outcome.out.index(f"Sample {ids[3]}\n") < outcome.out.index(f"Sample {ids[1]}\n")
    assert "value [95% interval]" in outcome.out
    assert f"Sample {ids[0]}\n" not in outcome.out


def test_pictures(run: Path, run_cli: RunCli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = run_cli("spectrum", run, "--bottom", "2", "--pictures", "worst")
    assert (outcome.code, outcome.err) == (0, "2 pictures in worst\n")
    files = sorted((tmp_path / "worst").iterdir())
    assert [file.name[:4] for file in files] == ["001-", "002-"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    again = run_cli("plot", run, "--kind", "spectrum", "-o", "it.png")
    assert again.code == 0
    assert (tmp_path / "it.png").read_bytes() == files[0].read_bytes(), "the least robust, the same bytes"


def test_a_narrow_terminal_has_fewer_images(run: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_cli("spectrum", run)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run_cli("spectrum", run)
    assert "shown: 6" in outcome.out
    assert narrow.code == 0
    assert max(map(len, narrow.out.splitlines())) <= 80


def test_what_makes_no_sense_is_refused(run: Path, refuse: Refuse, tmp_path: Path) -> None:
    refuse("spectrum", "nowhere", says="no such file")
    refuse("spectrum", run, "--sample", "nobody", says="has no sample 'nobody'")
    refuse("spectrum", run, "--limit", "3", says="--limit: needs a spec")
    refuse("spectrum", run, "--out", "x", says="--out: needs a spec")
    refuse("spectrum", run, "--set", "mc.samples=3", says="--set: needs a spec")
    refuse("spectrum", tmp_path, says="run.json")
    (tmp_path / "file").write_text("")
    refuse("spectrum", run, "--pictures", "file", says="is a file")
    refuse("spectrum", run, "--pictures", "file/below", says="file is a file")
    refuse("spectrum", run, "--sample", "0", "--bottom", "2", says="--bottom: counts the least robust images")
    refuse("spectrum", run, "--format", "csv", "-o", "gone/x.csv", says="its folder does not exist")
    write(tmp_path, digits(estimators=None))
    refuse("spectrum", "spec.yaml", "-o", "gone/x.txt", says="its folder does not exist")
    assert not (tmp_path / "runs").exists(), "before any work is done"
    refuse("plot", run, "--kind", "bias", "--sample", "3", "-o", "it.png", says="--sample: does not apply to --kind bias")
    refuse("plot", run, "--kind", "spectrum", "--sample", "nobody", "-o", "it.png", says="has no sample 'nobody'")


def test_a_run_whose_results_have_nothing_to_do_with_each_other(tmp_path: Path, run_cli: RunCli) -> None:
    assert run_cli("estimate", write(tmp_path, digits(limit=2, estimators=["softmax"])), "--out", "run").code == 0
    outcome = run_cli("spectrum", "run")
    assert (outcome.code, outcome.err) == (0, "")
    assert "No two results of this run bound the same number." in outcome.out
    outcome = run_cli("spectrum", "run", "--pictures", "none")
    assert outcome.err.count("none of its results has a size to draw") == 2
    assert outcome.err.endswith("0 pictures in none\n")


# --- a bug in an estimator


@pytest.fixture
def bug() -> Iterator[None]:
    with planted.installed():
        yield


@pytest.mark.usefixtures("bug")
def test_a_wrong_estimator_is_found_and_named(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=5, noise=None, estimators=["planted", ATTACK]))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    rows = {(row["sample_id"], row["estimator"]): float(row["value"]) for row in read_rows(tmp_path / "run")}
    outcome = run_cli("spectrum", "run")
    assert outcome.code == 3
    first = min((value, sample) for (sample, name), value in rows.items() if name == "radius_attack:norm=l2")[1]
    assert outcome.err.startswith("bug in an estimator: planted:norm=l2: ")
    assert "on 5 images; first: sample " in outcome.err
    assert outcome.err.count("\n") == 1
    assert "Violation: one of the two is wrong: a bug in an estimator" in outcome.out
    found = json.loads(run_cli("spectrum", "run", "--format", "json").out)
    same = [one for one in found["checks"]["contradictions"] if one["at_most"]["estimator"] == "radius_attack:norm=l2"]
    assert len(same) == 5
    for one in same:
        assert one["at_least"]["bound"] == rows[one["sample_id"], "planted:norm=l2"] > one["at_most"]["bound"]
        assert [wrong["estimator"] for wrong in one["wrong"]] == ["planted:norm=l2"]
    assert found["samples"][0]["id"] == first
    lines = list(csv.DictReader(io.StringIO(run_cli("spectrum", "run", "--format", "csv").out)))
    assert all(int(line["violations"]) >= 1 for line in lines)


@pytest.mark.usefixtures("bug")
def test_a_right_estimator_is_not_accused(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=3, noise=None, estimators=[{"planted": {"factor": 0.5}}, ATTACK]))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    assert run_cli("spectrum", "run").code == 0


# --- of a spec


@pytest.mark.usefixtures("quick")
def test_everything_that_applies(tmp_path: Path, run_cli: RunCli) -> None:
    noise = [{"sigma": [0.2]}, {"kind": "uniform", "name": "box", "eps": [0.3]}]
    write(tmp_path, digits(limit=2, noise=noise, estimators=None))
    outcome = run_cli("spectrum", "spec.yaml")
    assert outcome.code == 0, outcome.err
    assert "note: radius_exact is left out: model: is not linear" in outcome.err
    assert "0 violations" in outcome.out
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("spec-spectrum-")
    names = {row["estimator"].partition(":")[0] for row in read_rows(folder)}
    assert names >= {"difficulty", "mc", "splitting", "qnorm_path", "noise_tolerance", "radius_attack", "radius_random"}
    before = tree(folder)
    again = run_cli("spectrum", "spec.yaml", "-q")
    assert (again.code, again.out) == (0, outcome.out)
    assert tree(folder) == before, "complete: nothing is recomputed"


def test_adding_what_is_missing(tmp_path: Path) -> None:
    asked = load_spec(write(tmp_path, digits(estimators=[{"mc": {"samples": 7}}, {"mc": {"samples": 9, "label": "more"}}])))
    whole = whole_spec(asked, ["mc", "radius_attack", "softmax"])
    assert [(one.name, one.options.get("samples")) for one in whole.estimators] == [("mc", 7), ("mc", 9), ("radius_attack", None)]
    assert whole_spec(whole, ["mc", "radius_attack"]) == whole
    plain = whole_spec(load_spec(write(tmp_path, digits(estimators=None))), ["mc", "logit_gaussian"])
    assert [one.name for one in plain.estimators] == ["mc", "logit_gaussian"], "a spec without estimators means all"
    assert plain.name == "spec"


def test_what_does_not_apply_is_left_out(tmp_path: Path) -> None:
    fog = {"kind": "corruption", "name": "fog", "severity": [1]}
    spec = load_spec(write(tmp_path, digits(noise=[{"sigma": [0.2]}, fog], estimators=[{"mc": {"samples": 7}}])))
    fitted, left_out = fitted_spec(spec, trust=False, skip_bad=False)
    reasons = {(one.name, *one.noises): one.why for one in left_out}
    options = {one.name: one.options for one in fitted.estimators}
    assert "is not linear" in reasons["radius_exact",]
    assert "radius_exact" not in options
    assert "adversarial_loss" not in options
    assert options["noise_tolerance"]["noise"] == ["gaussian"]
    assert options["mc"] == {"samples": 7}
    assert "whole numbers" in reasons["noise_tolerance", "fog"]
    assert fitted_spec(fitted, trust=False, skip_bad=False)[0] == fitted


def test_without_noise_and_without_labels(tmp_path: Path) -> None:
    save_npz(tmp_path / "x.npz")
    data = {"kind": "npz", "path": "x.npz", "labels_key": None}
    spec = load_spec(write(tmp_path, digits(dataset=data, noise=None, estimators=None)))
    fitted, left_out = fitted_spec(spec, trust=False, skip_bad=False)
    assert {one.name for one in fitted.estimators} >= {"difficulty", "radius_random", "radius_attack"}
    assert {one.why for one in left_out if one.name == "mc"} == {"the spec has no noise"}
    spec = load_spec(write(tmp_path, digits(dataset=data, noise={"kind": "uniform", "eps": [0.3]}, estimators=None)))
    options = {one.name: one.options for one in fitted_spec(spec, trust=False, skip_bad=False)[0].estimators}
    assert options["adversarial_loss"] == {"target": "predicted"}


def test_an_own_estimator_that_cannot_work_is_refused(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, digits(limit=2, estimators=["radius_exact"]))
    refuse("spectrum", "spec.yaml", says="is not linear")


def small(kind: str) -> nn.Module:
    """A linear network, or one with a hidden layer, for 8 x 8 images."""
    generator = torch.Generator().manual_seed(1)
    layers = [nn.Linear(64, 4)] if kind == "linear" else [nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4)]
    network = nn.Sequential(nn.Flatten(), *layers)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return network


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("kind", [pytest.param("linear", marks=pytest.mark.slow), "mlp"])
def test_no_violation_where_nothing_is_wrong(kind: str, tmp_path: Path, run_cli: RunCli) -> None:
    torch.jit.save(torch.jit.trace(small(kind), torch.rand(1, 1, 8, 8)), tmp_path / "network.pt")
    save_npz(tmp_path / "x.npz", count=7, labels=[i % 4 for i in range(7)])
    noise = [{"sigma": [0.1, 0.3]}, {"kind": "uniform", "eps": [0.05, 0.3]}, {"kind": "laplace", "sigma": [0.1, 0.3]}]
    write(tmp_path, digits(model={"path": "network.pt"}, dataset={"kind": "npz", "path": "x.npz"}, noise=noise, estimators=None))
    outcome = run_cli("spectrum", "spec.yaml", "--format", "json", "-q")
    assert outcome.code == 0, outcome.err
    checks = json.loads(outcome.out)["checks"]
    compared = {one["relation"]: one["comparisons"] for one in checks["relations"]}
    assert checks["violations"] == 0
    for name in ("p_robust = 1 - p_fail", "certified <= witnessed", "certified <= witnessed (majority vote)", "p_lower <= p_robust"):
        assert compared[name] > 20, name
    if kind == "linear":
        for name in (
            "certified <= witnessed",
            "half-space beyond the boundary",
            "p_robust falls with the level",
            "noise_tolerance and p_robust",
        ):
            assert compared[name] > 20, name


@needs_shared
@pytest.mark.usefixtures("quick")
def test_a_real_network_on_which_everything_applies(tmp_path: Path, run_cli: RunCli) -> None:
    noise = [{"sigma": [0.02, 0.25]}, {"kind": "uniform", "eps": [0.02]}]
    spec = document("mnist_spectral_mlp", limit=2, noise=noise)
    del spec["estimators"]
    write(tmp_path, spec)
    outcome = run_cli("spectrum", "spec.yaml", "--format", "json")
    assert outcome.code == 0, outcome.err
    assert "radius_exact is left out" in outcome.err
    found = json.loads(outcome.out)
    compared = {one["relation"]: one["comparisons"] for one in found["checks"]["relations"]}
    names = {result["estimator"].partition(":")[0] for sample in found["samples"] for result in sample["results"]}
    assert names == {entry.options.get("label", entry.name) for entry in BUDGETS} - {"radius_exact"}
    assert compared["noise within the certified ball"] > 0
    assert compared["p_fail <= p_error"] > 0
