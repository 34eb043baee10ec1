"""Text fits, colours read on light and dark pages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.report.pictures.distribution import _labels, distributions
from robaudit.report.pictures.inline import _VARIABLES
from robaudit.report.pictures.page import ELLIPSIS, Look, fitted, measured, wrapped
from robaudit.report.pictures.style import HIGHER, LOWER, estimator_colour, level_colours
from tests import levels
from tests.report.pictures.made import row, run

pytest.importorskip("matplotlib")


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60), st.floats(0.3, 3.0))
def test_fitted_text_fits_and_is_the_text_or_its_beginning(text: str, width: float) -> None:
    shown = fitted(text, width, 9)
    assert measured(shown, 9) <= width + 1e-5
    assert shown.isprintable()
    if not shown.endswith(ELLIPSIS):
        assert len(shown) >= len(text)


def test_of_a_long_id_the_end_is_kept() -> None:
    assert fitted("x" * 5000 + "/017.png", 1.0, 9, end=True).endswith("/017.png")
    assert fitted("cat", 1.0, 9) == "cat"


def test_lines_hold_all_words_in_order() -> None:
    text = "one two three " * 30
    lines = wrapped(text, 2.0, 9)
    assert " ".join(lines).split() == text.split()
    assert max(measured(line, 9) for line in lines) <= 2.0
    assert wrapped("", 2.0, 9) == []


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("page", ["#fcfcfa", "#16181c"])
def test_every_series_stands_out_from_a_light_and_a_dark_page(page: str) -> None:
    """Contrast of 3:1, which WCAG 2 asks of graphics."""
    names = ("mc", "logit_gaussian", "mmse", "mmse_mvs", "taylor", "taylor_mvs", "softmax")
    colours = [LOWER, HIGHER, *level_colours(1), *level_colours(9), *(estimator_colour(name, 0) for name in names)]
    colours += [estimator_colour("other", i) for i in range(5)]
    for colour in colours:
        dark, light = sorted((_luminance(colour), _luminance(page)))
        assert (light + 0.05) / (dark + 0.05) >= 3, colour
        assert colour not in _VARIABLES


@pytest.mark.parametrize(
    ("sigmas", "inches", "spaced", "means", "every"),
    [
        ([0.1], 1.0, [0.0], True, 1),
        ([0.1, 0.2, 0.3], 3.0, [0.0, 1.0, 2.0], True, 1),
        ([0.1, 0.2, 0.4], 3.0, [0.0, 2 / 3, 2.0], True, 1),
        ([0.001, 0.01, 0.1], 3.0, [0.0, 1.0, 2.0], True, 1),  # by logarithms
        ([0.1, 0.101, 1.0], 3.0, [0.0, 1.0, 2.0], True, 1),  # evenly
        ([0.1, 0.2, 0.4], 1.2, [0.0, 1.0, 2.0], False, 1),  # no room for means
        ([0.1, 0.2, 0.3, 0.5], 1.6, [0.0, 0.75, 1.5, 3.0], False, 1),
        ([0.01 * i for i in range(1, 41)], 3.0, [float(i) for i in range(40)], False, 6),
    ],
)
def test_noise_levels_stand_apart_and_their_labels_do_not_meet(
    sigmas: list[float], inches: float, spaced: list[float], means: bool, every: int
) -> None:
    (one,) = distributions(run(row(0, 0.5, level=sigma) for sigma in sigmas))
    texts = {levels.sigma(sigma): f"{sigma:g}" for sigma in sigmas}
    places, numbers, step = _labels(one, texts, inches, Look())
    assert places == pytest.approx(spaced)
    assert all(bool(number) == means for number in numbers)
    assert step == every
    labels = [(places[i], texts[levels.sigma(sigmas[i])] + numbers[i]) for i in range(0, len(sigmas), step)]
    unit = inches / max(len(sigmas) - 0.1, 1)
    for (a, left), (b, right) in pairwise(labels):
        width = max(measured(line, 9, bold=True) for text in (left, right) for line in text.split("\n"))
        assert width <= (b - a) * unit
