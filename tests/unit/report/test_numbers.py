"""Printed numbers never claim more than was measured."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from robaudit.estimates import Estimate
from robaudit.levels import LevelName, NoiseLevel
from robaudit.numerics.intervals import clopper_pearson
from robaudit.report import numbers
from robaudit.stats.summary import Mean, share
from robaudit.text import class_name, distinct, printable, shortened
from tests.levels import sigma
from tests.unit.engine.tools import known


def test_all_and_none_print_with_their_bound() -> None:
    lower, upper = map(float, clopper_pearson(10_000, 10_000))
    assert (
        numbers.with_interval(1.0, lower, upper)
        == numbers.estimate(1.0, lower, upper)
        == "1.0000 [0.9996, 1.0000]"
    )
    assert numbers.with_interval(0.0, 1 - upper, 1 - lower) == "0.0000 [0.0000, 0.0004]"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0.873, 0.7914, 0.9301), "0.873 [0.791, 0.931]"),
        ((0.9999, 0.9997, 0.99996), "0.9999 [0.9997, 1.0000]"),
        ((0.5, None, None), "~0.500"),
        ((1.0, None, None), "~>0.999"),
        ((0.99996, 0.5, 1.0), "0.99996 [0.500, 1.000]"),
        ((12.5, 11.0, 14.2, 0.0, math.inf), "12.500 [11.000, 14.200]"),
        ((1.0, 1.0, 1.0), "1.000"),
        ((0.0, 0.0, 0.0), "0.000"),
        ((0.00152, -math.inf, 0.00152, 0.0, math.inf), "<= 0.0016"),
        ((0.00152, 0.00071, math.inf, 0.0, math.inf), ">= 0.0015 [0.00071, ...]"),
        ((1.52, -math.inf, 1.52, 0.0, math.inf), "<= 1.520"),
        ((3.0, 2.5, None, 0.0, math.inf), ">= 3.000 [2.500, ...]"),
        ((-12.0, None, -12.0, -math.inf, 0.0), "<= -12.000"),
        ((-6.0, -6.4, -5.6, -math.inf, 0.0), "-6.000 [-6.400, -5.600]"),
        ((-6.0, None, None, -math.inf, 0.0), "~-6.000"),
    ],
)
def test_values_with_intervals(arguments: tuple[float, ...], expected: str) -> None:
    assert numbers.with_interval(*arguments) == expected


def test_the_mean_of_small_upper_bounds_keeps_two_digits() -> None:
    population = Estimate.population(0.00152, (-math.inf, 0.00234), "Student's t")
    mean = Mean(population, None, Estimate.measured(0.00152, (0.0, 0.00152), "mover"))
    assert numbers.mean_estimate(mean, 0.0, math.inf) == "<= 0.0016 [..., 0.0024]"


@given(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)))
def test_the_printed_interval_holds_the_interval(ends: tuple[float, ...]) -> None:
    lower, value, upper = sorted(ends)
    for text, scale in (
        (numbers.ends(lower, upper), 1.0),
        (numbers.with_percents(value, lower, upper), 100.0),
    ):
        low, high = (float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)[-2:])
        assert low <= scale * (lower + 1e-9)
        assert high >= scale * (upper - 1e-9)
    assume(not (value in (0.0, 1.0) and upper == lower))
    text = numbers.with_interval(value, lower, upper)
    if text.startswith(">="):
        assert float(text[3:]) <= lower + 1e-9
    elif text.startswith("<="):
        assert float(text[3:]) >= upper - 1e-9
    elif 0 < value < 1:
        assert text.split()[0] not in ("0.000", "1.000")


@pytest.mark.parametrize(
    ("count", "total", "text"),
    [
        (0, 48, "0.0% [0.0%, 7.4%]"),
        (48, 48, "100.0% [92.6%, 100.0%]"),
        (200, 200, "100.0% [98.1%, 100.0%]"),
        (6, 48, "12.5%"),
        (1, 50_000, "0.002%"),
        (49_999, 50_000, "99.998%"),
    ],
)
def test_shares(count: int, total: int, text: str) -> None:
    assert numbers.share(share(count, total)) == text


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_rounds_alike_as_a_number_and_in_percent(counts: tuple[int, int]) -> None:
    """53.75 % is not 53.8 in one place and 53.7 in another."""
    one = share(*counts)
    number = numbers.with_interval(one.value, *one.estimate.ends)
    percents = numbers.percents(one.estimate)
    plain = [float(text.strip("[],%")) for text in number.split()]
    assert [float(text.strip("[],%")) / 100 for text in percents.split()] == pytest.approx(
        plain, abs=1e-12
    )
    assert (
        numbers.percent(one.value, known(one.estimate.lower), known(one.estimate.upper))
        == percents.split()[0]
    )


def test_small_things() -> None:
    assert [numbers.p_value(p) for p in (0.0002, 0.0123, 0.5, 1.0)] == [
        "<0.001",
        "0.012",
        "0.50",
        "1.00",
    ]
    assert numbers.level_numbers([sigma(0.05), sigma(8 / 255)]) == {
        sigma(0.05): "0.05",
        sigma(8 / 255): "0.0314",
    }
    counted = [NoiseLevel("poisson", number, LevelName.PHOTONS) for number in (1000.0, 12345.0)]
    assert list(numbers.level_numbers(counted).values()) == ["1000", "12345"]
    assert len(set(numbers.level_numbers(map(sigma, [0.1, 0.1000001, 0.1 + 2e-17])).values())) == 3
    assert [numbers.duration(s) for s in (None, 0.1234, 12.34, 1234.5)] == [
        "",
        "0.12",
        "12.3",
        "1,234",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-0.0004, -0.038, 0.038), "-0.0004 [-0.038, +0.038]"),
        ((0.0, -0.038, 0.038), "+0.000 [-0.038, +0.038]"),
        ((-0.0151, -0.054, 0.025), "-0.015 [-0.054, +0.025]"),
        ((2e-5, 1e-5, 1.2), "+0.00002 [+0.00001, +1.200]"),
        ((-8e-14, -0.692, 0.692), "+0.000 [-0.692, +0.692]"),
        ((-0.01, -0.014, -0.00004), "-0.010 [-0.014, -0.00004]"),
        ((0.0, 0.0, 0.0), "0 [0, 0]"),
        ((0.1, -math.inf, 0.25), "+0.100 [..., +0.250]"),
        ((0.5, -1e-30, 1.0), "+0.500 [-1e-30, +1.000]"),
        ((-0.02, None, None), "~-0.0200"),
    ],
)
def test_a_difference_keeps_its_sign(arguments: tuple[float, ...], text: str) -> None:
    assert numbers.change(*arguments) == text


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_ends_of_a_difference_round_outwards_and_keep_their_side(a: float, b: float) -> None:
    lower = min(a, b)
    upper = max(a, b)
    low, high = (
        float(text) for text in numbers.change_interval(lower, upper).strip("[]").split(", ")
    )
    slack = (
        1e-6 * 10**-3
        + abs(lower) * 0.06 * (abs(lower) < 1e-9)
        + abs(upper) * 0.06 * (abs(upper) < 1e-9)
    )
    assert low <= lower + slack
    assert high >= upper - slack
    for shown, end in ((low, lower), (high, upper)):
        assert (shown > 0, shown < 0) == (end > 0, end < 0)


@given(st.floats(-15, 0))
def test_odds_round_to_the_side_asked_for(log10: float) -> None:
    up, down = (
        1 / float(numbers.odds(log10, way).removeprefix("1 of ").replace(",", ""))
        for way in ("up", "down")
    )
    assert down <= 10**log10 * (1 + 1e-8)
    assert up >= 10**log10 * (1 - 1e-8)
    assert up / down < 1.11


def test_names() -> None:
    names = ["airplane", "1", "c\x1b[31mat\n"]
    assert [class_name(i, names) for i in (None, 0, 1, 2, 3, -1)] == [
        "-",
        "airplane",
        "1",
        "c\\x1b[31mat\\n",
        "3",
        "-1",
    ]
    assert class_name(0, names, 6) == "airpl."
    assert class_name(7, {7: "x"}) == "x"
    assert [class_name(3, {3: name}) for name in ("7", " ", "", "-1")] == [
        "3 (7)",
        "3 ( )",
        "3 ()",
        "3 (-1)",
    ], "no index, and nothing to see"
    assert distinct(["crane", "dog", "crane", "2"]) == ("crane (0)", "dog", "crane (2)", "2")
    assert distinct(["a", "a", "a (0)"]) == ("a (0) (0)", "a (1)", "a (0) (2)")
    assert distinct(["crane", "dog", "crane"], ["n1", "n2", "n3"]) == (
        "crane (n1)",
        "dog",
        "crane (n3)",
    )
    assert distinct(["", "dog"]) == ("(0)", "dog")
    assert distinct(["a", "a"], ["x", "x"]) == ("a (x) (0)", "a (x) (1)")
    assert printable("Katze 猫") == "Katze 猫"
    assert shortened("train/tabby/017.png", 12) == "...y/017.png"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (numbers.estimate(0.9, 0.8, 0.95), "0.900"),
        (numbers.estimate(1.0, 1 - 1e-13, 1.0), "1.000000 [0.999999, 1.000000]"),
        (numbers.estimate(0.0, 0.0, 1e-13), "0.000000 [0.000000, 0.000001]"),
        (numbers.estimate(1.0, None, None), "~>0.999"),
        (numbers.estimate(0.0, None, None), "~<0.001"),
        (numbers.with_percents(1.0, 0.9996, 1.0), "100.00% [99.96%, 100.00%]"),
        (numbers.with_percents(0.5463, 0.42, 0.67), "54.6% [42.0%, 67.0%]"),
        (numbers.ends(-math.inf, -12.0), "[..., -12.000]"),
        (numbers.ends(2.5, math.inf), "[2.500, ...]"),
        (numbers.ends(-1e-15, 0.25), "[0.000, 0.250]"),
        (numbers.ends(None, None), "–"),
        (numbers.ends(-math.inf, math.inf), "–"),
        (numbers.odds(-3.2), "1 of 1,600"),
        (numbers.odds(-12.0, "up"), "1 of 1,000,000,000,000"),
        (numbers.odds(-math.inf), "never"),
    ],
)
def test_an_end_that_was_not_reached_is_not_printed(text: str, expected: str) -> None:
    assert text == expected
