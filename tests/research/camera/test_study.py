"""The study counts what it measures, goes on where it ended, and knows the truth of every
camera."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.camera_truth import closed_variance
from tests.research.camera import __main__ as command
from tests.research.camera import networks, page, study
from tests.research.camera.cases import (
    CASES,
    HEIGHT,
    NONE,
    WIDTH,
    curve_truth,
    scene_of,
    truths,
)
from tests.research.camera.measuring import Measured, measure, noises
from tests.research.camera.store import Store
from tests.research.camera.study import LEAST_RIGHT, Setting
from tests.shared import needs_shared

SERIES = 40


@pytest.mark.slow
@pytest.mark.parametrize("case", ["gaussian", "correlated"])
def test_intervals_cover(tmp_path: Path, case: str) -> None:
    setting = Setting(case, "gradient", 2)
    store = Store(tmp_path / "measured.jsonl")
    study.repeat(setting, SERIES, measure, store)
    found = [line for line in study.lines(setting, store) if line.interval.startswith("sigma")]
    assert [line.interval for line in found] == ["sigma[0]", "sigma[1]", "sigma[2]"]
    # All channels together: 120 intervals of 95 %.
    covered = sum(line.covered for line in found) / 3
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / (3 * SERIES))
    verdicts = study.verdicts(setting, store)
    assert verdicts is not None
    assert verdicts.share >= LEAST_RIGHT


def test_counts_of_what_was_measured(tmp_path: Path) -> None:
    answers = iter(
        [
            Measured({"photons": (9_900.0, 10_100.0)}, "sensor"),
            Measured({"photons": (10_100.0, 10_200.0)}, "none"),
            Measured({"photons": (9_999.0, 10_001.0)}, "sensor"),
        ]
    )
    setting = Setting("sensor, drift", "steps", 2)
    store = Store(tmp_path / "measured.jsonl")
    study.repeat(setting, 3, lambda _: next(answers), store)
    (line,) = study.lines(setting, store)
    assert (line.truth, line.cases, line.covered) == (10_000, 3, 2 / 3)
    verdicts = study.verdicts(setting, store)
    assert verdicts is not None
    assert verdicts.counts == {"none": 1, "sensor": 2}
    assert verdicts.share == 2 / 3
    page.write(tmp_path, [line], [verdicts], [])
    text = (tmp_path / "camera.md").read_text(encoding="utf-8")
    assert "| sensor, drift, steps, 2 shots | photons | 1e+04 | 1e+02 | 0.667 of 3 |" in text
    assert "| sensor, drift | **0.667** |" in text
    assert (
        "| sensor, drift | sensor | 0.667 | **0.667** (steps, 2 shots) | none 1, sensor 2 |" in text
    )
    assert json.loads((tmp_path / "camera.json").read_text())["verdicts"][0]["right"] == ["sensor"]


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    setting = Setting("gaussian", "flat", 2)
    path = tmp_path / "measured.jsonl"
    study.repeat(setting, 3, measure, Store(path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    seen: list[Path] = []

    def counted(folder: Path) -> Measured:
        seen.append(folder)
        return measure(folder)

    study.repeat(setting, 4, counted, Store(path))
    assert len(seen) == 2
    assert path.read_bytes().startswith(whole)
    assert len(Store(path).found) == 4


@pytest.mark.parametrize("name", CASES)
def test_truths(name: str) -> None:
    case = CASES[name]
    if case.right == (NONE,):
        assert closed_variance(case.camera, scene_of("texture")) is None
        return
    found = truths(case, "flat")
    assert all(np.isfinite(value) for value in found.values())
    assert 0 < found["sigma[0]"] < 0.1
    assert ("photons" in found) == ("sensor" in case.right or "poisson" in case.right)
    assert found["defects"] == (3 / (HEIGHT * WIDTH) if "defects" in name else 0)


@pytest.mark.slow
def test_the_truth_of_a_processed_camera() -> None:
    found = truths(CASES["raw, demosaiced"], "flat")
    # Before this scene red is the brightest, and blue the darkest.
    assert 0 < found["sigma[2]"] < found["sigma[0]"]
    # Half of the red values along a row are the mean of two neighbours.
    assert found["correlation(0,1)"] > 0.4
    assert abs(found["correlation(0,3)"]) < 0.05


def test_the_truth_of_a_curve() -> None:
    sensor = CASES["sensor"].camera
    assert sensor.photons is not None
    variance = curve_truth(CASES["sensor"], 0.3, 0)
    of_photons = 0.3 / sensor.photons + (sensor.read_noise / sensor.photons) ** 2
    assert variance == pytest.approx(of_photons + 1 / (12 * 255**2))
    assert curve_truth(CASES["phone, JPEG 75"], 0.3, 0) is None


def test_settings() -> None:
    found = study.settings("one shot moved")
    assert [setting.scene for setting in found] == ["steps", "gradient", "texture"]
    assert {setting.shots for setting in found} == {8}
    assert found[0].camera.moved == {4: (1.5, 0.5)}


def test_the_command(tmp_path: Path) -> None:
    arguments = ["series", "--out", str(tmp_path), "--repetitions", "1", "--only", "laplace"]
    command.main(arguments)
    text = (tmp_path / "camera.md").read_text(encoding="utf-8")
    assert "| laplace | laplace | 1.000 | 1.000 | laplace 6 |" in text


@needs_shared
def test_a_network_behind_a_camera() -> None:
    given = networks.subject("mnist_conv_small_nat", 20)
    camera = networks.camera_of("phone, JPEG 50", grey=True)
    shares = networks.under_camera(given, camera, draws=4)
    assert shares.shape == (20,)
    assert np.all((shares >= 0) & (shares <= 1))
    assert shares.mean() > 0.5
    robust = networks.under_noise(given, camera, {"kind": "gaussian", "sigma": 0.01}, draws=10)
    assert robust > 0.9


@needs_shared
def test_the_measured_noises_of_a_camera(tmp_path: Path) -> None:
    camera = networks.camera_of("gaussian", grey=False)
    camera.write(tmp_path / "shots", scene_of("texture"), 4, 0, "npy")
    found = noises(tmp_path / "shots", tmp_path / "noise.yaml")
    assert sorted(found) == ["frames", "gaussian"]
    assert found["frames"]["level"] == [1.0]
    assert found["gaussian"]["sigma"] == pytest.approx([camera.sigma], rel=0.05)
