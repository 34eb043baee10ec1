"""`robaudit verify`: rows that come out again, results that fit together; and rows as they are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from robaudit import ImageBatch, audit, load_spec
from robaudit.methods.certificates.margin_radius import MarginRadius
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import WEIGHTS, digits, laid_out, read_info, save_npz, write

ESTIMATORS = [{"mc": {"draws": 50}}, "logit_gaussian", "taylor", {"mmse": {"draws": 4}}]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of 12 samples, with its spec."""
    folder = tmp_path_factory.mktemp("finished")
    spec = write(folder, digits(limit=12, noise={"sigma": [0.25]}, estimators=ESTIMATORS))
    audit(load_spec(spec), out=folder / "run")
    return folder


def change(run: Path, index: int, **values: Any) -> str:
    """Change a row and make the checksums fit; the id of its sample."""
    path = run / "samples.json"
    document = json.loads(path.read_text())
    row = document["rows"][index]
    row.update(
        {key: value(row.get(key)) if callable(value) else value for key, value in values.items()}
    )
    path.write_bytes(laid_out(document))
    about = read_info(run)
    about["files"]["samples.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(about))
    return str(row["sample_id"])


def backwards(text: str) -> str:
    """The bits of draws in another order."""
    data = base64.b64decode(text)
    return base64.b64encode(data[-2::-1] + data[-1:]).decode()


def index_of(run: Path, estimator: str, low: float = 0.2, high: float = 0.995) -> int:
    rows = json.loads((run / "samples.json").read_text())["rows"]
    return next(
        i
        for i, row in enumerate(rows)
        if row["estimator"] == estimator and low < row["value"] < high
    )


@pytest.mark.bits
def test_a_run_comes_out_again(run: Path, run_cli: RunCli) -> None:
    for samples, rows in (("all", 48), ("3", 12)):
        code, out, _ = run_cli("verify", run, "--samples", samples)
        assert code == 0
        assert out.startswith(
            f"{rows} rows of {rows // 4} samples recomputed: all as written, bit for "
            "bit\n\nConsistency of the results\n"
        )
    assert run_cli("verify", run, "--samples", "2", "-q") == (0, "", "")


def test_a_changed_third_digit_is_found(run: Path, run_cli: RunCli) -> None:
    changed = {
        name: change(
            run,
            index_of(run, name),
            value=lambda value: value - 0.001 if value > 0.5 else value + 0.001,
        )
        for name in ("mc", "logit_gaussian", "taylor", "mmse")
    }
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert all(
        f"{sample}, {estimator} at sigma 0.25: value is 0." in out
        for estimator, sample in changed.items()
    )
    assert "\n48 rows of 12 samples recomputed: 4 numbers differ\n" in out


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (lambda votes: {"counts": {"0": 50}, "classes": votes["classes"]}, "votes is "),
        (
            lambda votes: {**votes, "bits": backwards(votes["bits"])},
            r"mc at sigma 0.25: kept of draw \d+ is (True in the run and False|False in the run "
            r"and True) now",
        ),
    ],
    ids=["votes", "draws"],
)
def test_votes_and_draws_are_compared(changed: Any, says: str, run: Path, run_cli: RunCli) -> None:
    change(run, index_of(run, "mc", 0.5, 0.95), votes=changed)
    code, out, _ = run_cli("verify", run, "--samples", "all")
    assert code == 1
    assert re.search(says, out)
    found = json.loads(run_cli("verify", run, "--samples", "all", "--format", "json").out)[
        "recomputed"
    ]["differences"]
    assert {one["field"].partition(" ")[0] for one in found} & {"votes", "kept"}
    assert found[0].keys() == {
        "sample_id",
        "estimator",
        "noise",
        "level_name",
        "level",
        "field",
        "recorded",
        "recomputed",
    }


def test_an_altered_file_is_named(run: Path, run_cli: RunCli) -> None:
    text = (run / "samples.csv").read_text()
    (run / "samples.csv").write_text(text.replace("0.25", "0.26", 1))
    code, out, _ = run_cli("verify", run, "--samples", "1")
    assert code == 1
    assert out.startswith(f"{run}/samples.csv has changed since it was written\n")


def test_the_rows_are_drawn_at_random(run: Path, run_cli: RunCli) -> None:
    """A changed row without votes of its own is found when its sample is drawn, and only then."""
    change(run, index_of(run, "taylor"), value=0.5)
    codes = set()
    for seed in range(12):
        codes.add(run_cli("verify", run, "--samples", "5", "--seed", seed).code)
        if codes == {0, 1}:
            return
    raise AssertionError(codes)


