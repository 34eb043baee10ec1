"""Noise on image files, from the spec to the commands that read the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import nn

from robaudit import audit
from robaudit.errors import SpecError
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_rows, write

COUNT = 4
NOISES = [
    {"sigma": [0.3]},
    {"at": "file", "sigma": [0.3, 1.0]},
    {"kind": "corruption", "name": "jpeg", "at": "file", "severity": 5},
]


def photos(folder: Path) -> dict[str, Any]:
    """Large photos of two classes, for a network of 8 x 8 grey pixels."""
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        path = folder / "photos" / str(i % 2) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        coarse.resize((64 + i, 48), Image.Resampling.BICUBIC).save(path)
    return {
        "kind": "images",
        "path": "photos",
        "resize": 10,
        "crop": 8,
        "channels": 1,
        "class_names": [str(i) for i in range(10)],
    }


def spec(folder: Path, **sections: Any) -> Path:
    """A spec with noise on the input and on the files."""
    document = digits(dataset=photos(folder), noise=NOISES, **sections)
    return write(folder, document)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run."""
    folder = tmp_path_factory.mktemp("files")
    estimators = [{"mc": {"draws": 40}}, {"logit_gaussian": {"draws": 16}}]
    audit(spec(folder, estimators=estimators), out=folder / "run")
    return folder


def test_rows_and_output_say_where_the_noise_is(run: Path) -> None:
    rows = read_rows(run)
    labels = dict.fromkeys(row["noise"] for row in rows)
    assert list(labels) == ["gaussian", "gaussian_file", "jpeg_file"]
    info = json.loads((run / "run.json").read_text())
    assert info["noise"].startswith(
        "gaussian noise added to pixels in [0, 1] after resize 10 and crop 8, not clipped; "
        "gaussian_file (gaussian) on the decoded file's pixels in [0, 1] before resize 10 and "
        "crop 8; jpeg_file"
    )


def test_the_file_averages_noise_away(run: Path) -> None:
    """The same sigma is less noise for the network where the resize averages it."""
    means = {
        noise: np.mean(
            [
                float(row["value"])
                for row in read_rows(run)
                if (row["noise"], row["level"], row["estimator"]) == (noise, "0.3", "mc")
            ]
        )
        for noise in ("gaussian", "gaussian_file")
    }
    assert means["gaussian_file"] > means["gaussian"] + 0.1


def test_the_rows_do_not_depend_on_the_batches(run: Path, tmp_path: Path) -> None:
    estimators = [{"mc": {"draws": 40}}]
    again = audit(
        tmp_path / "spec.yaml", out=tmp_path / "again", estimators=estimators, batch_size=3
    )
    values = [row["value"] for row in read_rows(run) if row["estimator"] == "mc"]
    assert [row["value"] for row in read_rows(again.path)] == values


def test_verify_and_pictures_read_the_files_again(run: Path, run_cli: RunCli) -> None:
    outcome = run_cli("verify", run)
    assert outcome.code == 0, outcome.err
    assert "32 rows of 4 samples recomputed: all as written" in outcome.out
    outcome = run_cli("flag-samples", run, "--images", "worst")
    assert outcome.code == 0, outcome.err
    outcome = run_cli("plot", "spec.yaml", "--kind", "noise", "-o", "noise.png")
    assert outcome.code == 0, outcome.err


def test_more_samples_of_the_same_files(run: Path, run_cli: RunCli) -> None:
    two = ("estimate", "spec.yaml", "--out", "two")
    assert run_cli(*two, "--limit", "2").code == 0
    assert run_cli(*two, "--limit", str(COUNT), "--extend").code == 0
    values = [row["value"] for row in read_rows(run)]
    assert [row["value"] for row in read_rows(Path("two"))] == values


@pytest.mark.parametrize("estimator", ["splitting", "taylor", "qnorm_path", "certified_radius"])
def test_estimators_of_the_input_refuse_files(
    estimator: str, tmp_path: Path, refuse: Refuse
) -> None:
    spec(tmp_path)
    refuse("estimate", "spec.yaml", "--estimator", estimator)


BAD = {
    "clip": {"at": "file", "sigma": 0.1, "clip": True},
    "slip": {"at": "flie", "sigma": 0.1},
    "level": {"at": "file", "sigma": 8},
}


@pytest.mark.parametrize("noise", BAD.values(), ids=list(BAD))
def test_bad_noise(noise: dict[str, Any], tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, digits(dataset=photos(tmp_path), noise=noise)))


def test_data_without_files_are_refused(tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, digits(noise={"at": "file", "sigma": 0.1})))


def test_samples_in_memory_have_no_files(golden: Golden) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with golden.raises(SpecError):
        audit(net, [(np.zeros((1, 2, 2)), 0)], noise={"at": "file", "sigma": 0.1})
