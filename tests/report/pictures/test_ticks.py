"""Labels of ticks do not meet, and the numbers of the agreement's picture are those of its table."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from robaudit.quantities import Interval
from robaudit.report import numbers
from robaudit.report.pictures.agreement import _difference
from robaudit.report.pictures.kinds import INLINE, Choice, sketch_of
from robaudit.report.pictures.page import Look, page
from robaudit.stats.agreement import agreement
from robaudit.store.run import Run
from tests.report.pictures.made import row, run, usual

pytest.importorskip("matplotlib")
if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn(kind: str, made: Run, look: Look) -> Figure:
    """The picture, laid out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size, draw = page(sketch_of(kind, made, Choice()), look)
    figure = Figure(figsize=size)
    canvas = FigureCanvasAgg(figure)
    draw(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return figure


def cheap_and_dear(seconds: tuple[float, float, float], name: str = "taylor", passes: int = 1001) -> Run:
    """mc, an analytic estimator and one between, with these seconds in all."""
    rows = []
    for number in range(4):
        ends = {"lower": 0.4, "upper": 0.6, "interval": Interval.parse("clopper-pearson")}
        rows.append(row(number, 0.5, forwards=passes, **ends))
        rows.append(row(number, 0.5, estimator=name, forwards=1, backwards=1))
        rows.append(
            row(number, 0.5, estimator="between", forwards=65, lower=0.499, upper=0.501, interval=Interval.parse("jackknife:approximate"))
        )
    return run(rows, seconds=dict(zip((f"{one}@gaussian:sigma=0.1" for one in ("mc", name, "between")), seconds, strict=True)))


@pytest.mark.parametrize(
    "made",
    [
        cheap_and_dear((0.6, 0.0004, 0.02), name="a_plugin_with_a_long_name"),
        cheap_and_dear((4000.0, 0.001, 2.0), passes=3_000_001),
        cheap_and_dear((4.0, 0.4, 2.0), name="a_plugin_with_a_long_name", passes=12),
        cheap_and_dear((0.00008, 0.00004, 0.00007), passes=12),
    ],
    ids=["four ticks", "seven decades", "half a decade", "microseconds"],
)
def test_labels_of_ticks_do_not_meet(made: Run) -> None:
    """At the size that a page shows."""
    figure = drawn("cost", made, INLINE)
    assert len(figure.axes) == 3
    for ax in figure.axes:
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        assert boxes
        for left, right in pairwise(sorted(boxes, key=lambda box: float(box.x0))):
            assert left.x1 + 0.05 * figure.dpi < right.x0


def test_a_number_left_of_its_dot_stays_in_its_column() -> None:
    """A dot just right of 45 % of the column, and a long number: it did run into the noise level."""
    ax = drawn("cost", cheap_and_dear((0.2164, 0.00338, 0.00012)), INLINE).axes[0]
    boxes = {label.get_text(): label.get_window_extent() for label in ax.texts}
    assert {"0.0541", "0.000845", "3.0e-05"} == set(boxes)
    assert all(ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 for box in boxes.values())


def test_the_difference_reads_as_in_the_table() -> None:
    (pair,) = agreement(usual(30, sigmas=(0.1,))).pairs
    ends = numbers.interval(pair.lower, pair.upper)
    low, high = map(float, re.findall(r"-?[\d.]+", ends))
    assert low <= pair.lower < pair.difference < pair.upper <= high
    words = f"Δ {numbers.difference(pair.difference, pair.lower, pair.upper)} ({ends})"
    assert _difference(pair) == words.replace("-", "\N{MINUS SIGN}")
