"""The picture of certified accuracy against radius: a panel for each norm, a step curve with its band for each result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.report.certified_tables import OfRun, titles
from robaudit.report.numbers import share_estimate
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put_level
from robaudit.report.pictures.style import BLUE, CARD, FAINT, GREEN, OLIVE, ORANGE, RED, TEAL, few_ticks, number_ticks
from robaudit.stats.certified import CertifiedAccuracy, Curve
from robaudit.stats.intervals import LIKE_THESE
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CURVES, MOST_STEPS = 6, 400
_MOST_DETAILED = 4
_COLOURS = (BLUE, ORANGE, GREEN, RED, TEAL, OLIVE)
_STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (8, 2)))
_PANEL, _HEIGHT, _BETWEEN, _SAMPLE, _GAP = 3.0, 2.6, 0.3, 0.32, 0.25  # inches: of a panel, at least; of axes; between; of a line; after it


@dataclass(frozen=True, slots=True)
class Line:
    """One result as it is drawn: its words, and its place in the palette."""

    words: str
    place: int
    of: OfRun

    @property
    def accuracy(self) -> CertifiedAccuracy:
        """What is drawn."""
        return self.of.accuracy


def sketch(every: Sequence[OfRun]) -> Sketch:
    """The picture of these results, at least one; of each norm the first six."""
    panels, left = panels_of(every)
    return Sketch(
        title="Certified accuracy against radius",
        caption=" ".join(_caption([line for lines in panels.values() for line in lines], left)),
        height=lambda look: _rows(panels, look) * _panel_height(panels, look),
        draw=lambda figure, box, look: _draw(figure, box, look, panels),
    )


def panels_of(every: Sequence[OfRun]) -> tuple[dict[str, list[Line]], list[str]]:
    """The curves by norm, each with a place in the palette, which it has in all panels where that is free; and what has no room."""
    panels: dict[str, list[Line]] = {}
    places: dict[str, int] = {}
    left: list[str] = []
    for words, one in zip(titles(every), every, strict=True):
        mine = panels.setdefault(one.accuracy.certificates.norm, [])
        if len(mine) == MOST_CURVES:
            left.append(words)
            continue
        free = [place for place in range(MOST_CURVES) if place not in {line.place for line in mine}]
        place = places.setdefault(words, free[0])
        mine.append(Line(words, place if place in free else free[0], one))
    return panels, left


def _caption(lines: Sequence[Line], left: Sequence[str]) -> Iterator[str]:
    sizes = sorted({line.accuracy.certificates.images for line in lines})
    images = count(sizes[0], "image") if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} images"
    level = f"{100 * lines[0].accuracy.confidence:.4g} %"
    yield (
        f"Share of {images} whose class is certified within the radius, and is the label. Band: {level} Clopper-Pearson interval "
        f"{LIKE_THESE}, each radius alone. Ring: clean accuracy of the network itself."
    )
    for line in lines:
        one = line.accuracy
        ends = "" if one.interval is None else f" [{one.interval[0]:.3g}, {one.interval[1]:.3g}]"
        norm = one.certificates.norm
        named = f"{line.words} ({norm})" if norm else line.words
        words = [f"mean radius {one.mean:.3g}{ends}"]
        if len(lines) <= _MOST_DETAILED:
            words.append(f"nothing certified {share_estimate(one.abstains)}")
            words += [f"another class {share_estimate(one.wrong)}"] if one.wrong.count else []
        if np.isfinite(one.certificates.possible):
            words.append(f"at most {one.certificates.possible:.3g} possible")
        if one.certificates.asked is not None:
            words.append(f"a lower bound but at {one.certificates.asked:g}, which its images were asked about")
        yield f"{named}: {', '.join(words)}."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _columns(panels: dict[str, list[Line]], look: Look) -> int:
    return min(len(panels), max(1, int(look.body / _PANEL)))


def _rows(panels: dict[str, list[Line]], look: Look) -> int:
    return -(-len(panels) // _columns(panels, look))


def _head_height(panels: dict[str, list[Line]], look: Look) -> float:
    """Above the axes of a panel: a line for each curve."""
    return max(map(len, panels.values())) * look.line + 0.12


def _panel_height(panels: dict[str, list[Line]], look: Look) -> float:
    return _head_height(panels, look) + _HEIGHT + 2 * look.line + 0.16


def _draw(figure: Figure, box: Box, look: Look, panels: dict[str, list[Line]]) -> None:
    columns, step, above = _columns(panels, look), _panel_height(panels, look), _head_height(panels, look)
    across = (box.width - (columns - 1) * _BETWEEN) / columns
    for i, (norm, lines) in enumerate(panels.items()):
        x, y = box.x + (i % columns) * (across + _BETWEEN), box.y + box.height - (i // columns + 1) * step
        _panel(figure, Box(x, y, across, step), look, norm, lines, above)


def _panel(figure: Figure, place: Box, look: Look, norm: str, lines: Sequence[Line], above: float) -> None:
    left, below = 0.14 + look.line + measured("100 %", look.size), 2 * look.line + 0.16
    height = place.height - above - below
    box = Box(place.x + left, place.y + below, place.width - left - 0.06, height)
    ax = axes(figure, box, look)
    reach = max(*(line.accuracy.largest for line in lines), 1e-12)
    ax.set_xlim(0.0, 1.05 * reach)
    ax.set_ylim(0.0, 1.0)
    for line in lines:
        _curve(ax, line, 1.05 * reach)
    few_ticks(ax.xaxis)
    number_ticks(ax.yaxis, [0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    what = f"{norm} radius" if norm else "radius"
    ax.set_xlabel(fitted(what, box.width, look.size), color=FAINT, size=look.size, labelpad=3, parse_math=False)
    ax.set_ylabel(fitted("certified accuracy", height, look.size), color=FAINT, size=look.size, labelpad=3)
    _legend(figure, Box(place.x, box.y + height, place.width, above), look, lines)


def _legend(figure: Figure, box: Box, look: Look, lines: Sequence[Line]) -> None:
    ax = axes(figure, box, look)
    ax.set_axis_off()
    ax.set_xlim(0, box.width)
    ax.set_ylim(0, box.height)
    for i, line in enumerate(lines):
        y = box.height - (i + 0.5) * look.line
        ax.plot([0.02, _SAMPLE], [y, y], color=_COLOURS[line.place], linestyle=_STYLES[line.place], linewidth=1.8)
        words = fitted(line.words, box.width - _SAMPLE - 0.1, look.size)
        put_level(figure, box.x + _SAMPLE + 0.08, box.y + y, words, size=look.size)


def _curve(ax: Axes, line: Line, end: float) -> None:
    """The steps: at a radius where it falls, the curve still has the value of that radius, and then that of the next one.

    Where nothing could have been certified it has neither line nor band.
    """
    one, colour = line.accuracy, _COLOURS[line.place]
    curve, last = thinned(one.curve()), min(end, one.certificates.possible)
    beyond = one.at(2.0 * end)  # nothing
    radii = np.append(curve.radii, max(last, one.largest))
    ends = ((curve.values, beyond.value), (curve.lowers, beyond.lower), (curve.uppers, beyond.upper))
    values, lowers, uppers = (np.append(of, zero) for of, zero in ends)
    ax.fill_between(radii, lowers, uppers, step="pre", color=colour, alpha=0.13, linewidth=0, zorder=1.5)
    ax.step(radii, values, where="pre", color=colour, linestyle=_STYLES[line.place], linewidth=1.8, zorder=3)
    ring: dict[str, Any] = {"marker": "o", "markersize": 6.0, "markerfacecolor": CARD, "markeredgecolor": colour, "markeredgewidth": 1.6}
    ax.plot([0.0], [one.clean.value], linestyle="none", clip_on=False, zorder=4 - 0.1 * line.place, **ring)


def thinned(curve: Curve) -> Curve:
    """At most so many steps; between those that are left, the lower one counts."""
    if len(curve.radii) <= MOST_STEPS:
        return curve
    at = np.unique(np.linspace(0, len(curve.radii) - 1, MOST_STEPS).round().astype(int))
    return Curve(*(column[at] for column in (curve.radii, curve.counts, curve.values, curve.lowers, curve.uppers)))
