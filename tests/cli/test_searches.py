"""Runs of attacks, q-norms, radii and certificates: extended, verified, gated, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from robaudit.models.architectures import mlp
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import boxed, digits, read_info, read_rows, save_npz, write
from tests.unit.models.test_lipschitz import seeded

ATTACK: dict[str, Any] = {"radius_attack": {"steps": 5, "restarts": 1, "polish": 5}}
RANDOM: dict[str, Any] = {"radius_random": {"directions": 60, "norm": "l2"}}
CERTIFICATES = ["margin_radius", {"smoothed_margin": {"samples": 50}}]
SIZES = [64, 30, 10]


def without_noise(*estimators: Any, **sections: Any) -> dict[str, Any]:
    return digits(**{"noise": None, "estimators": list(estimators), **sections})


def dense(folder: Path, *estimators: Any, **sections: Any) -> dict[str, Any]:
    """A network of dense layers on the digits; its weights go to the folder."""
    save_file(seeded(lambda: mlp(SIZES)).state_dict(), folder / "mlp.safetensors")
    model = {"path": "mlp.safetensors", "architecture": "robaudit:mlp", "architecture_options": {"sizes": SIZES}}
    return digits(model=model, estimators=list(estimators), **sections)


@pytest.mark.bits
def test_neither_chunks_nor_batches_change_a_bit(tmp_path: Path, run_cli: RunCli) -> None:
    """Extended from one image to two, and at once with another size of batches; and verified."""
    path = {"qnorm_path": {"q": [1, 10], "temperatures": 20, "steps": 1}}
    document = boxed(path, {"qnorm_mc": {"samples": 20}}, noise=[{"kind": "uniform", "eps": [0.1]}])
    for limit, batch_size, out, *more in ((1, "auto", "run"), (2, "auto", "run", "--extend"), (2, 16, "once")):
        write(tmp_path, {**document, "dataset": {"kind": "digits", "limit": limit}, "run": {"batch_size": batch_size}})
        assert run_cli("estimate", "spec.yaml", "--out", out, *more).code == 0
    assert (tmp_path / "run" / "samples.csv").read_bytes() == (tmp_path / "once" / "samples.csv").read_bytes()
    assert all(row["value"] for row in read_rows(tmp_path / "run"))
    code, out, _ = run_cli("verify", "run", "--samples", "all")
    assert code == 0
    assert "rows of 2 samples recomputed: all as written, bit for bit\n" in out


def test_no_gate_on_results_without_a_value(tmp_path: Path, run_cli: RunCli) -> None:
    """Of chains that are too short to settle."""
    write(tmp_path, boxed({"qnorm_path": {"q": [1, 100], "temperatures": 20, "steps": 2}}, limit=4))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    missing = [row for row in read_rows(tmp_path / "run") if row["interval"] == "no value"]
    assert missing
    assert all(row["note"].startswith("no value") and not row["lower"] and not row["std_error"] for row in missing)
    assert run_cli("gate", "run", "mean(q=1) <= 1000").code == 4


def test_images_without_labels(tmp_path: Path, refuse: Refuse, run_cli: RunCli) -> None:
    save_npz(tmp_path / "data.npz", count=2)
    sections = {"dataset": {"kind": "npz", "path": "data.npz", "labels_key": None}}
    write(tmp_path, boxed("qnorm_mc", **sections))
    refuse("estimate", "spec.yaml", says="has no labels, and qnorm_mc needs them; label it, or go by the class predicted")
    write(tmp_path, boxed({"qnorm_mc": {"samples": 20, "target": "predicted"}}, **sections))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0


def test_radii_of_the_digits(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, without_noise(ATTACK, RANDOM, "difficulty", limit=4))
    outcome = run_cli("estimate", "spec.yaml", "--out", "run")
    assert outcome.code == 0
    assert "no noise, higher is better" in outcome.out
    found = {(row["sample_id"], row["estimator"]): row for row in read_rows(tmp_path / "run")}
    assert len(found) == 4 * 4
    for (sample, name), row in found.items():
        assert (row["noise"], row["level_name"], row["level"]) == ("none", "none", "0.0")
        if name.startswith("radius"):
            assert (row["quantity"], row["interval"], row["lower"], row["upper"]) == ("radius", "upper bound", "0.0", row["value"])
            assert row["flips_to"] not in ("", row["predicted"])
            near, far = (float(found[sample, f"{one}:norm=l2"]["value"]) for one in ("radius_attack", "radius_random"))
            assert float(found[sample, "radius_attack:norm=linf"]["value"]) < near < far
    assert run_cli("report", "run").code == 0
    assert run_cli("gate", "run", "mean(estimator=radius_attack, norm=l2) <= 100").code == 0
    assert run_cli("gate", "run", "mean(estimator=radius_attack, norm=linf) >= 1").code == 1


def test_noise_joins_a_run_without(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, without_noise("difficulty"))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert read_info(tmp_path / "run")["noise"].startswith("none; ")
    write(tmp_path, digits(estimators=["difficulty", {"mc": {"samples": 20}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend").code == 0
    assert {(row["estimator"], row["noise"]) for row in read_rows(tmp_path / "run")} == {("difficulty", "none"), ("mc", "gaussian")}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "constant": (digits(estimators=[{"margin_radius": {"lipschitz": {"source": "x"}}}]), "give the constant: l2, linf or both"),
    "noise": (boxed("smoothed_margin"), "cannot work with the noise uniform: its proof needs isotropic Gaussian noise"),
    "no limit": (digits(estimators=["adversarial_loss"]), "cannot work with the noise gaussian: it is unbounded"),
    "order": (boxed({"qnorm_path": {"q": [1, -2]}}), "q[1]: got -2; must be greater than or equal to 0.000001"),
    "same noise": (boxed("qnorm_path", noise=[{"kind": "corruption", "name": "jpeg", "severity": [1]}]), "the same to an image every time"),
    "not linear": (without_noise("radius_exact"), "is not linear, and radius_exact needs it to be: its graph has the operation"),
    "no noise": (without_noise("mc"), "the key 'noise' is missing, and mc needs it"),
    "noise of a radius": (without_noise({"radius_attack": {"noise": "gaussian"}}), "noise: it uses no noise"),
}


@pytest.mark.parametrize(("document", "says"), REFUSED.values(), ids=list(REFUSED))
def test_refused(document: dict[str, Any], says: str, tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, document), "--out", "run", says=says)


def test_a_validation_needs_a_noise_level(tmp_path: Path, refuse: Refuse) -> None:
    refuse("validate", write(tmp_path, without_noise("difficulty")), says="none of its estimators has a noise level")
