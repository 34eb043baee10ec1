"""Numbers of a report claim no more than was measured; thumbnails hold what they say."""

from __future__ import annotations

import base64
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robaudit.quantities import LOG10_P_FAIL, P_ROBUST
from robaudit.report import numbers
from robaudit.report.html.cards import thumbnail
from robaudit.stats.summary import Mean, Quantile

shares = st.floats(0, 1)


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@given(st.tuples(shares, shares, shares).map(sorted))
def test_intervals_round_outwards(ends: list[float]) -> None:
    lower, value, upper = ends
    low, high = numbers_in(numbers.interval(lower, upper))
    assert low <= lower + 1e-9
    assert high >= upper - 1e-9
    low, high = numbers_in(numbers.percents(lower, upper))
    assert low <= 100 * lower + 1e-7
    assert high >= 100 * upper - 1e-7
    text = numbers.percent(value, lower, upper)
    assert text.endswith("%")
    if lower < 1 - 1e-6 and not text.startswith(("<", ">")):
        assert text not in ("100%", "100.0%") or value == 1


def test_words_for_ends() -> None:
    assert numbers.with_percents(1.0, 0.9996, 1.0) == "100.00% [99.96%, 100.00%]"
    assert numbers.with_percents(0.0, 0.0, 0.03621) == "0.0% [0.0%, 3.7%]"
    assert numbers.with_percents(0.5463, 0.42, 0.67) == "54.6% [42.0%, 67.0%]"
    assert numbers.with_percents(0.5463, 0.42, 0.67, tight=True) == "54.6% [42,67]"
    assert numbers.interval(float("-inf"), -12.0) == "at most -12.000"
    assert numbers.interval(np.float64(-1e-15), np.float64(0.25)) == "0.000 to 0.250"
    assert numbers.interval(None, None) == numbers.percents(None, None) == "–"
    assert numbers.number(0.5, None, None, P_ROBUST) == "~0.500"


def test_without_intervals_the_end_of_the_range_is_no_measured_bound() -> None:
    """Every value of taylor may be 1.0: the spread over images is 0, and says nothing of its error."""
    one = Mean(1.0, 0.755, 1.0, None, None, None, "none")
    assert numbers.mean(one, P_ROBUST, marked=True) == "~1.000"
    assert numbers.mean_percent(one, marked=True) == "~100.0%"
    assert numbers.mean(replace(one, value=0.9), P_ROBUST, marked=True) == "~0.900"
    assert numbers.mean(replace(one, measured_lower=0.98, measured_upper=1.0), P_ROBUST) == "1.000"


def test_a_bound_at_the_end_of_the_range_is_a_dash() -> None:
    bounded = Mean(-5.0, -math.inf, 0.0, None, -math.inf, -3.0, "mover")
    assert numbers.mean(bounded, LOG10_P_FAIL) == "≤ -3.000"
    assert numbers.mean(replace(bounded, measured_upper=0.0), LOG10_P_FAIL) == "–"
    nothing = Quantile(1.0, 0.0, 1.0, 0.0, 1.0)
    assert numbers.quantile(nothing, P_ROBUST) == numbers.quantile(replace(nothing, value=0.0), P_ROBUST) == "–"
    assert numbers.quantile(replace(nothing, measured_lower=0.83), P_ROBUST) == "≥ 0.830"


@given(st.floats(-1, 1), st.floats(0, 0.4), st.floats(0, 0.4))
def test_a_difference_has_a_sign_and_the_digits_of_its_interval(value: float, below: float, above: float) -> None:
    text = numbers.difference(value, value - below, value + above)
    digits = len(text.partition(".")[2])
    assert 3 <= digits <= 6
    assert abs(float(text) - value) <= 0.5001 * 10**-digits
    assert text.startswith("+" if float(text) > 0 else "-" if float(text) < 0 else "0")


def test_only_equal_orders_have_a_rank_correlation_of_one() -> None:
    assert [numbers.rank(one) for one in (None, 1.0, 0.99999, -0.5)] == ["–", "1.000", ">0.999", "-0.500"]


@pytest.mark.parametrize(
    ("shape", "kind", "size", "mode"),
    [
        ((1, 8, 8), "PNG", (8, 8), "L"),
        ((3, 32, 64), "PNG", (64, 32), "RGB"),
        ((3, 65, 40), "JPEG", (40, 65), "RGB"),
        ((3, 448, 224), "JPEG", (80, 160), "RGB"),
        ((1, 300, 300), "JPEG", (160, 160), "L"),
    ],
)
def test_thumbnails(shape: tuple[int, int, int], kind: str, size: tuple[int, int], mode: str) -> None:
    pixels = torch.linspace(-0.5, 1.5, shape[0] * shape[1] * shape[2]).view(shape)
    found = thumbnail(pixels)
    head, _, body = found.uri.partition(",")
    assert head == f"data:image/{kind.lower()};base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        assert (image.format, image.size, image.mode) == (kind, size, mode)
        assert (found.width, found.height) == size
        if found.whole:
            expected = (pixels.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(np.asarray(image).reshape(expected.shape), expected)
    assert found.whole is (max(shape[1:]) <= 64)


@given(st.floats(-15, 0))
def test_odds_round_to_the_side_asked_for(log10: float) -> None:
    up, down = (1 / float(numbers.odds(log10, way).removeprefix("1 of ").replace(",", "")) for way in ("up", "down"))
    assert down <= 10**log10 * (1 + 1e-8)
    assert up >= 10**log10 * (1 - 1e-8)
    assert up / down < 1.11


def test_odds_in_words() -> None:
    assert numbers.odds(-3.2) == "1 of 1,600"
    assert numbers.odds(-12.0, "up") == "1 of 1,000,000,000,000"
    assert numbers.odds(float("-inf")) == "never"
