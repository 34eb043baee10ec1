"""The file of a measured noise is a part of a spec that can be read, whatever the scenes are
called; the noise beside it is that of the shots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robaudit.camera.measure import measure
from robaudit.camera.noise_file import (
    entries,
    files_of,
    names_of,
    refuse_existing,
    write_noise,
)
from robaudit.camera.result import CameraNoise
from robaudit.errors import RunError
from robaudit.noise.installed import build
from robaudit.spec.model import ImageOptions, NoiseSpec
from robaudit.spec.read import load_spec
from tests import scenes
from tests.cameras import Camera
from tests.golden import Golden
from tests.specs import digits, write
from tests.unit.camera.shooting import CAMERA, TEXTURE

GRADIENT = 0.1 + 0.7 * scenes.gradient(64, 96, grey=True)
ERRORS = 5  # standard errors


def measured(folder: Path, camera: Camera = CAMERA, count: int = 6) -> CameraNoise:
    camera.write(folder / "shots", GRADIENT, count, 0)
    (noise,) = measure(folder / "shots", ImageOptions(kind="images").of_photos())
    return noise


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> CameraNoise:
    return measured(tmp_path_factory.mktemp("camera"))


def test_names_are_each_once(noise: CameraNoise) -> None:
    written = ["a b", "a-b", "A b", "x", "x_frames", "none", "gaussian", "***", "n" * 90, "日本"]
    names = names_of([replace(noise, name=name) for name in written])
    assert names == [
        "a-b",
        "a-b-2",
        "A-b-3",
        "x",
        "x_frames-2",
        "none-2",
        "gaussian-2",
        "camera",
        "n" * 40,
        "日本",
    ]


@pytest.mark.parametrize(
    "name", ["desk", "none", "gaussian", "on", "no", "1e5", "日本", "a: b #c\n"]
)
@pytest.mark.parametrize("fits", [True, False])
def test_the_file_is_part_of_a_spec(
    name: str, fits: bool, noise: CameraNoise, tmp_path: Path
) -> None:
    named = replace(noise, name=name, fits=fits)
    two = (named, replace(named, name=f"{name}!"))
    write_noise(tmp_path / "noise.yaml", two, ["Measured", "first", "second"])
    spec = load_spec(write(tmp_path, digits(noise="noise.yaml")))
    expected = []
    for one, slug, file in zip(
        two, names_of(two), files_of(tmp_path / "noise.yaml", two), strict=True
    ):
        expected += entries(one, slug, file.name)
    read = [entry.model_dump(exclude_none=True) for entry in spec.noise]
    wanted = [NoiseSpec.model_validate(entry).model_dump(exclude_none=True) for entry in expected]
    assert read == wanted
    assert [entry.kind for entry in spec.noise][:2] == (
        [noise.nearest, "frames"] if fits else ["frames", "frames"]
    )
    for process in build(spec.noise, tmp_path):
        process.check("0", (1, 8, 8), [])


def test_levels_are_half_once_and_twice_the_measured_one(noise: CameraNoise) -> None:
    fitted, itself = entries(noise, "desk", "noise.npz")
    assert fitted["kind"] in ("poisson", "sensor")
    level = noise.fit.level
    assert fitted["photons"] == pytest.approx([2 * level, level, level / 2], rel=1e-3)
    assert itself["level"] == [1.0]
    (alone,) = entries(replace(noise, fits=False), "desk", "noise.npz")
    assert alone["level"] == [0.5, 1.0, 2.0]


def test_the_noise_itself(noise: CameraNoise, tmp_path: Path) -> None:
    path = tmp_path / "noise.yaml"
    write_noise(path, [noise], ["Measured", "desk"])
    with np.load(tmp_path / "noise.npz") as file:
        frames = file["frames"].astype(float)
        brightness = file["brightness"]
        variance = file["variance"]
    assert frames.shape == (3, 1, 64, 96)
    assert abs(np.square(frames).mean() - 1) < ERRORS * np.sqrt(2 / frames.size)
    # within the measured brightnesses, that of the camera
    inside = (brightness > 0.2) & (brightness < 0.7)
    truth = brightness / 2000 + (5 / 2000) ** 2 + 1 / (12 * 255**2)
    assert np.allclose(variance[0, inside], truth[inside], rtol=0.2)
    # beyond them, along the line of the camera
    assert variance[0, 0] < 0.2 * variance[0, -1]
    assert (variance > 0).all()


def test_left_out_blocks_get_the_noise_of_others(tmp_path: Path) -> None:
    light = TEXTURE.copy()
    light[48:80, 48:80] = 1.2
    CAMERA.write(tmp_path / "shots", light, 4, 0)
    found = measure(tmp_path / "shots", ImageOptions(kind="images").of_photos())
    write_noise(tmp_path / "noise.yaml", found, ["Measured", "desk"])
    with np.load(tmp_path / "noise.npz") as file:
        filled = file["frames"][..., 48:80, 48:80].astype(float)
    assert abs(np.square(filled).mean() - 1) < ERRORS * np.sqrt(2 / filled.size)


def test_existing_files(noise: CameraNoise, tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "noise.yaml"
    two = [noise, replace(noise, name="other")]
    refuse_existing(path, two)
    for name in ("noise.yaml", "noise-shots.npz", "noise-other.png"):
        (tmp_path / name).write_text("precious")
        with golden.raises(RunError):
            refuse_existing(path, two)
        (tmp_path / name).unlink()
