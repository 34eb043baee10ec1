"""The measurement of simulated cameras: intervals hold what the cameras are, and the right kind of
noise is found."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from robaudit.camera.measure import measure
from robaudit.camera.pairs import Finding
from robaudit.camera.result import CameraNoise
from robaudit.errors import DataError
from robaudit.estimates import Estimate
from robaudit.spec.model import ImageOptions
from tests import scenes
from tests.camera_truth import closed_variance
from tests.cameras import Camera, Floats, drift

SEED = 3
SHARE_OF_NOISE = 0.005**2 / (0.005**2 + 1 / (12 * 255**2))
"""Of the variance of rounded noise."""
ERRORS = 4.0
"""Standard errors that an estimate may be off."""
SENSOR = Camera(photons=10_000, read_noise=36.0)
PHONE = Camera(photons=1500, read_noise=4.0, bayer=True, encoding="srgb", jpeg=75)


def lit(name: str) -> Floats:
    """A scene in which no noise of these tests reaches black or white."""
    scene = scenes.steps(128, 160) if name == "steps" else scenes.texture(128, 160)
    return 0.05 + 0.8 * scene


def measured(folder: Path, camera: Camera, scene: Floats, shots: int = 4) -> CameraNoise:
    (path,) = camera.write(folder, scene, shots, SEED, "npy")
    (noise,) = measure(path, ImageOptions(kind="images").of_photos())
    return noise


def holds(estimate: Estimate, truth: float) -> bool:
    """Whether an estimate is within four standard errors of the truth."""
    assert estimate.bounds is not None
    lower, upper = estimate.bounds
    # t with 15 degrees of freedom: half of an interval of 95 % is 2.13 standard errors.
    error = (upper - lower) / 2 / 2.13
    return abs(estimate.value - truth) <= ERRORS * error


ONE_RIGHT = {
    "gaussian": Camera(noise="gaussian", sigma=0.005),
    "gaussian, half a step": Camera(noise="gaussian", sigma=0.002),
    "gaussian_scaled": Camera(noise="gaussian", sigma=(0.0025, 0.005, 0.004)),
    "gaussian_correlated": Camera(noise="correlated", sigma=0.005, length=1.2),
    "gaussian_correlated, shared": Camera(noise="correlated", sigma=0.005, length=0.8, shared=True),
    "laplace": Camera(noise="laplace", sigma=0.005),
    "speckle": Camera(noise="speckle", sigma=0.03, bits=16),
    "poisson": Camera(photons=3000),
    "sensor": SENSOR,
}


@pytest.mark.parametrize("scene", ["steps", "texture"])
@pytest.mark.parametrize("name", ONE_RIGHT)
def test_the_right_kind(tmp_path: Path, name: str, scene: str) -> None:
    camera = ONE_RIGHT[name]
    noise = measured(tmp_path, camera, lit(scene))
    assert noise.fits
    assert noise.nearest == name.split(",", maxsplit=1)[0]
    variance = closed_variance(camera, lit(scene))
    assert variance is not None
    for sigma, truth in zip(noise.by_channel, variance.mean((0, 1)), strict=True):
        assert holds(sigma, math.sqrt(truth))
    assert holds(noise.kurtosis, 3 * SHARE_OF_NOISE**2 if camera.noise == "laplace" else 0.0)
    for lag in noise.neighbours:
        apart = (lag.down**2 + lag.across**2) / (2 * camera.length**2)
        is_correlated = camera.noise == "correlated"
        assert holds(lag.correlation, SHARE_OF_NOISE * math.exp(-apart) if is_correlated else 0.0)


def test_rounding_does_not_shorten_correlated_noise(tmp_path: Path) -> None:
    camera = Camera(noise="correlated", sigma=0.003, length=1.2)
    noise = measured(tmp_path, camera, lit("texture"))
    assert noise.length is not None
    assert holds(noise.length, 1.2)
    # Rounding has an eighth of the variance: a neighbour's correlation is less by as much.
    assert noise.neighbours[0].correlation.upper is not None
    assert noise.neighbours[0].correlation.upper < math.exp(-1 / (2 * 1.2**2))
    assert noise.nearest == "gaussian_correlated"


@pytest.mark.parametrize("bits", [8, 16])
def test_photons_and_read_noise(tmp_path: Path, bits: Literal[8, 16]) -> None:
    noise = measured(tmp_path, replace(SENSOR, bits=bits), lit("texture"))
    assert noise.bits == bits
    assert noise.linear is not None
    assert holds(noise.linear.photons, 10_000)
    assert holds(noise.linear.read_noise, 36)


def test_the_curve_of_a_chart(tmp_path: Path) -> None:
    # Each step is one point, also at the edge of two bins; heavy tails reach over it.
    camera = Camera(noise="laplace", sigma=0.005)
    noise = measured(tmp_path, camera, lit("steps"), shots=2)
    assert len(noise.curve) == 12 * 3
    truth = 0.005**2 + 1 / (12 * 255**2)
    assert all(holds(point.variance, truth) for point in noise.curve)


def test_light_that_drifts(tmp_path: Path) -> None:
    camera = replace(SENSOR, exposure=drift(6, 0.1))
    noise = measured(tmp_path, camera, lit("texture"), shots=6)
    assert [remark.finding for remark in noise.remarks] == [Finding.DRIFT]
    assert noise.nearest == "sensor"
    assert noise.linear is not None
    assert holds(noise.linear.photons, 10_000)


@pytest.mark.parametrize("scene", ["steps", "texture"])
def test_one_shot_that_moved(tmp_path: Path, scene: str) -> None:
    camera = replace(SENSOR, moved={2: (1.5, 0.5)})
    noise = measured(tmp_path, camera, lit(scene), shots=6)
    found = [(remark.finding, remark.shots) for remark in noise.remarks]
    assert found == [(Finding.MOVED, (3, 4))]
    assert noise.pairs == 2
    assert noise.nearest == "sensor"


def test_a_scene_that_always_moves(tmp_path: Path) -> None:
    camera = replace(SENSOR, moved={place: (1.5 * place, 0.0) for place in range(4)})
    with pytest.raises(DataError, match="moves"):
        measured(tmp_path, camera, lit("texture"))


def test_defects_and_fixed_pattern(tmp_path: Path) -> None:
    places = ((11, 7), (50, 63), (80, 24), (100, 100))
    camera = replace(SENSOR, prnu=0.01, dsnu=0.002, hot=places[:2], dead=places[2:])
    scene = np.full((128, 160, 3), 0.4)
    noise = measured(tmp_path, camera, scene, shots=8)
    assert noise.defective is not None
    assert noise.defective.value * 128 * 160 == pytest.approx(4, rel=0.5)
    assert holds(noise.fixed_pattern, math.hypot(0.002, 0.01 * 0.4))


@pytest.mark.parametrize("quality", [95, 75, 50])
def test_no_kind_is_right_for_a_phone(tmp_path: Path, quality: int) -> None:
    noise = measured(tmp_path, replace(PHONE, jpeg=quality), lit("texture"), shots=8)
    assert not noise.fits


def test_neighbours_across_the_blocks_of_jpeg(tmp_path: Path) -> None:
    # The blocks of the measurement end where those of JPEG do, and neighbours across count too.
    camera = replace(PHONE, jpeg=50)
    noise = measured(tmp_path, camera, lit("texture"), shots=8)
    shots = [camera.shot(lit("texture"), place, SEED + 1) / 255 for place in range(80)]
    differences = np.diff(shots, axis=0)[::2]
    product = (differences[:, :, 1:] * differences[:, :, :-1]).mean()
    assert (noise.neighbours[0].down, noise.neighbours[0].across) == (0, 1)
    assert holds(noise.neighbours[0].correlation, float(product / np.square(differences).mean()))


def test_a_dark_spot_in_a_bright_block(tmp_path: Path) -> None:
    # The noise of the bright part would reach black from there, and that of the spot does not.
    scene = np.full((128, 160, 3), 0.6)
    scene[4::16, 4::16] = scene[5::16, 4::16] = scene[4::16, 5::16] = scene[5::16, 5::16] = 0.05
    noise = measured(tmp_path, Camera(photons=1000), scene)
    assert noise.remarks == ()
