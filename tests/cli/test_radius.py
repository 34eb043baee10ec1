"""Runs without noise: radii of the digits, resumed and extended, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import digits, read_info, read_rows, write

ATTACK: dict[str, Any] = {"radius_attack": {"steps": 5, "restarts": 1, "polish": 5}}
RANDOM: dict[str, Any] = {"radius_random": {"directions": 60, "norm": "l2"}}


def without_noise(*estimators: Any, **sections: Any) -> dict[str, Any]:
    return digits(**{"noise": None, "estimators": list(estimators), **sections})


def test_radii_of_the_digits(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, without_noise(ATTACK, RANDOM, "difficulty"))
    outcome = run_cli("estimate", "spec.yaml", "--out", "run")
    assert outcome.code == 0
    assert "radius_attack:norm=l2" in outcome.out
    assert "no noise, higher is better" in outcome.out
    found = {(row["sample_id"], row["estimator"]): row for row in read_rows(tmp_path / "run")}
    assert len(found) == 8 * 4
    for (sample, name), row in found.items():
        assert (row["noise"], row["level_name"], row["level"]) == ("none", "none", "0.0")
        if name.startswith("radius"):
            assert (row["quantity"], row["interval"], row["lower"], row["upper"]) == ("radius", "upper bound", "0.0", row["value"])
            assert row["flips_to"] not in ("", row["predicted"])
            near, far = (float(found[sample, f"{one}:norm=l2"]["value"]) for one in ("radius_attack", "radius_random"))
            assert float(found[sample, "radius_attack:norm=linf"]["value"]) < near < far
    assert run_cli("verify", "run", "--samples", "all").out.startswith("32 rows of 8 samples recomputed: all as written, bit for bit\n")
    for command in (["report", "run"], ["bias-report", "run"], ["flag-samples", "run", "--bottom", "3"], ["show", "run", "scores"]):
        assert run_cli(*command).code == 0
    assert run_cli("gate", "run", "mean(estimator=radius_attack, norm=l2) <= 100").code == 0
    assert run_cli("gate", "run", "mean(estimator=radius_attack, norm=linf) >= 1").code == 1


def test_neither_the_chunk_nor_the_batch_changes_a_bit(tmp_path: Path, run_cli: RunCli) -> None:
    """Extended from three images to eight, and at once with another batch size."""
    write(tmp_path, without_noise(ATTACK, RANDOM, limit=3))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    write(tmp_path, without_noise(ATTACK, RANDOM))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend").code == 0
    write(tmp_path, without_noise(ATTACK, RANDOM, run={"batch_size": 16}))
    assert run_cli("estimate", "spec.yaml", "--out", "once").code == 0
    assert (tmp_path / "run" / "samples.csv").read_bytes() == (tmp_path / "once" / "samples.csv").read_bytes()


def test_noise_joins_a_run_without(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, without_noise("difficulty"))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert read_info(tmp_path / "run")["noise"].startswith("none; ")
    write(tmp_path, digits(estimators=["difficulty", {"mc": {"samples": 20}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend").code == 0
    assert {(row["estimator"], row["noise"]) for row in read_rows(tmp_path / "run")} == {("difficulty", "none"), ("mc", "gaussian")}


def test_a_cap_below_every_flip(tmp_path: Path, run_cli: RunCli) -> None:
    write(tmp_path, without_noise({"radius_attack": {"cap": 0.001}}, {"radius_random": {"cap": 0.001, "directions": 20}}))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    for row in read_rows(tmp_path / "run"):
        assert (row["value"], row["interval"], row["lower"], row["upper"], row["flips_to"]) == ("0.001", "censored", "0.0", "", "")
    assert run_cli("report", "run").code == 0
    assert run_cli("gate", "run", "mean(estimator=radius_attack, norm=l2) <= 0.5").code != 0


def test_a_share_of_the_steps_may_be_searched_within_the_pixels_alone(tmp_path: Path, run_cli: RunCli) -> None:
    free, clipped = dict(ATTACK["radius_attack"], label="free"), dict(ATTACK["radius_attack"], label="clipped", clip=True)
    write(tmp_path, without_noise({"radius_attack": {**free, "norm": "l2"}}, {"radius_attack": {**clipped, "norm": "l2"}}))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    rows = read_rows(tmp_path / "run")
    by_name = {name: [float(row["value"]) for row in rows if row["estimator"].startswith(name)] for name in ("free", "clipped")}
    assert sum(by_name["free"]) < sum(by_name["clipped"]), "more room, smaller perturbations"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (without_noise("radius_exact"), "is not linear, and radius_exact needs it to be: its graph has the operation"),
        (without_noise("mc"), "the key 'noise' is missing, and mc needs it"),
        (without_noise({"radius_attack": {"noise": "gaussian"}}), "radius_attack; noise: it uses no noise"),
        (without_noise({"radius_attack": {"cap": 0}}), "cap: got 0; must be greater than or equal to 0.000001"),
        (without_noise({"radius_attack": {"norm": "l1"}}), "norm"),
        (without_noise({"radius_attack": {"norm": ["l2", "l2"]}}), "give each norm once"),
        (digits(noise={"sigma": [0.1], "name": "none"}), "is called 'none', the word for results without noise"),
        (digits(noise={"sigma": []}), "sigma: is empty, and mc needs a level"),
    ],
)
def test_refused(document: dict[str, Any], says: str, tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, document)
    line = refuse("estimate", "spec.yaml", "--out", "run")
    for part in says.split("; "):
        assert part in line


def test_a_validation_needs_a_noise_level(tmp_path: Path, refuse: Refuse) -> None:
    write(tmp_path, without_noise("difficulty"))
    refuse("validate", "spec.yaml", says="none of its estimators has a noise level")
