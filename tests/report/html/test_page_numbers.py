"""Numbers of a report claim no more than was measured; thumbnails hold what they say."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robaudit.report import numbers
from robaudit.report.html.cards import thumbnail

shares = st.floats(0, 1)


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@given(st.tuples(shares, shares, shares).map(sorted))
def test_intervals_round_outwards(ends: list[float]) -> None:
    lower, value, upper = ends
    low, high = numbers_in(numbers.ends(lower, upper))
    assert low <= lower + 1e-9
    assert high >= upper - 1e-9
    _, low, high = numbers_in(numbers.with_percents(value, lower, upper))
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
    assert numbers.ends(float("-inf"), -12.0) == "[..., -12.000]"
    assert numbers.ends(2.5, float("inf")) == "[2.500, ...]"
    assert numbers.ends(np.float64(-1e-15), np.float64(0.25)) == "[0.000, 0.250]"
    assert numbers.ends(None, None) == numbers.ends(float("-inf"), float("inf")) == "–"


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
