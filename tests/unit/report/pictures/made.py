"""Runs that are made by hand, in memory, for the pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from robaudit.quantities import CONFIDENCE, LOG10_P_FAIL, LOSS, NO_INTERVAL, P_ROBUST, Interval
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.rows import ROW
from tests.unit.report.html.tools import hand_made

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Text

HOSTILE = (
    "$\\frac{1}{0}$",
    "</svg><script>alert(1)</script>",
    '"><img src=x onerror=y> & \x1b[31m\x00 \u202e',
    "a very long class name " * 20,
    "\u732b\U0001f431 \ud800",
    "#22262b; fill: url(http://x.example/)",
)


def texts(figure: Figure) -> list[str]:
    """Every text of a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def unreadable(figure: Figure) -> list[str]:
    """The texts of a figure that are not wholly on it, or overlap another one."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    hidden = {
        id(label)
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for label in beyond_the_ends(axis)
    }
    shown = [
        text
        for text in figure.findobj(Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    ]
    boxes = [
        (text.get_text(), text.get_window_extent().padded(-1))
        for text in shown
        if id(text) not in hidden
    ]
    outside = [
        text
        for text, box in boxes
        if not (figure.bbox.contains(*box.min) and figure.bbox.contains(*box.max))
    ]
    return outside + [
        f"{one} | {two}"
        for (one, box), (two, other) in combinations(boxes, 2)
        if box.overlaps(other)
    ]


def beyond_the_ends(axis: Axis) -> list[Text]:
    """Labels of ticks that are not drawn, as they are beyond the ends of their axis."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-9 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [tick.label1 for tick in ticks if not low - room <= tick.get_loc() <= high + room]


def row(number: int, value: float, **fields: Any) -> Row:
    """A result of ``mc`` at sigma 0.1 without an interval; the fields change it."""
    of = {
        "sample_id": str(number),
        "label": number % 2,
        "predicted": number % 2,
        "lower": None,
        "upper": None,
        "flips_to": None,
    }
    return replace(
        ROW,
        value=value,
        **{
            **of,
            "std_error": None,
            "forwards": 11,
            "interval": NO_INTERVAL,
            "votes": None,
            **fields,
        },
    )


def run(rows: Iterable[Row]) -> Run:
    """A finished run of these rows."""
    rows = tuple(rows)
    data = {
        "where": "nowhere",
        "class_names": None,
        "labelled": sum(one.label is not None for one in rows),
    }
    quantities = [one.document() for one in (P_ROBUST, CONFIDENCE, LOG10_P_FAIL, LOSS)]
    return hand_made(rows, name="made", data=data, quantities=quantities)


def usual(
    estimators: Sequence[str] = ("mc", "logit_gaussian"), sigmas: Sequence[float] = (0.05, 0.1)
) -> Run:
    """Eight images of four classes, with intervals; worse where there is more noise."""
    rows = []
    for number in range(8):
        for sigma in sigmas:
            value = (0.5 + number / 20) ** (10 * sigma)
            ends = {
                "lower": 0.9 * value,
                "upper": min(1.0, value + 0.03),
                "interval": Interval.parse("jackknife:approximate"),
            }
            label = {"label": number % 4, "predicted": number % 4}
            rows += [
                row(number, value, **label, **ends, level=sigma, estimator=estimator)
                for estimator in estimators
            ]
    return run(rows)
