"""`adversarial_loss` in a run: resumed, extended, verified, and told of where another estimator beats it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunCli
from tests.specs import boxed, digits, read_rows, save_npz, write

WEAK = {"adversarial_loss": {"label": "weak", "steps": 1, "restarts": 1}}
STRONG = {"adversarial_loss": {"label": "strong", "steps": 20, "restarts": 3}}
NOISE = [{"kind": "uniform", "eps": [0.3]}]


@pytest.mark.bits
def test_a_beaten_attack_says_so_in_the_end(tmp_path: Path, run_cli: RunCli) -> None:
    """The note comes with the estimator that beats it, in an extension as at once; verify finds nothing to complain of."""
    write(tmp_path, boxed(WEAK))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert {row["note"] for row in read_rows(tmp_path / "run")} == {""}
    write(tmp_path, boxed(WEAK, STRONG))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend").code == 0
    assert run_cli("estimate", "spec.yaml", "--out", "once").code == 0
    assert (tmp_path / "run" / "samples.csv").read_bytes() == (tmp_path / "once" / "samples.csv").read_bytes()
    found = read_rows(tmp_path / "run")
    weak, strong = ([row for row in found if row["estimator"] == name] for name in ("weak", "strong"))
    assert len(weak) == len(strong) == 8
    for one, other in zip(weak, strong, strict=True):
        assert (one["interval"], one["lower"], one["upper"]) == ("lower bound", one["value"], "")
        assert float(one["value"]) <= float(other["value"])
        beaten = float(other["value"]) > float(one["value"]) * (1 + 1e-6)
        assert one["note"] == (f"the attack failed: strong found a loss of {float(other['value']):.4g}" if beaten else "")
        assert other["note"] == ""
    assert any(row["note"] for row in weak)
    code, out, _ = run_cli("verify", "run", "--samples", "all")
    assert (code, out.partition("\n")[0] + "\n") == (0, "16 rows of 8 samples recomputed: all as written, bit for bit\n")


def test_gaussian_noise_has_no_largest_loss(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, digits(estimators=["adversarial_loss"]))
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 2
    assert "adversarial_loss: cannot work with the noise gaussian: it is unbounded" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("kind", [{"kind": "uniform", "eps": [0.1], "norm": "l2", "clip": True}, {"kind": "spatial", "size": [0.5]}])
def test_other_noises(kind: dict[str, Any], tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, boxed({"adversarial_loss": {"steps": 6, "restarts": 2, "target": "predicted"}}, noise=[kind]))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert len(read_rows(tmp_path / "run")) == 8
    assert run_cli("verify", "run", "--samples", "all").code == 0


def test_images_without_labels(tmp_path: Path, run_cli: RunCli) -> None:
    save_npz(tmp_path / "data.npz", count=4)
    sections = {"dataset": {"kind": "npz", "path": "data.npz", "labels_key": None}}
    write(tmp_path, boxed({"adversarial_loss": {"steps": 2, "restarts": 2, "target": "predicted"}}, **sections))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
