"""Mean corruption error against numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robaudit.levels import LevelName, NoiseLevel
from robaudit.stats.corruption import ALEXNET, Baseline, baseline_of, corruption_report, mce, mean_error, relative_mce
from robaudit.store.run import Run
from tests.curve_rows import noisy
from tests.radius_rows import run_of
from tests.rows import summarise

BASE = Baseline(0.1, {"fog": 0.5, "snow": 0.8})
MINE = {"fog": [0.1, 0.2, 0.3, 0.4, 0.5], "snow": [0.2, 0.2, 0.4, 0.4, 0.8]}  # means 0.3 and 0.4


def test_mean_error_by_hand() -> None:
    assert mean_error(MINE) == pytest.approx(0.35)


def test_mce_by_hand() -> None:
    found = mce(MINE, BASE)
    assert found.by_corruption == pytest.approx({"fog": 0.6, "snow": 0.5})
    assert found.value == pytest.approx(0.55)
    assert found.missing == ()


def test_relative_mce_by_hand() -> None:
    found = relative_mce(MINE, 0.05, BASE)  # (0.3 - 0.05) / (0.5 - 0.1) and (0.4 - 0.05) / (0.8 - 0.1)
    assert found.by_corruption == pytest.approx({"fog": 0.625, "snow": 0.5})
    assert found.value == pytest.approx(0.5625)


def test_it_is_the_ratio_of_sums() -> None:
    """CE_c is a ratio of sums over the severities, not a mean of ratios."""
    theirs = [0.2, 0.4, 0.5, 0.6, 0.8]
    found = mce({"fog": MINE["fog"]}, Baseline(0.1, {"fog": sum(theirs) / 5}))
    assert found.value == pytest.approx(sum(MINE["fog"]) / sum(theirs))
    assert found.value != pytest.approx(sum(a / b for a, b in zip(MINE["fog"], theirs, strict=True)) / 5)


def test_alexnet_is_one_by_itself() -> None:
    itself = {name: [error] * 5 for name, error in ALEXNET.mean.items()}
    assert mce(itself).value == pytest.approx(1)
    assert relative_mce(itself, ALEXNET.clean).value == pytest.approx(1)
    assert len(ALEXNET.mean) == 15
    assert mean_error(itself) == pytest.approx(0.78899307, abs=1e-8)  # (0.886428 + ... + 0.606500) / 15


def test_missing_corruptions_are_named() -> None:
    found = mce({"snow": MINE["snow"]}, BASE)
    assert found.missing == ("fog",)
    assert found.value == pytest.approx(0.5)
    assert set(mce({"fog": MINE["fog"]}).missing) == set(ALEXNET.mean) - {"fog"}


def test_a_network_without_errors() -> None:
    none = {"fog": [0.0] * 5}
    assert mce(none, BASE).value == 0
    assert relative_mce(none, 0.0, BASE).value == 0


@pytest.mark.parametrize(
    ("errors", "base", "words"),
    [
        ({}, BASE, "no corruption"),
        ({"rain": [0.1] * 5}, BASE, "no errors for 'rain'"),
        ({"fog": [0.1] * 4}, BASE, "4 severities, not 5"),
        ({"fog": [0.1] * 5}, Baseline(0.0, {"fog": 0.0}), "makes no errors"),
    ],
)
def test_what_has_no_value_is_refused(errors: dict[str, list[float]], base: Baseline, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mce(errors, base)


def test_a_baseline_that_does_not_grow_is_refused() -> None:
    with pytest.raises(ValueError, match="no more than"):
        relative_mce({"fog": [0.1] * 5}, 0.1, Baseline(0.5, {"fog": 0.5}))


# --- intervals over images


def corrupted(wrong: np.ndarray) -> Run:
    """A run of images (n, 5) with so many of five copies wrong at each severity of rain."""
    levels = [NoiseLevel("rain", float(level), LevelName.SEVERITY) for level in range(1, 6)]
    run = run_of([noisy(i, at, 5 - int(wrong[i, k])) for i in range(len(wrong)) for k, at in enumerate(levels)])
    found = [(group.key, group.noisy_accuracy) for group in summarise(run.rows)]
    entries = [{**key.document(), **accuracy.document()} for key, accuracy in found if accuracy is not None]
    return replace(run, info={**run.info, "noisy_accuracy": entries, "clean_accuracy": {"value": 1.0}})


def test_intervals_of_errors_are_over_images() -> None:
    wrong = np.random.default_rng(1).integers(0, 6, (40, 5))
    report = corruption_report(corrupted(wrong), against=("theirs", Baseline(0.1, {"rain": 0.8})))
    each = wrong.mean(1) / 5
    assert report.mean_error_interval is not None
    lower, upper = report.mean_error_interval
    assert (upper - lower) / 2 == pytest.approx(1.96 * each.std() / 40**0.5, rel=0.1)
    assert mean_error(report.errors) == pytest.approx(each.mean())
    assert report.against is not None
    absolute = report.against[1]
    assert absolute.interval == pytest.approx((lower / 0.8, upper / 0.8))
    assert absolute.intervals == {"rain": absolute.interval}
    assert tuple(report.document()["mce"]["interval"]) == absolute.interval


def test_a_baseline_of_the_same_images_is_paired() -> None:
    """A network that errs half as often on each image: the ratio is known exactly, however few images there are."""
    wrong = 2 * np.random.default_rng(1).integers(0, 3, (12, 5))
    base = corruption_report(corrupted(wrong))
    report = corruption_report(corrupted(wrong // 2), against=("theirs", baseline_of(base)))
    assert report.against is not None
    assert report.against[1].interval == pytest.approx((0.5, 0.5))
    apart = corruption_report(corrupted(wrong // 2), against=("theirs", replace(baseline_of(base), images=None))).against
    assert apart is not None
    assert apart[1].interval is not None
    assert apart[1].interval[0] < 0.45
