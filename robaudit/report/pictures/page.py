"""Parts of all pictures: texts that fit, panels, legends and scales."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from robaudit.quantities import P_ROBUST
from robaudit.report.pictures.style import FAINT, line_style
from robaudit.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import SubFigure

T = TypeVar("T")
ELLIPSIS = "\u2026"
MARGIN = 0.08  # inches at the sides
_LETTER = 0.54  # the width of a usual letter of DejaVu Sans, relative to its size
_BOLD_LETTER = 0.64
_LONGEST_LABEL = 2.1  # inches of a label of the y axis
KEPT_SHARE = "share of noisy copies\nthat keep the class"
"""The label of a scale of robustness."""
_LEVEL_NAMES = {
    "sigma": "noise (standard deviation)",
    "eps": "noise (norm)",
    "photons": "photons (fewer: more noise)",
    "share": "share of values changed",
}
_LEGEND_HANDLE = 0.45  # inches of a line in a legend, with the space around it
_TOGETHER = re.compile(r"(?:\[\S* \S*\]|\S)+(?: %\S*)?")
"""The words of a sentence: "95 %" and "[0.1, 0.2]" stay together."""


@dataclass(frozen=True, slots=True)
class PictureSize:
    """How large a picture is.

    Attributes:
        width: in inches.
        points: the size of its letters.
        title: whether it has its title, or another title; an empty one is none.
        caption: whether it has a caption.
    """

    width: float = 7.0
    points: float = 9.0
    title: bool | str = True
    caption: bool = True

    @property
    def line(self) -> float:
        """Inches from line to line."""
        # lines are 1.36 times as high as their letters; 72 points are an inch
        return self.points * 1.36 / 72

    @property
    def body(self) -> float:
        """Inches between the margins."""
        return self.width - 2 * MARGIN

    def letters(self, inches: float, *, bold: bool = False) -> int:
        """How many letters fit into a width."""
        letter = self.points * (_BOLD_LETTER if bold else _LETTER)
        return max(1, int(72 * inches / letter))

    def across(self, count: int, least: float) -> int:
        """The number of panels in a row, of ``count`` that are at least ``least`` inches wide each.

        Rows are filled evenly, so that none is nearly empty.
        """
        if not count:
            return 1
        # the tolerance is for widths that fit exactly, as 6.6 inches do three times 2.2
        most = max(1, min(count, int(self.body / least + 1e-6)))
        rows = math.ceil(count / most)
        return math.ceil(count / rows)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture that is still to be drawn.

    Attributes:
        title: of the picture.
        caption: the number of images, the coverage of the intervals, and what was left out.
        height: the inches of its body without legends, from the size of the picture.
        draw: draws the body.
        about: the estimator and noise level shown: after the title, or before the caption if there
            is no title.
        apart: which runs cannot be compared with the first: after the caption.
    """

    title: str
    caption: str
    height: Callable[[PictureSize], float]
    draw: Callable[[SubFigure, PictureSize], None]
    about: str = ""
    apart: str = ""


def stacked(body: SubFigure, heights: Sequence[float]) -> list[SubFigure]:
    """Parts below each other, with these relative heights."""
    parts: list[SubFigure] = list(
        body.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    )
    for part in parts:
        part.patch.set_visible(False)
    return parts


# --- text


def flowing(text: str, letters: int) -> str:
    """A sentence for matplotlib to wrap: it breaks at blanks only, and no word has more than this
    many letters."""
    words = _TOGETHER.findall(printable(text))
    return " ".join(cut(word, letters).replace(" ", "\N{NO-BREAK SPACE}") for word in words)


