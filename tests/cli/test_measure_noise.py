"""robaudit measure-noise: from a folder of shots to a noise that the other commands take."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from robaudit.report import pictures
from robaudit.spec.read import load_spec
from tests import scenes
from tests.cameras import Camera
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import digits, read_rows, tree, write

CAMERA = Camera(photons=300, read_noise=4.0)
GRADIENT = 0.2 + 0.5 * scenes.gradient(64, 64, grey=True)


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Six shots of a grey scene."""
    CAMERA.write(tmp_path / "shots", GRADIENT, 6, 0)
    return tmp_path / "shots"


@pytest.fixture
def gains(tmp_path: Path) -> Path:
    """Two folders of shots, at two gains."""
    CAMERA.write(tmp_path / "gains" / "iso 100", GRADIENT, 4, 0)
    Camera(photons=60, read_noise=4.0).write(tmp_path / "gains" / "iso-100", GRADIENT, 4, 0)
    return tmp_path / "gains"


def finite(value: object) -> bool:
    """Whether JSON holds finite numbers alone."""
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def test_a_noise_and_its_table(shots: Path, tmp_path: Path, run_cli: RunCli) -> None:
    output = tmp_path / "noise.yaml"
    outcome = run_cli("measure-noise", shots, "-o", output)
    assert outcome.code == 0, outcome.err
    assert "Noise of shots: 6 shots, 3 pairs used, 1 x 64 x 64 pixels of 8 bits" in outcome.out
    assert "fits." in outcome.out
    assert f"--noise {output}" in outcome.err
    assert sorted(tree(tmp_path)) == sorted(
        ["noise.npz", "noise.png", "noise.yaml", "shots", *(f"shots/{n:04d}.png" for n in range(6))]
    )
    with Image.open(tmp_path / "noise.png") as picture:
        assert picture.width > 500


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_no_lonely_pieces(
    width: int, shots: Path, tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = run_cli("measure-noise", shots, "-o", tmp_path / "noise.yaml").out
    assert max(map(len, out.splitlines())) <= width
    (head,) = (line for line in out.splitlines() if line.startswith("kind "))
    assert head.split() == ["kind", "score", "+-", "what", "it", "misses"]


def test_the_noise_goes_into_an_audit(shots: Path, tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(estimators=[{"mc": {"draws": 16}}]))
    assert run_cli("measure-noise", shots, "--spec", spec, "-o", tmp_path / "noise.yaml").code == 0
    run = tmp_path / "run"
    outcome = run_cli("estimate", spec, "--set", "noise=noise.yaml", "-o", run, "-q")
    assert outcome.code == 0, outcome.err
    noises = {(row["noise"], float(row["level"])) for row in read_rows(run)}
    assert {noise for noise, _ in noises} == {"shots", "shots_frames"}
    assert len(noises) == 4


def test_json(gains: Path, tmp_path: Path, run_cli: RunCli) -> None:
    outcome = run_cli("measure-noise", gains, "-o", tmp_path / "n.yaml", "--format", "json", "-q")
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert finite(document)
    first, second = document["noises"]
    assert [first["name"], second["name"]] == ["iso 100", "iso-100"]
    photons = first["linear"]["photons"]
    # A half of a 95 % interval is two standard errors.
    error = (photons["upper"] - photons["lower"]) / 4
    assert abs(photons["value"] - 300) < 5 * error
    assert second["sigma"]["lower"] > first["sigma"]["upper"]


def test_scenes_of_one_name(gains: Path, tmp_path: Path, run_cli: RunCli) -> None:
    outcome = run_cli("measure-noise", gains, "-o", tmp_path / "n.yaml")
    assert outcome.code == 0, outcome.err
    assert {name for name in tree(tmp_path) if name.startswith("n")} == {
        "n.yaml",
        "n-iso-100.npz",
        "n-iso-100.png",
        "n-iso-100-2.npz",
        "n-iso-100-2.png",
    }
    assert "differ in noise at the same brightness" in outcome.out
    spec = load_spec(write(tmp_path, digits(noise="n.yaml")))
    names = ["iso-100", "iso-100_frames", "iso-100-2", "iso-100-2_frames"]
    assert [noise.name for noise in spec.noise] == names


def test_files_of_scenes_are_not_overwritten(
    gains: Path, tmp_path: Path, refuse: Refuse, run_cli: RunCli
) -> None:
    (tmp_path / "n-iso-100-2.npz").write_bytes(b"precious")
    refuse("measure-noise", gains, "-o", tmp_path / "n.yaml")
    outcome = run_cli("measure-noise", gains, "-o", tmp_path / "n.yaml", "--force", "-q")
    assert outcome.code == 0
    assert (tmp_path / "n-iso-100-2.npz").read_bytes() != b"precious"


def test_refused_outputs(shots: Path, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "old.yaml").write_text("precious")
    (tmp_path / "older.npz").write_bytes(b"precious")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "file.npz").mkdir()
    refuse("measure-noise", shots, "-o", tmp_path / "noise.json")
    refuse("measure-noise", shots, "-o", tmp_path / "old.yaml")
    refuse("measure-noise", shots, "-o", tmp_path / "older.yaml")
    refuse("measure-noise", shots, "-o", tmp_path / "folder.yaml", "--force")
    refuse("measure-noise", shots, "-o", tmp_path / "file.yaml", "--force")
    refuse("measure-noise", shots, "-o", tmp_path / "no" / "noise.yaml")


