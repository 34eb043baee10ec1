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
from tests.research.camera.cases import CASES, NONE, SCENES, scene_of, truths
from tests.research.camera.measuring import Measured, measure
from tests.research.camera.store import Store
from tests.research.camera.study import Setting
from tests.shared import needs_shared

SERIES = 40


def test_pairs_cover_independent_noise(tmp_path: Path) -> None:
    setting = Setting("gaussian", "gradient", 2)
    store = Store(tmp_path / "measured.jsonl")
    study.repeat(setting, SERIES, measure, store)
    lines = {line.interval: line for line in study.lines(setting, store)}
    assert sorted(lines) == ["sigma[0]", "sigma[1]", "sigma[2]"]
    # All channels together: 120 intervals of 95 %.
    covered = sum(line.covered for line in lines.values()) / 3
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / (3 * SERIES))


def test_pairs_do_not_cover_correlated_noise(tmp_path: Path) -> None:
    setting = Setting("correlated", "flat", 2)
    store = Store(tmp_path / "measured.jsonl")
    study.repeat(setting, SERIES, measure, store)
    found = [line for line in study.lines(setting, store) if line.interval.startswith("sigma")]
    covered = sum(line.covered for line in found) / 3
    assert covered < 0.95 - 4 * math.sqrt(0.95 * 0.05 / (3 * SERIES))


def test_counts_of_what_was_measured(tmp_path: Path) -> None:
    answers = iter(
        [
            Measured({"photons": (1400.0, 1600.0)}, "sensor"),
            Measured({"photons": (1600.0, 1700.0)}, "none"),
            Measured({"photons": (1499.0, 1501.0)}, "sensor"),
        ]
    )
    setting = Setting("sensor, drift", "steps", 2)
    store = Store(tmp_path / "measured.jsonl")
    study.repeat(setting, 3, lambda _: next(answers), store)
    (line,) = study.lines(setting, store)
    assert (line.truth, line.cases, line.covered) == (1500, 3, 2 / 3)
    verdicts = study.verdicts(setting, store)
    assert verdicts is not None
    assert verdicts.counts == {"none": 1, "sensor": 2}
    assert verdicts.share == 2 / 3
    page.write(tmp_path, [line], [verdicts], [])
    text = (tmp_path / "camera.md").read_text(encoding="utf-8")
    assert "| sensor, drift, steps, 2 shots | photons | 1500 | 1e+02 | 3 | **0.667** |" in text
    assert "| sensor, drift, steps, 2 shots | sensor | **0.667** | none 1, sensor 2 |" in text
    assert json.loads((tmp_path / "camera.json").read_text())["verdicts"][0]["right"] == "sensor"


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
    found = truths(case, "flat")
    assert all(np.isfinite(value) for value in found.values())
    assert 0 < found["sigma[0]"] < 0.1
    assert ("photons" in found) == (case.right in ("poisson", "sensor"))
    for scene in ("steps", "gradient", "texture"):
        closed = closed_variance(case.camera, scene_of(scene))
        # A pattern may bring single photosites near black.
        assert (closed is not None) == (case.right != NONE and "patterns" not in name), scene
    assert found["defects"] == (3 / 96**2 if "defects" in name else 0)


def test_settings() -> None:
    found = study.settings("one shot moved")
    assert len(found) == 2 * len(SCENES)
    assert min(setting.shots for setting in found) == 8
    assert found[0].camera.moved == {4: (1.5, 0.5)}


def test_the_command(tmp_path: Path) -> None:
    arguments = ["series", "--out", str(tmp_path), "--repetitions", "1", "--only", "laplace"]
    command.main(arguments)
    text = (tmp_path / "camera.md").read_text(encoding="utf-8")
    assert text.count("laplace, texture, 50 shots") == 3


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
