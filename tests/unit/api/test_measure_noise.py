"""robaudit.measure_noise: a noise from Python, and an audit under it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import robaudit
from robaudit.api.camera import MeasuredNoise
from robaudit.errors import RobauditError
from robaudit.spec.read import load_spec
from tests import scenes
from tests.cameras import Camera
from tests.golden import Golden
from tests.specs import digits, read_rows, write

CAMERA = Camera(noise="gaussian", sigma=0.1)
SCENE = scenes.flat(64, 64, grey=True)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shots of a grey wall."""
    (path,) = CAMERA.write(tmp_path_factory.mktemp("camera"), SCENE, 4, 0, "npy")
    return path


@pytest.fixture
def measured(stack: Path) -> MeasuredNoise:
    return robaudit.measure_noise(stack)


def test_the_noise_goes_into_an_audit(measured: MeasuredNoise, tmp_path: Path) -> None:
    assert measured.fits
    fitted, itself = measured.noise
    assert fitted["kind"] == "gaussian"
    assert Path(itself["file"]).is_absolute()
    spec = str(write(tmp_path, digits(limit=4)))
    run = robaudit.audit(spec, noise=measured.noise, out=tmp_path / "run")
    assert {row["noise"] for row in read_rows(run.path)} == {"shots", "shots_frames"}


def test_how_it_is_shown(measured: MeasuredNoise, tmp_path: Path) -> None:
    (noise,) = measured.noises
    assert noise.sigma.value == pytest.approx(0.1, rel=5 / np.sqrt(2 * 2 * 64 * 64))
    assert repr(measured) == f"<MeasuredNoise shots: gaussian, sigma {noise.sigma.value:.3g}>"
    assert str(measured).startswith("Noise of shots: 4 shots, 2 pairs used")
    assert measured.remarks == []
    (document,) = measured.document()["noises"]
    assert document["nearest"] == "gaussian"
    assert document["sigma"]["value"] == noise.sigma.value
    figure = measured.plot(tmp_path / "noise.svg", scene="shots")
    assert figure.get_size_inches()[0] > 5
    assert (tmp_path / "noise.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_files_last_as_long_as_the_result(stack: Path, tmp_path: Path) -> None:
    measured = robaudit.measure_noise(stack)
    assert measured.path.exists()
    (picture,) = measured.save_pictures()
    assert picture.exists()
    stored = robaudit.measure_noise(stack, out=tmp_path / "noise.yaml")
    assert stored.path == tmp_path / "noise.yaml"
    assert {path.name for path in tmp_path.iterdir()} == {"noise.yaml", "noise.npz"}
    del measured
    assert not picture.exists()


def test_shots_are_prepared(tmp_path: Path) -> None:
    scene = scenes.flat(64, 64)
    CAMERA.write(tmp_path / "shots", scene, 4, 0)
    spec = load_spec(
        write(
            tmp_path,
            digits(dataset={"kind": "images", "path": "shots", "crop": 32, "channels": 1}),
        )
    )
    of_keys = robaudit.measure_noise(tmp_path / "shots", crop=32, channels=1)
    of_spec = robaudit.measure_noise(tmp_path / "shots", spec=spec)
    assert of_keys.noises[0].channels == 1
    assert of_keys.noises[0].height == 32
    assert of_keys.document() == of_spec.document()


def test_mistakes(stack: Path, tmp_path: Path, measured: MeasuredNoise, golden: Golden) -> None:
    spec = write(tmp_path, digits())
    with golden.raises(RobauditError):
        robaudit.measure_noise(stack, spec=spec, resize=8)
    with golden.raises(RobauditError):
        robaudit.measure_noise(stack, settings=["dataset.limit=3"])
    with golden.raises(RobauditError):
        measured.plot(scene="bright")
    with golden.raises(RobauditError):
        measured.plot(tmp_path / "noise.gif")
    robaudit.measure_noise(stack, out=tmp_path / "noise.yaml")
    with golden.raises(RobauditError):
        robaudit.measure_noise(stack, out=tmp_path / "noise.yaml", overwrite=False)
    with golden.raises(RobauditError):
        robaudit.measure_noise(stack, out=tmp_path / "none" / "noise.yaml")
