"""The simulated cameras are what they say: moments, patterns, demosaicing, files, seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import camera_truth, scenes
from tests.camera_truth import LAGS, Value
from tests.cameras import Box, Camera, Floats, Suffix, drift, flicker, from_srgb, to_srgb

ERRORS = 5  # standard errors
SENSOR = Camera(photons=2000, read_noise=12.0)


def shots(camera: Camera, scene: Floats, count: int, seed: int = 1) -> Floats:
    """(count, height, width, ...), in [0, 1]."""
    series = [camera.shot(scene, number, seed) / camera.largest for number in range(count)]
    return np.stack(series)


def simulated(camera: Camera, scene: Floats) -> Value:
    """The deviation by many shots, also where there is a closed form."""
    return camera_truth.deviation(camera, scene, seen=lambda shot: shot)


@pytest.mark.parametrize(
    "camera",
    [
        SENSOR,
        Camera(photons=20_000, bits=16),
        Camera(photons=2000, read_noise=12.0, prnu=0.02, dsnu=0.004),
        Camera(noise="gaussian", sigma=(0.01, 0.02, 0.03)),
        Camera(noise="gaussian", sigma=0.01, bits=16),
        Camera(noise="laplace", sigma=0.01),
        Camera(noise="speckle", sigma=0.05, bits=16),
        Camera(noise="correlated", sigma=0.02, length=1.5, shared=True),
        Camera(photons=3000, noise="gaussian", sigma=0.01),
    ],
)
def test_closed_forms_are_what_many_shots_have(camera: Camera) -> None:
    scene = 0.2 + 0.6 * scenes.gradient(32, 32)
    closed = camera_truth.deviation(camera, scene)
    assert not closed.error.any()
    found = simulated(camera, scene)
    assert np.all(np.abs(found.value - closed.value) < ERRORS * found.error)
    means = shots(camera, scene, 64).mean(axis=(0, 1, 2))
    errors = closed.value / np.sqrt(64 * 32 * 32)
    patterns = camera.noiseless(scene).mean(axis=(0, 1)) / camera.largest
    # Neighbours with correlated noise are worth one pixel in 4 pi length^2.
    worth = 4 * np.pi * camera.length**2 if camera.noise == "correlated" else 1.0
    of_rounding = 1 / (camera.largest * np.sqrt(12 * 32 * 32))
    assert np.all(
        np.abs(means - patterns) < ERRORS * np.hypot(errors * np.sqrt(worth), of_rounding)
    )


def test_the_variance_of_each_brightness() -> None:
    levels = (0.1, 0.5, 0.8)
    means, variances = camera_truth.curve(SENSOR, levels, grey=True)
    expected = np.array(levels) / 2000 + (12 / 2000) ** 2 + 1 / (12 * 255**2)
    assert np.allclose(variances[:, 0], expected)
    assert np.all(np.abs(means[:, 0] - levels) < ERRORS * np.sqrt(expected / (16 * 64 * 64)))


@pytest.mark.parametrize(
    "camera",
    [
        Camera(photons=2000, read_noise=12.0, encoding="gamma"),
        Camera(photons=2000, bayer=True),
        Camera(photons=2000, blur=0.7),
        Camera(photons=2000, jpeg=75),
        Camera(photons=255),  # every count is a whole value: rounding adds nothing
        Camera(photons=20, read_noise=10.0),
    ],
)
def test_no_closed_form(camera: Camera) -> None:
    assert camera_truth.closed_variance(camera, scenes.flat(16, 16)) is None


def test_a_power_stretches_the_noise_by_its_slope() -> None:
    camera = Camera(photons=50_000, encoding="gamma", bits=16)
    scene = scenes.flat(32, 32, 0.4, grey=True)
    slope = 0.4 ** (1 / 2.2 - 1) / 2.2
    found = camera_truth.deviation(camera, scene)
    assert abs(found.value[0] - slope * np.sqrt(0.4 / 50_000)) < ERRORS * found.error[0]


def test_demosaicing_keeps_a_constant_and_a_plane() -> None:
    camera = Camera(bayer=True, bits=16)
    constant = scenes.flat(11, 14, (0.2, 0.5, 0.7))
    plane = scenes.gradient(12, 15) * np.array([0.5, 1.0, 0.8])
    whole = np.rint(constant * 65535)
    assert np.array_equal(camera.noiseless(constant), whole)
    inner = np.s_[1:-1, 1:-1]
    # the mean of rounded values is rounded again nowhere: values differ by float rounding alone
    assert np.max(np.abs(camera.noiseless(plane)[inner] - plane[inner] * 65535)) <= 0.5 + 1e-6


def test_demosaicing_averages_neighbours() -> None:
    """Variances by the number of samples that are averaged: red has 1, 2, 2 and 4 samples at the
    four places, green 1, 4, 4 and 1."""
    camera = Camera(photons=2000, bayer=True, bits=16)
    # The edge mirrors what is inside, so some of its values are means of fewer samples.
    scene = scenes.flat(68, 68, 0.4)
    found = camera_truth.deviation(camera, scene, seen=lambda shot: shot[2:-2, 2:-2])
    of_one = 0.4 / 2000
    red = of_one * (1 + 1 / 2 + 1 / 2 + 1 / 4) / 4
    green = of_one * (1 + 1 / 4 + 1 / 4 + 1) / 4
    expected = np.sqrt([red, green, red])
    assert np.all(np.abs(found.value - expected) < ERRORS * found.error)


def test_correlations_of_demosaiced_noise() -> None:
    """Lags in closed form: the overlap of the kernels of green at neighbours."""
    found = camera_truth.correlation(Camera(photons=2000, bayer=True, bits=16))
    # Green samples and means of four alternate: variances 1 and 1/4. A sample is a quarter of its
    # neighbour's mean; diagonal samples share nothing, diagonal means two of four samples; means at
    # two pixels share one of four.
    green = {(0, 1): 1 / 4, (1, 0): 1 / 4, (1, 1): 1 / 16, (0, 2): 1 / 32, (2, 0): 1 / 32}
    for lag, shared in green.items():
        value = found.lags[lag].value[1]
        assert abs(value - shared / (5 / 8)) < ERRORS * found.lags[lag].error[1], lag
    # Red and blue share no photosite with green.
    apart = np.abs(found.channels - np.eye(3))
    assert np.all(apart < ERRORS * found.channels_error + 1e-12)


@pytest.mark.parametrize("length", [0.8, 2.0])
@pytest.mark.parametrize("shared", [False, True])
def test_correlations_of_the_standard_noise(length: float, shared: bool) -> None:
    camera = Camera(noise="correlated", sigma=0.02, length=length, shared=shared, bits=16)
    found = camera_truth.correlation(camera)
    for lag in LAGS:
        expected = np.exp(-(lag[0] ** 2 + lag[1] ** 2) / (2 * length**2))
        value = found.lags[lag]
        assert np.all(np.abs(value.value - expected) < ERRORS * value.error), lag
    expected_channels = np.ones((3, 3)) if shared else np.eye(3)
    apart = np.abs(found.channels - expected_channels)
    # between rounded values the correlation of the same noise is a little less than 1
    assert np.all(apart < ERRORS * found.channels_error + 1e-6)


@pytest.mark.parametrize(
    ("noise", "excess"), [("gaussian", 0.0), ("laplace", 3.0), ("speckle", 0.0)]
)
def test_tails(noise: str, excess: float) -> None:
    camera = Camera(noise=noise, sigma=0.02, bits=16)  # type: ignore[arg-type]
    found = camera_truth.excess_kurtosis(camera)
    assert np.all(np.abs(found.value - excess) < ERRORS * found.error)


def test_patterns_are_the_same_in_all_shots() -> None:
    camera = Camera(prnu=0.05, dsnu=0.01, pattern_seed=3, bits=16)
    scene = scenes.flat(128, 128, 0.5, grey=True)
    first = camera.shot(scene, 0, 1)
    assert np.array_equal(first, camera.shot(scene, 1, 2))
    spread = np.std(first / 65535)
    expected = np.hypot(0.5 * 0.05, 0.01)
    assert abs(spread - expected) < ERRORS * expected / np.sqrt(2 * 128 * 128)
    other = Camera(prnu=0.05, dsnu=0.01, pattern_seed=4, bits=16)
    assert not np.array_equal(first, other.shot(scene, 0, 1))


def test_defects_are_stuck_and_spread_by_demosaicing() -> None:
    scene = scenes.texture(24, 24)
    camera = Camera(photons=500, hot=((4, 6),), dead=((15, 3),))
    series = shots(camera, scene, 4)
    assert np.all(series[:, 4, 6] == 1.0)
    assert np.all(series[:, 15, 3] == 0.0)
    found = camera_truth.defective(camera, scene)
    assert sorted(zip(*np.nonzero(found), strict=True)) == [(4, 6), (15, 3)]
    mosaic = Camera(photons=500, hot=((4, 6),), bayer=True)
    spread = camera_truth.defective(mosaic, scene)
    # a red photosite gives to the red of its eight neighbours
    assert spread.sum() == 9
    assert spread[3:6, 5:8].all()


def test_defects_are_no_part_of_the_deviation() -> None:
    scene = scenes.flat(16, 16, 0.5)
    places = tuple((row, 3) for row in range(16))
    healthy = camera_truth.deviation(SENSOR, scene)
    with_defects = Camera(photons=2000, read_noise=12.0, hot=places)
    assert np.array_equal(camera_truth.deviation(with_defects, scene).value, healthy.value)


def test_saturation() -> None:
    scene = scenes.flat(32, 32, 0.9)
    camera = Camera(photons=1000, full_well=0.6)
    assert np.all(camera.shot(scene, 0, 1) == 153)


def test_drift_and_flicker() -> None:
    scene = scenes.flat(64, 64, 0.5, grey=True)
    camera = Camera(photons=5000, exposure=drift(5, 0.1), bits=16)
    means = shots(camera, scene, 6).mean(axis=(1, 2))
    factors = np.array([0.95, 0.975, 1.0, 1.025, 1.05, 1.0])
    errors = np.sqrt(0.5 * factors / 5000) / 64
    assert np.all(np.abs(means - 0.5 * factors) < ERRORS * errors)
    factors_of_light = np.array(flicker(4000, 0.02, seed=1))
    assert abs(factors_of_light.std() - 0.02) < ERRORS * 0.02 / np.sqrt(8000)
    assert abs(factors_of_light.mean() - 1) < ERRORS * 0.02 / np.sqrt(4000)


def test_a_shot_that_moved() -> None:
    scene = scenes.texture(40, 48, grey=True)
    camera = Camera(moved={1: (2.0, -1.0), 2: (0.5, 0.0)}, bits=16)
    still = camera.shot(scene, 0, 1).astype(float)
    moved = camera.shot(scene, 1, 1).astype(float)
    assert np.array_equal(moved[:-1, 2:], still[1:, :-2])
    halfway = camera.shot(scene, 2, 1).astype(float)
    between = (still[:, 1:] + still[:, :-1]) / 2
    assert np.max(np.abs(halfway[:, 1:] - between)) <= 1.0
    assert np.array_equal(camera.shot(scene, 3, 1), camera.shot(scene, 0, 1))


def test_a_shot_that_is_covered() -> None:
    scene = scenes.texture(40, 48)
    camera = Camera(covered={1: Box(top=5, left=7, height=10, width=4)})
    changed = (camera.shot(scene, 0, 1) != camera.shot(scene, 1, 1)).any(axis=2)
    assert changed[5:15, 7:11].mean() > 0.9
    changed[5:15, 7:11] = False
    assert not changed.any()


def test_shots_have_their_own_noise() -> None:
    scene = scenes.flat(16, 16)
    first = SENSOR.shot(scene, 0, 1)
    assert np.array_equal(first, SENSOR.shot(scene, 0, 1))
    assert not np.array_equal(first, SENSOR.shot(scene, 1, 1))
    assert not np.array_equal(first, SENSOR.shot(scene, 0, 2))


def read(path: Path) -> Floats:
    """All values of the file of a shot, or of a stack."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return np.asarray(arrays["images"], dtype=np.float64)
    if path.suffix == ".npy":
        return np.asarray(np.load(path), dtype=np.float64)
    with Image.open(path) as image:
        return np.asarray(image, dtype=np.float64)


