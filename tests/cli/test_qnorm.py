"""The q-norms in a run: gates on them, resumed, extended, verified, and what cannot work is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunCli
from tests.specs import boxed, digits, read_rows, save_npz, write

SHORT = {"qnorm_path": {"q": [1, 100], "temperatures": 60, "steps": 3}}
NOISE = [{"kind": "uniform", "eps": [0.3]}]
SMALL = [{"kind": "uniform", "eps": [0.1]}]


def test_a_run_and_what_follows_it(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, boxed(SHORT, {"qnorm_mc": {"q": [1], "samples": 50}}, {"adversarial_loss": {"steps": 10, "restarts": 2}}, noise=SMALL))
    code, out, _ = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 0
    assert "loss: cross-entropy under noise" in out
    found = read_rows(tmp_path / "run")
    assert [row["estimator"] for row in found[:4]] == ["qnorm_path:q=1", "qnorm_path:q=100", "qnorm_mc:q=1", "adversarial_loss"]
    assert {row["quantity"] for row in found} == {"loss"}
    for less, more in zip(found[::4], found[1::4], strict=True):
        assert 0 <= float(less["lower"]) <= float(less["value"]) <= float(less["upper"])
        assert float(less["value"]) <= float(more["value"]) + 3 * (float(less["std_error"]) + float(more["std_error"]))
    mean = sum(float(row["value"]) for row in found[1::4]) / 8
    gate = "mean(estimator=qnorm_path, q=100) <="
    assert run_cli("gate", "run", f"{gate} {mean * 1000}").code == 0
    assert run_cli("gate", "run", f"{gate} {mean / 1000}").code == 1
    code, out, _ = run_cli("verify", "run", "--samples", "all")
    assert (code, out.partition("\n")[0] + "\n") == (0, "32 rows of 8 samples recomputed: all as written, bit for bit\n")
    assert run_cli("flag-samples", "run", "--estimator", "qnorm_path:q=100").code == 0


@pytest.mark.bits
def test_an_extended_run_is_the_one_made_at_once(tmp_path: Path, run_cli: RunCli) -> None:
    """By images and by estimators, in chunks of other sizes, batches of other sizes."""
    both = [SHORT, {"qnorm_mc": {"samples": 20}}]
    for limit, estimators, batch_size, out, *more in (
        (1, [SHORT], "auto", "run"),
        (3, both, "auto", "run", "--extend"),
        (3, both, 16, "once"),
    ):
        write(tmp_path, digits(limit=limit, noise=NOISE, estimators=estimators, run={"batch_size": batch_size}))
        assert run_cli("estimate", "spec.yaml", "--out", out, *more).code == 0
    once = (tmp_path / "once" / "samples.csv").read_bytes()
    assert once == (tmp_path / "run" / "samples.csv").read_bytes()


@pytest.mark.bits
def test_rows_of_a_batch_of_one(tmp_path: Path, run_cli: RunCli) -> None:
    """A network rounds a single row otherwise; chains, whose decisions hang on the last digits, do not pass any alone."""
    for batch_size in ("auto", 1):
        write(tmp_path, boxed(SHORT, limit=2, run={"batch_size": batch_size}))
        assert run_cli("estimate", "spec.yaml", "--out", f"run-{batch_size}").code == 0
    assert (tmp_path / "run-1" / "samples.csv").read_bytes() == (tmp_path / "run-auto" / "samples.csv").read_bytes()


def test_other_orders_under_the_same_name_are_refused(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, boxed(SHORT))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    write(tmp_path, boxed({"qnorm_path": {"q": [1, 10], "temperatures": 60, "steps": 3}}))
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run", "--extend")
    assert code == 2
    assert "qnorm_path" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("estimator", "noise", "words"),
    [
        ({"qnorm_path": {"q": 0}}, NOISE, "q[0]: got 0; must be greater than or equal to 0.000001"),
        ({"qnorm_path": {"q": [1, -2]}}, NOISE, "q[1]: got -2; must be greater than or equal to 0.000001"),
        ({"qnorm_path": {"temperatures": 9}}, NOISE, "got 9; must be greater than or equal to 12"),
        ("qnorm_path", [{"kind": "corruption", "name": "jpeg", "severity": [1]}], "it does the same to an image every time"),
        ("qnorm_mc", [{"kind": "uniform", "eps": 0}], "got 0; must be greater than 0"),
    ],
)
def test_what_cannot_work(tmp_path: Path, run_cli: RunCli, estimator: Any, noise: Any, words: str) -> None:
    write(tmp_path, boxed(estimator, noise=noise))
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["qnorm_path", "qnorm_mc"])
def test_images_without_labels(tmp_path: Path, run_cli: RunCli, name: str) -> None:
    save_npz(tmp_path / "data.npz", count=3)
    cost = {"temperatures": 60} if name == "qnorm_path" else {"samples": 20}
    sections = {"dataset": {"kind": "npz", "path": "data.npz", "labels_key": None}}
    write(tmp_path, boxed({name: cost}, **sections))
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 2
    assert f"has no labels, and {name} needs them; label it, or go by the class predicted" in err
    write(tmp_path, boxed({name: {**cost, "target": "predicted"}}, **sections))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0


def test_rows_without_a_value_leave_a_gate_undecided(tmp_path: Path, run_cli: RunCli) -> None:
    """Too few temperatures: the ways up and down differ, and the run goes on."""
    write(tmp_path, boxed({"qnorm_path": {"q": [1, 100], "temperatures": 20, "steps": 2}}))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    missing = [row for row in read_rows(tmp_path / "run") if row["interval"] == "no value"]
    assert missing
    assert all(row["note"].startswith("no value") and not row["lower"] and not row["std_error"] for row in missing)
    assert run_cli("gate", "run", "mean(estimator=qnorm_path, q=1) <= 1000").code == 4
