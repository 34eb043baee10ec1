"""Pictures of the pages: small PNG files in robaudit's style."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from robaudit.files import write_atomically
from robaudit.report.pictures.style import CARD, line_style, quiet, styled
from tests.research.papers.item import Floats, Session, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 110
_COLOURS = 64
Curve = tuple[Sequence[float], Sequence[Floats]]
"""Places on the x axis, and the values of all images at each."""


def picture(
    session: Session,
    name: str,
    size: tuple[float, float],
    draw: Callable[[Figure], None],
    alt: str,
    colours: int = _COLOURS,
) -> str:
    """Write a picture; returns the Markdown that shows it."""
    from matplotlib.figure import Figure

    drawn = io.BytesIO()
    sink = io.BytesIO()
    with styled(8):
        figure = Figure(figsize=size, facecolor=CARD, layout="constrained")
        draw(figure)
        figure.savefig(drawn, dpi=_DPI, facecolor=CARD)
    image = Image.open(drawn).convert("RGB")
    image.quantize(colours, dither=Image.Dither.NONE).save(sink, "PNG", optimize=True)
    session.pages.mkdir(parents=True, exist_ok=True)
    write_atomically(session.pages / f"{name}.png", sink.getvalue())
    return f"![{alt}]({name}.png)"


def curves(ax: Axes, lines: Mapping[str, Curve]) -> None:
    """Means over images with their 95 % intervals, a line for each name."""
    for place, (name, (x, each)) in enumerate(lines.items()):
        style = line_style(place, marks=True)
        found = [mean(one[np.isfinite(one)]) for one in each]
        ax.plot(x, [one.estimate.value for one in found], label=name, markersize=4, **style)
        low, high = zip(*(one.estimate.ends for one in found), strict=True)
        ax.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def panels(
    session: Session,
    name: str,
    alt: str,
    found: Mapping[str, Mapping[str, Curve]],
    x: str,
    y: str,
    *,
    log: str = "",
    across: int = 4,
) -> str:
    """A panel of curves for each title, with one legend."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    down = -(-len(found) // across)
    across = min(across, len(found))

    def draw(figure: Figure) -> None:
        axes = figure.subplots(down, across, sharey=True, squeeze=False)
        for ax in axes.flat[len(found) :]:
            ax.set_visible(False)
        for ax, (title, lines) in zip(axes.flat, found.items(), strict=False):
            curves(ax, lines)
            ax.set_title(title)
            ax.set_xlabel(x)
            if "x" in log:
                ax.set_xscale("log")
                ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
                ax.xaxis.set_minor_formatter(NullFormatter())
            if "y" in log:
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for row in axes:
            row[0].set_ylabel(y)
        handles, names = axes.flat[0].get_legend_handles_labels()
        fits = int(figure.get_figwidth() / (0.6 + 0.07 * max(map(len, names))))
        figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=max(1, min(len(names), fits)),
            frameon=False,
        )

    return picture(session, name, (1.2 + 2.2 * across, 0.7 + 2.1 * down), draw, alt)


def gallery(
    session: Session,
    name: str,
    alt: str,
    rows: Mapping[str, Sequence[NDArray[np.float64]]],
    captions: Mapping[str, Sequence[str]],
) -> str:
    """Rows of images (channels, height, width), values in [0, 1]."""
    across = max(len(images) for images in rows.values())

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(rows), across, squeeze=False)
        for line, (title, images) in zip(axes, rows.items(), strict=True):
            for place, ax in enumerate(line):
                quiet(ax)
                if place < len(images):
                    shown = images[place].transpose(1, 2, 0).clip(0, 1)
                    ax.imshow(
                        shown if shown.shape[2] == 3 else shown[:, :, 0],
                        cmap="gray",
                        vmin=0,
                        vmax=1,
                    )
                    ax.set_xlabel(captions[title][place], fontsize=6.5, labelpad=1)
            line[0].set_ylabel(title, fontsize=7.5)

    return picture(session, name, (0.75 * across + 0.3, 0.95 * len(rows) + 0.1), draw, alt, 128)
