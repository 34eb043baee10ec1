"""`robaudit estimate`: every option, what it prints, and what it leaves on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from robaudit.runs.rows import TABLE_COLUMNS
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import WEIGHTS, digits, read_rows, save_npz, write


def info(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def levels(run: Path) -> list[tuple[str, str]]:
    """(estimator, level) in the order of the rows of the first sample."""
    return [
        (row["estimator"], row["level"])
        for row in read_rows(run)
        if row["sample_id"] == read_rows(run)[0]["sample_id"]
    ]


def test_folder_of_a_finished_run(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    spec = digits(
        noise={"sigma": [0.1, "51/255"]},
        estimators=[{"mc": {"draws": 20}}, "taylor_mvs", "softmax"],
    )
    code, out, err = run_cli("estimate", write(tmp_path, spec), "--out", "run")
    assert code == 0
    assert "clean accuracy  100.0% [63.0%, 100.0%] (8 of 8;" in out
    assert "Files: run/samples.csv, samples.json, summary.json, run.json" in out
    assert run_cli("show", "run") == (0, out, "")
    golden.lines(err)
    run = tmp_path / "run"
    found = read_rows(run)
    assert tuple(found[0]) == TABLE_COLUMNS
    assert all(
        row[f"{which}_name"] == row[which]
        for row in found
        for which in ("label", "predicted", "flips_to")
    ), "digits name themselves"
    assert len(found) == 8 * 2 * 3
    assert levels(run) == [
        (name, sigma) for sigma in ("0.1", "0.2") for name in ("mc", "taylor_mvs", "softmax")
    ]
    about = info(run)
    assert (about["schema_version"], about["status"], about["seed"]) == (2, "complete", 0)
    assert about["model"]["sha256"] == hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    assert about["clean_accuracy"]["value"] == 1.0
    assert [
        (entry["noise"], entry["level_name"], entry["level"]) for entry in about["noisy_accuracy"]
    ] == [
        ("gaussian", "sigma", 0.1),
        ("gaussian", "sigma", 0.2),
    ]
    assert (
        about["totals"]["forwards"]
        == sum(int(row["forwards"]) for row in found)
        == 8 * 2 * (21 + 2 + 1)
    )
    assert about["totals"]["backwards"] == 8 * 2 * 9
    steps = (
        f"{name}@gaussian:sigma={sigma}"
        for name in ("mc", "taylor_mvs", "softmax")
        for sigma in (0.1, 0.2)
    )
    assert set(about["seconds"]) == {"clean", *steps}
    assert about["versions"]["torch"]
    assert about["data"]["samples"] == 8
    samples = json.loads((run / "samples.json").read_text())["rows"]
    assert [(row["sample_id"], row["estimator"]) for row in samples] == [
        (row["sample_id"], row["estimator"]) for row in found
    ]
    assert all(
        sum(row["votes"]["counts"].values()) == 20 for row in samples if row["estimator"] == "mc"
    )
    assert len(json.loads((run / "summary.json").read_text())["groups"]) == 6


def test_default_folder_and_estimator(tmp_path: Path, run_cli: RunCli) -> None:
    spec = digits(limit=1)
    del spec["estimators"]
    assert run_cli("estimate", write(tmp_path, spec, "my.yaml"), "--set", "mc.draws=32").code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == f"my-{info(run)['identity'][:8]}"
    assert levels(run) == [("mc", "0.2")]


def test_options_replace_what_the_spec_says(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(estimators=[{"mc": {"draws": 20}}, {"mmse_mvs": {"draws": 4}}]))
    options = [
        "--sigma",
        "0.3",
        "--sigma",
        "1/10",
        "--estimator",
        "softmax",
        "--estimator",
        "mmse_mvs",
        "--set",
        "mmse_mvs.draws=6",
    ]
    outcome = run_cli(
        "estimate", spec, "--out", "run", *options, "--limit", 3, "--seed", 7, "--device", "cpu"
    )
    assert outcome.code == 0
    assert levels(tmp_path / "run") == [
        ("softmax", "0.3"),
        ("mmse_mvs", "0.3"),
        ("softmax", "0.1"),
        ("mmse_mvs", "0.1"),
    ]
    about = info(tmp_path / "run")
    assert (
        run_cli("estimate", spec, "--out", "other", *options, "--limit", 3, "--seed", 8).code == 0
    )
    assert read_rows(tmp_path / "other") != read_rows(tmp_path / "run"), (
        "another seed is other noise"
    )
    assert (about["data"]["samples"], about["seed"], about["spec"]["run"]["device"]) == (
        3,
        7,
        "cpu",
    )
    assert about["spec"]["estimators"][1] == {
        "name": "mmse_mvs",
        "label": "mmse_mvs",
        "noise": [],
        "options": {"draws": 6},
    }
    assert {row["forwards"] for row in read_rows(tmp_path / "run")} == {"1", "7"}


def test_quiet_says_nothing_but_warnings(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    spec = write(tmp_path, digits(limit=64))
    assert run_cli("estimate", spec, "--out", "a", "--quiet") == (0, "", "")
    code, out, err = run_cli(
        "estimate", spec, "--out", "b", "-q", "--set", "model.std=0.01", "--set", "model.mean=0.99"
    )
    assert (code, out) == (0, "")
    golden.lines(err)


@pytest.fixture
def damaged_folder(tmp_path: Path) -> dict[str, Any]:
    """A data set of twenty images of which the first and another are damaged."""
    for number in range(10):
        (tmp_path / "digits" / str(number)).mkdir(parents=True)
        for copy in range(2):
            Image.new("L", (8, 8), 20 * number).save(
                tmp_path / "digits" / str(number) / f"{copy}.png"
            )
    for name in ("0/0.png", "3/1.png"):
        (tmp_path / "digits" / name).write_bytes(b"damaged")
    return {"kind": "images", "path": "digits", "channels": 1}


def test_on_error_skip_lists_and_counts(
    tmp_path: Path, damaged_folder: dict[str, Any], run_cli: RunCli, golden: Golden
) -> None:
    code, out, err = run_cli(
        "estimate",
        write(tmp_path, digits(dataset=damaged_folder)),
        "--out",
        "run",
        "--on-error",
        "skip",
    )
    assert code == 0
    golden.lines(err)
    assert "2 skipped" in out
    about = info(tmp_path / "run")
    assert [skip["sample_id"] for skip in about["skipped"]] == ["0/0.png", "3/1.png"]
    golden(about["skipped"][0]["reason"])
    assert (
        about["totals"]["samples"],
        about["totals"]["skipped"],
        len(read_rows(tmp_path / "run")),
    ) == (18, 2, 18)


def test_the_home_folder_in_an_option(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell expands it there."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run_cli("estimate", write(tmp_path, digits(limit=2)), "--out=~/run").code == 0
    assert (tmp_path / "home" / "run" / "samples.csv").is_file()
    assert not (tmp_path / "~").exists()
    assert run_cli("show", "~/run", "--output=~/levels.csv", "--format", "csv").code == 0
    assert (tmp_path / "home" / "levels.csv").is_file()


@pytest.mark.parametrize("kind", ["images", "csv"])
def test_photos_that_are_turned_upright_get_a_note(
    kind: str, tmp_path: Path, run_cli: RunCli
) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(4):
        image = Image.new("L", (8, 8), 50 * i)
        image.getexif()[0x0112] = 1 if i == 0 else 6
        image.save(tmp_path / "photos" / f"{i}.jpg", exif=image.getexif())
    rows = "".join(f"photos/{i}.jpg,{i}\n" for i in range(4))
    (tmp_path / "list.csv").write_text("path,label\n" + rows)
    path = "photos" if kind == "images" else "list.csv"
    dataset = {"kind": kind, "path": path, "channels": 1}
    _, _, err = run_cli("estimate", write(tmp_path, digits(dataset=dataset)), "--out", "run")
    assert "3 of the first 4 images are turned upright by their EXIF orientation" in err


def sizes(folder: Path, others: int) -> Path:
    """A spec of twenty photos, this many of them of another size than the first."""
    rng = np.random.default_rng(0)
    for i in range(20):
        side = 9 if i >= 20 - others else 8
        path = folder / "photos" / str(i % 10) / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(path)
    return write(folder, digits(dataset={"kind": "images", "path": "photos", "channels": 1}))


def test_other_sizes_are_cropped_and_not_skipped(
    tmp_path: Path, run_cli: RunCli, refuse: Refuse
) -> None:
    assert "skip" not in refuse("estimate", sizes(tmp_path, 17))
    cropped = ("--set", "dataset.resize=8", "--set", "dataset.crop=8", "--out", "cropped")
    assert run_cli("estimate", "spec.yaml", *cropped).code == 0


@pytest.mark.parametrize(
    ("others", "allowed", "code"), [(2, "skip", 0), (3, "skip", 2), (3, "0.2", 0)]
)
def test_more_than_a_tenth_skipped_is_a_failure(
    others: int, allowed: str, code: int, tmp_path: Path, run_cli: RunCli
) -> None:
    command = ("estimate", sizes(tmp_path, others), "--out", "run", "--on-error", allowed)
    outcome = run_cli(*command)
    assert outcome.code == code
    assert ("3 of 20 samples skipped, more than 10%" in outcome.err) == (code == 2)
    # Also of a run that is there already: it may have been made with a larger share.
    assert run_cli(*command).code == code
    assert run_cli(*command[:-1], "0.2").code == 0
    assert run_cli(*command).code == code


def test_every_sample_skipped_after_the_start_is_exit_5(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    save_npz(tmp_path / "x.npz", labels=[11, 12, 13, 14])
    spec = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}))
    code, out, err = run_cli("estimate", spec, "--out", "run", "--on-error", "1")
    assert (code, out) == (5, "")
    golden.lines(err)
    assert not (tmp_path / "run" / "samples.csv").exists()
