"""The picture of losses by q: its points are the means, it bears any values, and its texts do not meet."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from robaudit.quantities import LOSS
from robaudit.report.pictures.kinds import INLINE, Choice, inline_svg, sketch_of
from robaudit.report.pictures.loss_q import LEAST, MOST_PANELS, spread
from robaudit.report.pictures.page import Look
from robaudit.report.pictures.style import log_ticks, number_text
from robaudit.stats.losses import losses
from robaudit.store.run import Run
from tests.report.pictures import made
from tests.report.pictures.made import row, run
from tests.report.pictures.test_ticks import drawn

pytest.importorskip("matplotlib")
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

LOOKS = (Look(7.0), Look(3.3, 7.0), INLINE, Look(20.0))
NAMES = ("paper", "column", "page", "wide")


def panels(given: Run, look: Look) -> list[Axes]:
    """The axes of the noise levels."""
    return [ax for ax in drawn("loss-q", given, look).axes if ax.axison]


def heights(line: Line2D) -> list[float]:
    """The values that a line goes through."""
    return [float(y) for y in np.asarray(line.get_ydata(), dtype=np.float64)]


def thick(ax: Axes) -> list[list[float]]:
    """The values of the mean lines."""
    return [heights(line) for line in ax.lines if line.get_linewidth() == 2.0]


def thin(ax: Axes) -> list[list[float]]:
    """The values of the solid lines of images."""
    return [heights(line) for line in ax.lines if line.get_linewidth() == 0.9 and line.get_linestyle() == "-"]


def constant(values: dict[str, list[float]], **fields: Any) -> Run:
    """Losses of images by name of the result."""
    return run(row(i, value, estimator=name, quantity=LOSS.name, **fields) for name, some in values.items() for i, value in enumerate(some))


def test_thick_lines_are_the_means_and_thin_ones_the_worst_images() -> None:
    given = made.losses(30, eps=(0.1, 0.2))
    for ax, one in zip(panels(given, Look(7.0)), losses(given), strict=True):
        assert thick(ax) == [[result.mean.value for result in curve.results] for curve in one.curves]
        assert thin(ax) == [[result.worst[i] for result in one.curves[0].results] for i in range(6)]
        (attack,) = one.attacks
        ends = [heights(line)[-1] for line in ax.lines if line.get_linestyle() == "--" and line.get_linewidth() == 1.6]
        assert ends == [attack.mean.value] * 2
        assert ax.get_yscale() == "log"


def test_max_images_are_drawn() -> None:
    given = made.losses(30)
    for count in (1, 30):
        (ax,) = [ax for ax in _figure(given, Choice(max_images=count)).axes if ax.axison]
        assert len(thin(ax)) == count


def _figure(given: Run, choice: Choice) -> Any:
    from matplotlib.figure import Figure

    from robaudit.report.pictures.page import page

    size, draw = page(sketch_of("loss-q", given, choice), Look(7.0))
    figure = Figure(figsize=size)
    draw(figure)
    return figure


@pytest.mark.parametrize(
    "look",
    [pytest.param(look, marks=() if name in ("column", "wide") else pytest.mark.slow) for look, name in zip(LOOKS, NAMES, strict=True)],
    ids=NAMES,
)
@pytest.mark.parametrize(
    "given",
    [
        made.losses(40, eps=(0.1, 0.2, 0.3), ids=("/a/folder/with/a/long/name/", "x")),
        made.losses(3, (7,)),
        made.losses(40, tuple(1.3**i for i in range(-8, 30)), attacks=()),
        made.losses(40, (1, 10, 100, 1000, 1e6), attacks=("pgd", "linf", "an_attack_with_a_very_long_name_indeed"), scale=1e-12),
    ],
    ids=["three levels", "one q", "many q", "three attacks"],
)
def test_texts_do_not_meet_and_stay_in_the_picture(given: Run, look: Look) -> None:
    figure = drawn("loss-q", given, look)
    whole = figure.bbox
    for ax in (ax for ax in figure.axes if ax.axison):
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text() and "\n" not in label.get_text()]
        assert boxes
        for left, right in pairwise(sorted(boxes, key=lambda box: float(box.x0))):
            assert left.x1 < right.x0
        rows = [label.get_window_extent() for label in ax.get_yticklabels() if label.get_text()]
        assert len(rows) >= 2
        for low, high in pairwise(sorted(rows, key=lambda box: float(box.y0))):
            assert low.y1 < high.y0
        (word,) = ax.texts
        assert word.get_window_extent().y1 <= min(box.y0 for box in boxes)
        assert all(box.x0 >= 0 for box in rows)
    texts = [text for text in figure.texts if text.get_text()]
    assert all(text.get_window_extent().x1 <= whole.x1 and text.get_window_extent().x0 >= 0 for text in texts)
    named = sorted((text for text in figure.texts if text.get_text()[-1:].isdigit()), key=lambda text: text.get_window_extent().y0)
    for one in named:
        for other in named:
            if one is not other:
                assert not one.get_window_extent().shrunk(0.98, 0.7).overlaps(other.get_window_extent().shrunk(0.98, 0.7))


def test_the_largest_q_has_its_label() -> None:
    for look in LOOKS:
        for attacks in ((), ("adversarial_loss",)):
            (ax,) = panels(made.losses(5, attacks=attacks), look)
            labels = [label.get_text() for label in ax.get_xticklabels()]
            assert "1000" in labels
            assert "1" in labels
            assert labels[-1] == ("∞\nattack" if attacks else "1000")


@pytest.mark.parametrize(
    ("values", "scale", "says"),
    [
        ({"a:q=1": [0.0, 0.0], "a:q=2": [0.0, 0.0]}, "linear", False),
        ({"a:q=1": [0.0, 0.4], "a:q=2": [0.3, 0.5], "adversarial_loss": [0.6, 0.6]}, "linear", False),
        ({"a:q=1": [0.0, 1e-12], "a:q=2": [0.0, 5.0], "adversarial_loss": [0.0, 9.0]}, "log", True),
        ({"a:q=1": [1e-12, 1e-13], "a:q=2": [1e-10, 1e-11]}, "log", False),
        ({"a:q=1": [1e-12], "a:q=1e300": [1e149]}, "log", True),
        ({"a:q=1": [1e-12]}, "linear", False),
        ({"a:q=1": [0.0], "adversarial_loss": [0.0]}, "linear", False),
        ({"a:q=1e-300": [5e-324], "a:q=1e300": [1e-310]}, "linear", False),
    ],
    ids=["all zero", "close", "twelve decades", "tiny", "huge", "one value", "one zero", "below all floats"],
)
def test_any_losses_are_drawn_without_a_word(values: dict[str, list[float]], scale: str, says: bool) -> None:
    given = constant(values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (ax,) = panels(given, Look(7.0))
        assert inline_svg("loss-q", given).startswith("<svg ")
    assert ax.get_yscale() == scale
    assert ("Triangles at the lower edge" in sketch_of("loss-q", given, Choice()).caption) == says
    triangles = [line for line in ax.lines if line.get_marker() == "v" and heights(line)]
    assert bool(triangles) == says
    low, high = ax.get_ylim()
    largest = max(value for some in values.values() for value in some)
    assert high > largest
    assert all(low <= y <= high for line in ax.lines if line.get_transform() == ax.transData for y in heights(line))
    if scale == "log":
        assert low >= 0.1 * LEAST * largest


def _caption(given: Run) -> str:
    return sketch_of("loss-q", given, Choice()).whole_caption


def test_the_caption_says_what_is_drawn() -> None:
    words = _caption(made.losses(40))
    for part in (
        "lower is better",
        "40 images.",
        "∞: the highest loss that the attack found",
        "the 6 images with the highest loss, by qnorm_path:q=1000 (the first that flag-samples lists)",
        "adversarial_loss: values without an interval of their own.",
        "qnorm_path, qnorm_mc: no interval covers the bias",
    ):
        assert part in words, part
    assert "failed" not in words
    assert "∞" not in _caption(made.losses(40, attacks=()))
    alone = _caption(made.losses(1))
    assert "1 image." in alone
    assert "Thin: the image with" in alone
    assert "Left out" not in alone
    weak = constant({"a:q=1": [2.0, 2.0, math.nan], "adversarial_loss": [1.0, 3.0, 3.0]})
    assert "The attack failed for 1 of 2 images, where the chains of a q" in _caption(weak)
    assert "Left out: 1 result without a finite value." in _caption(weak)


def test_further_noise_levels_are_named_in_the_caption() -> None:
    given = made.losses(4, eps=tuple(0.1 * i for i in range(1, MOST_PANELS + 3)))
    assert len(panels(given, Look(7.0))) == MOST_PANELS
    assert "Not shown: uniform eps 0.7, uniform eps 0.8." in _caption(given)


def test_a_run_without_losses_by_q_is_refused() -> None:
    from robaudit.errors import NothingLeftError

    for given in (made.usual(4), constant({"adversarial_loss": [1.0]})):
        with pytest.raises(NothingLeftError, match="has no losses by q to draw"):
            sketch_of("loss-q", given, Choice())


@hypothesis.given(st.lists(st.floats(-1, 4), max_size=10), st.floats(0.01, 0.3))
def test_names_are_pushed_apart_as_little_as_needed(wishes: list[float], gap: float) -> None:
    wished = sorted(wishes)
    places = spread(wished, gap, 3.0)
    assert len(places) == len(wished)
    assert all(right - left >= gap - 1e-9 for left, right in pairwise(places))
    assert all(-1e-9 <= place <= 3.0 + 1e-9 for place in places)
    if all(0 <= wish <= 3 for wish in wished) and all(b - a >= gap for a, b in pairwise(wished)):
        assert places == pytest.approx(wished)


def test_two_names_that_wish_the_same_place_share_it() -> None:
    assert spread([1.0, 1.0], 0.2, 3.0) == pytest.approx([0.9, 1.1])
    assert spread([0.0, 0.0, 0.35], 0.2, 3.0) == pytest.approx([0.0, 0.2, 0.4])
    assert spread([3.0, 3.0], 0.2, 3.0) == pytest.approx([2.8, 3.0])


@hypothesis.given(st.floats(-14, 6), st.floats(0.01, 14), st.integers(2, 9))
def test_ticks_of_a_logarithmic_scale_are_round_and_few(low: float, decades: float, most: int) -> None:
    ends = 10.0**low, 10.0 ** (low + decades)
    ticks = log_ticks(*ends, most)
    assert len(ticks) <= most
    assert ticks == sorted(ticks)
    assert all(ends[0] <= tick <= ends[1] for tick in ticks)
    if decades >= 1.5:
        assert len(ticks) >= 2 or most < 3
    texts = [number_text(tick) for tick in ticks]
    assert len(set(texts)) == len(texts)


def test_texts_of_ticks() -> None:
    assert [number_text(value) for value in (1e-7, 3e-5, 0.001, 0.03, 1.0, 20.0, 1000.0, 3e4, 2e6, 1e12)] == [
        "1e-7",
        "3e-5",
        "0.001",
        "0.03",
        "1",
        "20",
        "1k",
        "30k",
        "2M",
        "1e12",
    ]