def test_other_weights_or_data_are_refused(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    shutil.copy(WEIGHTS, tmp_path / "w.safetensors")
    spec = write(
        tmp_path,
        digits(limit=4, model={"path": "w.safetensors", "architecture": "robaudit:digits_cnn"}),
    )
    assert run_cli("estimate", spec, "--out", "run").code == 0
    weights = load_file(tmp_path / "w.safetensors")
    save_file({key: value * 1.01 for key, value in weights.items()}, tmp_path / "w.safetensors")
    code, out, err = run_cli("verify", "run")
    assert code == 2
    golden.lines(err)
    assert out.startswith("Consistency of the results\n"), (
        "the results can be compared all the same"
    )
    found = json.loads(run_cli("verify", "run", "--format", "json").out)
    assert found["recomputed"]["samples"] == 0
    assert found["not_recomputed"] == err.strip().removeprefix("error: ")
    assert found["checks"]["violations"] == 0


def test_a_changed_image_is_named(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    save_npz(tmp_path / "x.npz", count=12)
    spec = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    with np.load(tmp_path / "x.npz") as data:
        images = data["images"].copy()
        labels = data["labels"]
    images[3] = 255 - images[3]
    np.savez(tmp_path / "x.npz", images=images, labels=labels)
    code, out, err = run_cli("verify", "run")
    assert (code, out.partition("\n")[0]) == (2, "Consistency of the results")
    golden.lines(err)


def test_a_network_that_sees_the_whole_batch_is_verified_as_a_whole(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    (tmp_path / "together.py").write_text(
        "def model():\n    return lambda x: x.flatten(1)[:, :10] - x.flatten(1)[:, :10].mean(0)\n",
        encoding="utf-8",
    )
    spec = write(
        tmp_path, digits(limit=30, model={"format": "python", "architecture": "together:model"})
    )
    assert run_cli("estimate", spec, "--out", "run", "--trust").code == 0
    code, out, err = run_cli("verify", "run", "--samples", "3", "--trust")
    assert (code, out.partition("\n")[0]) == (
        0,
        "30 rows of 30 samples recomputed: all as written, bit for bit",
    )
    golden.lines(err, "note: ")


@pytest.mark.parametrize("samples", ["-1", "some", "1.5", "\u0663"])
def test_bad_number_of_samples(samples: str, refuse: Refuse) -> None:
    refuse("verify", "run", f"--samples={samples}")


def test_export_of_an_unfinished_run_gives_what_there_is(
    run: Path, run_cli: RunCli, golden: Golden
) -> None:
    about = read_info(run)
    (run / "run.json").write_text(json.dumps({**about, "status": "running"}))
    whole = (run / "samples.csv").read_text()
    code, out, err = run_cli("show", run, "rows")
    # In the order of writing: rounds do not follow the order of the data.
    assert (code, sorted(out.splitlines())) == (0, sorted(whole.splitlines()))
    golden.lines(err)


# --- results against each other


ATTACK: dict[str, Any] = {"radius_attack": {"steps": 5, "restarts": 1, "polish": 5}}


def test_results_are_compared_without_weights(run: Path, run_cli: RunCli, tmp_path: Path) -> None:
    """Nothing is recomputed, nor is the model looked for."""
    outcome = run_cli("verify", run, "--samples", "0")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Consistency of the results\n")
    assert run_cli("verify", run, "--samples", "0", "-q") == (0, "", "")
    found = json.loads(run_cli("verify", run, "--samples", "0", "--format", "json").out)
    nothing = {"samples": 0, "rows": 0, "identical": 0, "differences": [], "altered": []}
    assert (found["recomputed"], found["not_recomputed"]) == (nothing, None)
    checks = found["checks"]
    assert (checks["images"], checks["contradictions"]) == (12, [])
    assert checks["comparisons"] == sum(one["comparisons"] for one in checks["relations"])
    assert run_cli("verify", run, "--samples", "0", "-o", "checks.txt").out == ""
    assert (tmp_path / "checks.txt").read_text().split() == outcome.out.split()
    rows = json.loads(run_cli("verify", run, "--samples", "2", "--format", "json").out)[
        "recomputed"
    ]
    assert (rows["samples"], rows["rows"], rows["differences"], rows["altered"]) == (2, 8, [], [])


@pytest.mark.parametrize("field", ["value", "lower", "upper"])
def test_a_row_that_its_own_votes_contradict(field: str, run: Path, run_cli: RunCli) -> None:
    """Seen without the model, wherever the row is."""
    index = index_of(run, "mc", 0.5, 0.95)
    sample = change(run, index, **{field: lambda value: value + 0.01})
    code, out, _ = run_cli("verify", run, "--samples", "0")
    assert code == 1
    assert out.startswith(f"{sample}, mc at sigma 0.25: {field} is ")


@pytest.mark.parametrize("name", ["samples.csv", "summary.json", "state.db"])
def test_files_are_compared_with_their_digests_without_weights(
    name: str, run: Path, run_cli: RunCli
) -> None:
    with (run / name).open("ab") as file:
        file.write(b"\n")
    code, out, _ = run_cli("verify", run, "--samples", "0")
    assert code == 1
    assert out.startswith(f"{run}/{name} has changed since it was written\n")


def test_a_run_without_its_state_is_as_good(run: Path, run_cli: RunCli) -> None:
    (run / "state.db").unlink()
    assert run_cli("verify", run, "--samples", "0").code == 0


def test_a_wrong_estimator_is_found_and_named(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """A certificate far beyond the nearest flip that an attack finds."""
    right = MarginRadius.estimate

    def wrong(self: MarginRadius, batch: ImageBatch) -> Any:
        return [
            tuple(replace(one, value=100.0, lower=100.0) for one in results)
            for results in right(self, batch)
        ]

    monkeypatch.setattr(MarginRadius, "estimate", wrong)
    spec = write(
        tmp_path,
        digits(limit=5, noise=None, estimators=[{"margin_radius": {"norm": "l2"}}, ATTACK]),
    )
    assert run_cli("estimate", spec, "--out", "run").code == 0
    outcome = run_cli("verify", "run")
    assert outcome.code == 3
    assert outcome.out.startswith("15 rows of 5 samples recomputed: all as written, "), (
        "wrong, and yet reproduced"
    )
    assert "Violation: one of the two is wrong: a bug in an estimator" in outcome.out
    golden.lines(outcome.err)
    found = json.loads(run_cli("verify", "run", "--samples", "0", "--format", "json").out)
    same = [
        one
        for one in found["checks"]["contradictions"]
        if one["at_most"]["estimator"] == "radius_attack:norm=l2"
    ]
    assert len(same) == 5
    for one in same:
        assert one["at_least"]["bound"] == 100.0 > one["at_most"]["bound"]
        assert [wrong["estimator"] for wrong in one["wrong"]] == ["margin_radius:norm=l2"]


WHOLE: list[Any] = [
    "difficulty",
    {"mc": {"draws": 50}},
    {"logit_gaussian": {"draws": 32}},
    {"moments": {"noise": "gaussian"}},
    {"splitting": {"particles": 20, "p_min": 0.01}},
    {"qnorm_path": {"temperatures": 16, "steps": 1}},
    {"adversarial_loss": {"steps": 5, "restarts": 2, "noise": "uniform"}},
    {"noise_tolerance": {"tolerance": 1.0, "most": 1000}},
    {"radius_random": {"directions": 20}},
    ATTACK,
    "margin_radius",
    {"smoothed_margin": {"draws": 100, "noise": "gaussian"}},
    {"certified_radius": {"draws": 200, "selection": 20, "noise": "gaussian"}},
    {
        "certified_radius": {
            "draws": 200,
            "selection": 20,
            "norm": "l1",
            "label": "certified_radius_l1",
            "noise": "uniform",
        }
    },
    {"smoothed_attack": {"copies": 4, "verify": 200, "steps": 2, "restarts": 0, "polish": 2}},
]
"""Everything, with options that make it quick; the results need not be good."""


def small(kind: str) -> nn.Module:
    """A linear network, or one with a hidden layer, for 8 x 8 images."""
    generator = torch.Generator().manual_seed(1)
    layers = (
        [nn.Linear(64, 4)] if kind == "linear" else [nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4)]
    )
    network = nn.Sequential(nn.Flatten(), *layers)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return network


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("kind", [pytest.param("linear", marks=pytest.mark.slow), "mlp"])
def test_no_violation_where_nothing_is_wrong(kind: str, tmp_path: Path, run_cli: RunCli) -> None:
    torch.jit.save(torch.jit.trace(small(kind), torch.rand(1, 1, 8, 8)), tmp_path / "network.pt")
    save_npz(tmp_path / "x.npz", count=4, labels=[0, 1, 2, 3])
    noise = [
        {"sigma": [0.1, 0.3]},
        {"kind": "uniform", "eps": [0.3]},
        {"kind": "laplace", "sigma": [0.3]},
    ]
    estimators = [*WHOLE, *(["radius_exact"] if kind == "linear" else [])]
    write(
        tmp_path,
        digits(
            model={"path": "network.pt"},
            dataset={"kind": "npz", "path": "x.npz"},
            noise=noise,
            estimators=estimators,
        ),
    )
    assert run_cli("estimate", "spec.yaml", "--out", "run", "-q").code == 0
    outcome = run_cli("verify", "run", "--samples", "0", "--format", "json")
    assert outcome.code == 0, outcome.err
    checks = json.loads(outcome.out)["checks"]
    assert checks["violations"] == 0
    found = {one["relation"]: one["comparisons"] for one in checks["relations"]}
    for name in ("p_robust = 1 - p_fail", "certified <= witnessed", "p_lower <= p_robust"):
        assert found[name] > 20, name
