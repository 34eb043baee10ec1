"""Mean corruption error against numbers computed by hand."""

from __future__ import annotations

import pytest

from robaudit.stats.corruption import ALEXNET, Baseline, mce, mean_error, relative_mce

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
