"""Certificates from Lipschitz constants, and moments, on the command line: a run, its gates, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from robaudit.models.architectures import mlp
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.models.test_lipschitz import seeded
from tests.specs import boxed, digits, read_rows, write

SIZES = [64, 30, 10]


def dense(folder: Path, *estimators: Any, **sections: Any) -> dict[str, Any]:
    """A network of dense layers on the digits; its weights go to the folder."""
    save_file(seeded(lambda: mlp(SIZES)).state_dict(), folder / "mlp.safetensors")
    model = {"path": "mlp.safetensors", "architecture": "robaudit:mlp", "architecture_options": {"sizes": SIZES}}
    return digits(model=model, estimators=list(estimators), **sections)


def test_a_run(tmp_path: Path, run_cli: RunCli) -> None:
    estimators = [
        "margin_radius",
        {"smoothed_margin": {"samples": 50}},
        "moments",
        {"radius_attack": {"steps": 5, "restarts": 1, "polish": 5}},
    ]
    write(tmp_path, dense(tmp_path, *estimators, noise={"sigma": [0.1, 0.3]}))
    outcome = run_cli("estimate", "spec.yaml", "--out", "run")
    assert outcome.code == 0
    assert "certified_radius: " in outcome.out
    rows = {(row["sample_id"], row["estimator"], row["level"]): row for row in read_rows(tmp_path / "run")}
    assert len(rows) == 8 * (2 + 2 * 2 + 2 + 2)
    for (sample, name, _), row in rows.items():
        if name.startswith("margin_radius"):
            attacked = rows[sample, name.replace("margin_radius", "radius_attack"), "0.0"]
            assert 0 < float(row["value"]) <= float(attacked["value"])
            assert (row["quantity"], row["interval"], row["lower"], row["upper"]) == ("certified_radius", "lower bound", row["value"], "")
    details = [
        row["numbers"] for row in json.loads((tmp_path / "run" / "samples.json").read_text())["rows"] if row["estimator"] == "moments"
    ]
    assert all(set(one) == {"p_c", "smoothed_margin"} for one in details)
    assert run_cli("verify", "run", "--samples", "all").code == 0


def test_the_chunk_changes_no_bit(tmp_path: Path, run_cli: RunCli) -> None:
    """Of the embedded network, and of moments on another: extended from three images to eight, and at once."""
    certificates = digits(estimators=["margin_radius", {"smoothed_margin": {"samples": 50}}])
    for number, document in enumerate([certificates, dense(tmp_path, "moments")]):
        write(tmp_path, {**document, "dataset": {"kind": "digits", "limit": 3}})
        assert run_cli("estimate", "spec.yaml", "--out", f"run{number}").code == 0
        write(tmp_path, document)
        assert run_cli("estimate", "spec.yaml", "--out", f"run{number}", "--extend").code == 0
        assert run_cli("estimate", "spec.yaml", "--out", f"once{number}").code == 0
        assert (tmp_path / f"run{number}" / "samples.csv").read_bytes() == (tmp_path / f"once{number}" / "samples.csv").read_bytes()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            digits(estimators=["moments"]),
            "moments cannot follow noise through it: the operation max_pool2d_with_indices; use logit_gaussian",
        ),
        (digits(estimators=[{"margin_radius": {"lipschitz": {"l2": 1.0}}}]), "margin_radius; lipschitz; source"),
        (digits(estimators=[{"margin_radius": {"lipschitz": {"source": "x"}}}]), "give the constant: l2, linf or both"),
        (digits(estimators=[{"margin_radius": {"lipschitz": {"l2": -1, "source": "x"}}}]), "greater than 0"),
        (digits(estimators=[{"margin_radius": {"norm": "l1"}}]), "norm"),
        (digits(estimators=[{"smoothed_margin": {"alpha": 0}}]), "alpha"),
        (digits(estimators=[{"smoothed_margin": {"samples": 0}}]), "samples"),
        (digits(estimators=[{"moments": {"order": 0}}]), "order"),
        (boxed("smoothed_margin"), "cannot work with the noise uniform: its proof needs isotropic Gaussian noise"),
        (boxed("moments"), "cannot work with the noise uniform"),
        (digits(noise={"sigma": [0.1], "clip": True}, estimators=["moments"]), "clipped pixels are not normal"),
    ],
)
def test_refused(document: dict[str, Any], says: str, tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, document)
    line = refuse("estimate", "spec.yaml", "--out", "run")
    for part in says.split("; "):
        assert part in line


def test_a_layer_without_a_constant(tmp_path: Path, refuse: Refuse) -> None:
    """As TorchScript, whose modules have no names left: the operation is named."""
    network = torch.nn.Sequential(torch.nn.GroupNorm(1, 1), torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval()
    torch.export.save(torch.export.export(network, (torch.rand(1, 1, 8, 8),)), tmp_path / "model.pt2")
    write(tmp_path, digits(model={"path": "model.pt2"}, estimators=["margin_radius", "smoothed_margin"]))
    line = refuse("estimate", "spec.yaml", "--out", "run")
    assert "model.pt2: has no Lipschitz constant that could be computed: the operation native_group_norm has none" in line
    assert "declare it, if you know one: lipschitz: {l2: K, source: where it is from}" in line
    assert not (tmp_path / "run").exists()


def test_a_declared_constant_that_the_images_contradict(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(estimators=[{"margin_radius": {"lipschitz": {"l2": 1e-6, "source": "a guess"}}}]))
    outcome = run_cli("estimate", "spec.yaml", "--out", "run")
    (line,) = [one for one in outcome.err.splitlines() if one.startswith("error: ")]
    assert "than its Lipschitz constant allows; correct lipschitz, or leave it out: then it is computed" in line
    assert outcome.code == 2


def test_too_many_values(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, dense(tmp_path, {"moments": {"features": 60}}))
    assert "would need the covariance of 64 values" in refuse("estimate", "spec.yaml", "--out", "run")
