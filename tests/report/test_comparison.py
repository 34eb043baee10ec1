"""How differences are printed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.report.numbers import change, change_interval


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((-0.014, -0.00004), "[-0.014, -0.00004]"),
        ((0.0, 0.0), "[0, 0]"),
        ((-0.0424, 0.0406), "[-0.043, +0.041]"),
        ((-math.inf, 0.25), "[..., +0.250]"),
        ((-1e-30, 1.0), "[-1e-30, +1.000]"),
    ],
)
def test_ends(ends: tuple[float, float], text: str) -> None:
    assert change_interval(*ends) == text


def test_without_an_interval() -> None:
    assert change(-0.02, None, None) == "~-0.0200"


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_ends_round_outwards_and_keep_their_side(a: float, b: float) -> None:
    lower, upper = min(a, b), max(a, b)
    low, high = (float(text) for text in change_interval(lower, upper).strip("[]").split(", "))
    slack = 1e-6 * 10**-3 + abs(lower) * 0.06 * (abs(lower) < 1e-9) + abs(upper) * 0.06 * (abs(upper) < 1e-9)
    assert low <= lower + slack
    assert high >= upper - slack
    for shown, end in ((low, lower), (high, upper)):
        assert (shown > 0, shown < 0) == (end > 0, end < 0)
