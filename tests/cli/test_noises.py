"""A run under several noises, from the spec to every command that reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robaudit import audit
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_rows, write

NOISES = [
    {"sigma": [0.1, 0.3]},
    {"name": "night", "kind": "sensor", "photons": [5, 50], "read_noise": 2},
    {"kind": "corruption", "name": ["fog", "contrast"], "severity": [1, 5]},
    {"kind": "laplace", "sigma": 0.3, "clip": True},
]
ESTIMATORS = [
    {"mc": {"draws": 40}},
    "logit_gaussian",
    {"mmse": {"draws": 4, "noise": ["gaussian", "laplace"]}},
]
LEVELS = 9
COUNT = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of eight digits."""
    folder = tmp_path_factory.mktemp("noises")
    return audit(
        write(folder, digits(limit=COUNT, noise=NOISES, estimators=ESTIMATORS)), out=folder / "run"
    ).path


def test_rows_have_a_label_and_a_named_level(run: Path) -> None:
    found = read_rows(run)
    assert len(found) == COUNT * (2 * LEVELS + 3)
    order = list(dict.fromkeys((row["noise"], row["level_name"], row["level"]) for row in found))
    assert order[:4] == [
        ("gaussian", "sigma", "0.1"),
        ("gaussian", "sigma", "0.3"),
        ("night", "photons", "5.0"),
        ("night", "photons", "50.0"),
    ]
    assert len(order) == LEVELS
    assert {row["noise"] for row in found if row["estimator"] == "mmse"} == {"gaussian", "laplace"}
    assert {row["interval"] for row in found if row["noise"] == "contrast"} == {"exact"}


def test_a_noise_beside_others_gives_the_rows_that_it_gives_alone(
    run: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    without_mmse = ("--estimator", "mc", "--estimator", "logit_gaussian")
    for name in ("night", "laplace"):
        outcome = run_cli(
            "estimate",
            run.parent / "spec.yaml",
            "--out",
            "alone",
            "--noise",
            name,
            "-q",
            *without_mmse,
        )
        assert outcome.code == 0, outcome.err
        alone = read_rows(tmp_path / "alone")
        beside = [row for row in read_rows(run) if row["noise"] == name]
        estimators = {row["estimator"] for row in alone}
        assert alone == [row for row in beside if row["estimator"] in estimators]
        for file in (tmp_path / "alone").iterdir():
            file.unlink()


@pytest.mark.parametrize(
    ("noise", "estimator"), [(None, "difficulty"), ({"sigma": []}, "noise_tolerance")]
)
def test_preview_of_no_noise_or_no_level_is_refused(
    tmp_path: Path, run_cli: RunCli, noise: object, estimator: str, refuse: Refuse
) -> None:
    write(tmp_path, digits(limit=2, noise=noise, estimators=[estimator]))
    refuse("plot", "spec.yaml", "--kind", "noise", "-o", "grid.svg")
    assert (
        run_cli(
            "plot",
            "spec.yaml",
            "--kind",
            "noise",
            "-o",
            "grid.svg",
            "--set",
            "noise.sigma=0.1",
            "--max-images",
            "1",
        ).code
        == 0
    )


def test_preview(run: Path, tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    outcome = run_cli(
        "plot", run.parent / "spec.yaml", "--kind", "noise", "-o", "all.svg", "--max-images", "1"
    )
    assert outcome.code == 0, outcome.err
    whole = (tmp_path / "all.svg").read_text()
    assert all(
        f">{text}<" in whole or text in whole
        for text in ("night (sensor), photons", "fog (corruption), severity", "gaussian, sigma")
    )
    outcome = run_cli(
        "plot",
        run.parent / "spec.yaml",
        "--kind",
        "noise",
        "-o",
        "one.svg",
        "--noise",
        "night",
        "--level",
        "7",
    )
    assert outcome.code == 0, outcome.err
    assert "fog" not in (tmp_path / "one.svg").read_text()
    for options in (
        ["-o", "x.jpg"],
        ["-o", "x.png", "--noise", "rain"],
        ["-o", "x.png", "--noise", "fog", "--level", "6"],
        ["-o", "x.png", "--max-images", "9"],
    ):
        refuse("plot", run.parent / "spec.yaml", "--kind", "noise", *options)


def test_a_published_corrupted_set(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    """Arrays like CIFAR-10-C's, of the run's own images: accuracy under the files' corruption is
    counted from the files."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (6, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "clean.npz", images=images, labels=np.arange(6))
    (tmp_path / "set").mkdir()
    copies = np.concatenate([images] * 5)[..., None]
    copies[-6:] = 255 - copies[-6:]  # severity 5
    np.save(tmp_path / "set" / "snow.npy", copies)
    np.save(tmp_path / "set" / "labels.npy", np.tile(np.arange(6), 5))
    noise = {"kind": "corrupted_set", "name": "snow", "path": "set", "severity": [1, 2, 3, 4, 5]}
    spec = write(
        tmp_path,
        digits(dataset={"kind": "npz", "path": "clean.npz"}, noise=noise, estimators=["mc"]),
    )
    assert run_cli("estimate", spec, "--out", "run", "-q").code == 0
    found = read_rows(tmp_path / "run")
    assert {row["value"] for row in found if row["level"] != "5.0"} == {"1.0"}
    copies[0] = 0
    np.save(tmp_path / "set" / "snow.npy", copies)
    refused = run_cli("estimate", spec, "--out", "run", "--limit", "3", "--extend")
    assert refused.code == 2
    golden.lines(refused.err)
    assert run_cli("verify", "run").code == 2
    np.save(tmp_path / "set" / "labels.npy", np.tile(np.arange(6)[::-1], 5))
    other = run_cli("estimate", spec, "--out", "other")
    assert other.code == 2
    golden.lines(other.err)