@pytest.mark.parametrize(
    ("suffix", "camera", "grey"),
    [
        ("png", SENSOR, False),
        ("tiff", SENSOR, False),
        ("png", Camera(photons=2000, bits=16), True),
        ("tiff", Camera(photons=2000, bits=16), True),
        ("jpeg", Camera(photons=2000, jpeg=75), False),
        ("jpeg", Camera(photons=2000, jpeg=50), True),
        ("png", Camera(photons=2000, jpeg=95), False),
        ("npy", Camera(photons=2000, bits=16), False),
        ("npz", SENSOR, True),
    ],
)
def test_files_hold_the_shots(tmp_path: Path, suffix: Suffix, camera: Camera, grey: bool) -> None:
    scene = scenes.texture(24, 32, grey=grey)
    paths = camera.write(tmp_path / "shots", scene, 3, seed=7, suffix=suffix)
    assert sorted((tmp_path / "shots").iterdir()) == paths
    series = [read(path) for path in paths]
    found = series[0] if suffix in ("npy", "npz") else np.stack(series)
    expected = np.stack([camera.shot(scene, number, 7) for number in range(3)])
    assert np.array_equal(found, expected)


def test_what_cannot_be() -> None:
    scene = scenes.flat(4, 4)
    with pytest.raises(ValueError, match="no 16-bit colour"):
        Camera(bits=16).write(Path("unused"), scene, 2, 1)
    with pytest.raises(ValueError, match="quality"):
        Camera().write(Path("unused"), scene, 2, 1, suffix="jpeg")
    with pytest.raises(ValueError, match="needs photons"):
        Camera(read_noise=2.0)
    with pytest.raises(ValueError, match="8 bits"):
        Camera(bits=16, jpeg=90)


@pytest.mark.parametrize("grey", [False, True])
def test_scenes_are_within_black_and_white(grey: bool) -> None:
    shape = (30, 50) if grey else (30, 50, 3)
    made = [
        scenes.flat(30, 50, grey=grey),
        scenes.steps(30, 50, grey=grey),
        scenes.gradient(30, 50, grey=grey),
        scenes.texture(30, 50, grey=grey),
        scenes.texture(30, 50, "flower", grey=grey),
    ]
    for scene in made:
        assert scene.shape == shape
        assert scene.min() >= scenes.DARKEST - 1e-12
        assert scene.max() <= scenes.BRIGHTEST + 1e-12
    assert len(np.unique(made[1])) == 12
    clipped = scenes.texture(60, 90, clipped=True)
    assert np.mean(clipped == 0.0) > 0.01
    assert np.mean(clipped == 1.0) > 0.01


def test_the_curve_of_srgb() -> None:
    light = np.linspace(0, 1, 101)
    assert np.allclose(from_srgb(to_srgb(light)), light)
    assert np.isclose(to_srgb(np.array(0.2140411)), 0.5, atol=1e-6)