def cut(text: str, letters: int, lost: Literal["beginning", "middle", "end"] = "end") -> str:
    """The text in at most this many letters; an ellipsis stands for the part that is lost."""
    text = printable(text)
    if len(text) <= letters:
        return text
    left = max(1, letters - 1)  # besides the ellipsis
    before = {"beginning": 0, "middle": left // 2, "end": left}[lost]
    return text[:before].rstrip() + ELLIPSIS + text[len(text) - left + before :].lstrip()


def told_apart(names: Sequence[Sequence[str]]) -> list[str]:
    """Names made of parts, without the parts that all of them share; the last part where they share
    all."""
    if not names:
        return []
    differ = [i for i in range(len(names[0])) if len({name[i] for name in names}) > 1]
    texts = []
    for name in names:
        telling = [name[i] for i in differ if name[i]]
        last = next((part for part in reversed(name) if part), "")
        texts.append(", ".join(telling) or last)
    return texts


def shorter(names: Sequence[str], letters: int) -> list[str]:
    """The names, cut where any has more letters: first their common beginning, then their ends."""
    names = [printable(name) for name in names]
    if all(len(name) <= letters for name in names):
        return names
    beginning = 0  # letters that all names have in common
    for place, together in enumerate(zip(*names, strict=False)):
        if len(set(together)) > 1:
            beginning = place
            break
    if beginning > 1:
        names = [ELLIPSIS + name[beginning:] for name in names]
    return [cut(name, letters) for name in names]


def styles_of(keys: Sequence[tuple[str, ...]], *, marks: bool = False) -> list[dict[str, Any]]:
    """A style for each line, by run and result: colours for runs and dashes for results where both
    differ, else both for each line."""
    runs = dict.fromkeys(key[0] for key in keys)
    results = dict.fromkeys(key[1:] for key in keys)
    if len(runs) == 1 or len(results) == 1:
        return [line_style(i, marks=marks) for i in range(len(keys))]
    colours = {run: line_style(i)["color"] for i, run in enumerate(runs)}
    dashes = {result: line_style(i, marks=marks) for i, result in enumerate(results)}
    return [{**dashes[key[1:]], "color": colours[key[0]]} for key in keys]


# --- panels, legends, scales


def rows_of(count: int, size: PictureSize, least: float) -> int:
    """Rows of ``count`` panels, each at least ``least`` inches wide."""
    return math.ceil(count / size.across(count, least))


def legend(body: SubFigure, styles: Mapping[str, Mapping[str, Any]], size: PictureSize) -> None:
    """A legend above all panels, of lines by name, in as few rows as fit; none for a single
    line."""
    from matplotlib.lines import Line2D

    if len(styles) < 2:
        return
    texts = shorter(list(styles), size.letters(size.body - _LEGEND_HANDLE))
    handles = [Line2D([], [], **style) for style in styles.values()]
    # Only matplotlib knows how wide a legend is, so it is drawn with one row more until it fits.
    for rows in range(1, len(texts) + 1):
        columns = math.ceil(len(texts) / rows)
        drawn = body.legend(
            handles,
            texts,
            loc="outside upper left",
            ncols=columns,
            columnspacing=1.2,
            labelspacing=0.3,
        )
        if columns == 1 or drawn.get_window_extent().width <= body.bbox.width:
            return
        drawn.remove()


def paneled(
    title: str,
    caption: Iterable[str],
    shown: Sequence[T],
    draw: Callable[[Axes, T, PictureSize], None],
    *,
    wide: float,
    high: float | Callable[[PictureSize], float],
    titles: Sequence[str] = (),
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    ylabel: str = "",
    xlabel: str = "",
    about: str = "",
    beside: float = 0.55,
    **shared: Any,
) -> Drawing:
    """A picture made of panels side by side, below a legend of all of them.

    Args:
        title, about: as in :class:`Drawing`.
        caption: its sentences.
        shown: the items of the panels.
        draw: draws the panel of an item.
        wide, high: inches of a panel, its least width and its height.
        titles: of the panels, cut to fit.
        styles: of the lines in the legend, by name.
        ylabel: of the first panel of each row.
        xlabel: of all panels together.
        beside: inches of a panel left of its axes, where its title begins.
        shared: for ``subplots``: sharex, sharey.
    """

    def height(size: PictureSize) -> float:
        panel = high if isinstance(high, float) else high(size)
        return rows_of(len(shown), size, wide) * panel

    def draw_all(body: SubFigure, size: PictureSize) -> None:
        across = size.across(len(shown), wide)
        grid = body.subplots(rows_of(len(shown), size, wide), across, squeeze=False, **shared)
        for ax in grid.flat[len(shown) :]:
            ax.remove()
        for ax in grid.flat[max(0, len(shown) - across) : len(shown)]:
            ax.tick_params(labelbottom=True)  # also of panels above an empty place
        for ax, text in zip(grid.flat, titles, strict=False):
            ax.set_title(cut(text, size.letters(size.body / across - beside, bold=True), "middle"))
        for i, item in enumerate(shown):
            draw(grid.flat[i], item, size)
            if ylabel and i % across == 0:
                grid.flat[i].set_ylabel(cut(ylabel, size.letters(_LONGEST_LABEL)))
        if xlabel:
            body.supxlabel(xlabel, size=size.points, color=FAINT)
        legend(body, styles or {}, size)

    return Drawing(title, " ".join(caption), height, draw_all, about)


def percent_scale(axis: Axis) -> None:
    """Shares as percentages, few of them."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 6):g} %"))


def few_ticks(axis: Axis, most: int = 5) -> None:
    """Ticks at round numbers, at most about this many."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]))


def log_scale(ax: Axes, axis: str, most: int = 6) -> None:
    """A logarithmic scale with plain numbers: powers of ten, and 2 and 5 times them where there are
    few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(ax, f"set_{axis}scale")("log", nonpositive="clip")
    which: Axis = getattr(ax, f"{axis}axis")
    low, high = getattr(ax, f"get_{axis}lim")()
    few = low <= 0 or high / low < 200
    which.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=most + 2))
    which.set_major_formatter(FuncFormatter(_number))
    which.set_minor_formatter(NullFormatter())


def _number(value: float, _: object) -> str:
    """A positive number as a label of a tick: 0.01, 20, 10k, 3M, 1e-07."""
    if 1e6 <= value < 1e9:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if 1e4 <= value < 1e6 else f"{value:g}"


def in_words(quantity: str) -> str:
    """The name of a quantity in a picture, in plain words."""
    return "robustness" if quantity == P_ROBUST.name else quantity.replace("_", " ")


def level_name(name: str) -> str:
    """The noise level's name as the label of a scale, in plain words."""
    return _LEVEL_NAMES.get(name, name)