def test_refused_inputs(shots: Path, tmp_path: Path, refuse: Refuse) -> None:
    output = tmp_path / "noise.yaml"
    refuse("measure-noise", tmp_path / "nowhere", "-o", output)
    refuse("measure-noise", shots, "-o", output, "--set", "dataset.resize=8")
    refuse("measure-noise", shots, "-o", output, "--spec", tmp_path / "none.yaml")
    # A shot in the middle is broken: nothing of the others is written.
    (shots / "0003.png").write_bytes(b"no image")
    refuse("measure-noise", shots, "-o", output)
    # A stranger's file name steers no terminal.
    (shots / "0003.png").rename(shots / "0003\x1b[31m.png")
    assert "\x1b" not in refuse("measure-noise", shots, "-o", output)


def photos(tmp_path: Path, **options: Any) -> Path:
    """A spec whose data are image files."""
    dataset = {"kind": "images", "path": "photos", "class_names": [str(i) for i in range(10)]}
    return write(tmp_path, digits(dataset={**dataset, **options}))


def test_shots_are_prepared_as_the_spec_says(shots: Path, tmp_path: Path, run_cli: RunCli) -> None:
    spec = photos(tmp_path, resize=32, crop=16, channels=1)
    command = ("measure-noise", shots, "--spec", spec, "--format", "json", "-q", "-o")
    small = json.loads(run_cli(*command, tmp_path / "small.yaml").out)["noises"][0]
    assert (small["height"], small["width"]) == (16, 16)
    assert "(resize: 32, crop: 16)" in (tmp_path / "small.yaml").read_text()
    changed = run_cli(*command, tmp_path / "tiny.yaml", "--set", "dataset.crop=8").out
    assert json.loads(changed)["noises"][0]["height"] == 8


def test_a_spec_without_image_files(shots: Path, tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits())
    outcome = run_cli("measure-noise", shots, "--spec", spec, "-o", tmp_path / "noise.yaml")
    assert outcome.code == 0
    assert "the shots are measured as they are" in outcome.err


def test_without_matplotlib(
    shots: Path, tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "can_draw", lambda **_: False)
    outcome = run_cli("measure-noise", shots, "-o", tmp_path / "noise.yaml")
    assert outcome.code == 0
    assert "note: no picture" in outcome.err
    assert not (tmp_path / "noise.png").exists()
    assert (tmp_path / "noise.npz").exists()


def test_remarks_are_notes(tmp_path: Path, run_cli: RunCli) -> None:
    exposure = tuple(1 - 0.02 * number for number in range(24))
    camera = Camera(photons=300, read_noise=4.0, exposure=exposure)
    camera.write(tmp_path / "shots", GRADIENT, 24, 0)
    err = run_cli("measure-noise", tmp_path / "shots", "-o", tmp_path / "noise.yaml").err
    (line,) = (line for line in err.splitlines() if "pairs of shots" in line)
    assert "(1 and 2, 3 and 4, ...): left out, the brightness changes by up to" in line
