"""Errors under corruptions against numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robaudit.levels import LevelName, NoiseLevel
from robaudit.runs.run import Run
from robaudit.stats.corruption_error import corruption_report, mean_error
from robaudit.stats.summary import share
from tests.curve_rows import noisy
from tests.infos import changed
from tests.radius_rows import run_of
from tests.rows import summarise
from tests.unit.engine.tools import known


def corrupted(wrong: np.ndarray) -> Run:
    """A run of images (n, 5) with so many of five copies wrong at each severity of rain."""
    levels = [NoiseLevel("rain", float(level), LevelName.SEVERITY) for level in range(1, 6)]
    run = run_of(
        [
            noisy(i, at, 5 - int(wrong[i, k]))
            for i in range(len(wrong))
            for k, at in enumerate(levels)
        ]
    )
    found = [(group.key, group.noisy_accuracy) for group in summarise(run.rows)]
    entries = [
        {**key.document(), **accuracy.document()} for key, accuracy in found if accuracy is not None
    ]
    return replace(
        run, info=changed(run.info, noisy_accuracy=entries, clean_accuracy=share(1, 1).document())
    )


def test_mean_error_by_hand() -> None:
    assert mean_error(
        {"fog": [0.1, 0.2, 0.3, 0.4, 0.5], "snow": [0.2, 0.2, 0.4, 0.4, 0.8]}
    ) == pytest.approx(0.35)


def test_intervals_of_errors_are_over_images() -> None:
    wrong = np.random.default_rng(1).integers(0, 6, (40, 5))
    report = corruption_report(corrupted(wrong))
    each = wrong.mean(1) / 5
    lower, upper = known(known(report.mean_error).bounds)
    assert (upper - lower) / 2 == pytest.approx(1.96 * each.std() / 40**0.5, rel=0.1)
    assert mean_error(report.errors) == pytest.approx(each.mean())
    assert report.mean_errors()["rain"] == report.mean_error
