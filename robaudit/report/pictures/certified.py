"""The picture of certified accuracy against radius: a panel for each norm, a step curve with its band for each result and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.names import ResultName
from robaudit.report.numbers import share_estimate, span
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    legend,
    legend_rows,
    panels,
    percent_scale,
    rows_of,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import ring
from robaudit.report.sections import Ask, Found
from robaudit.stats.certified import CertifiedAccuracy
from robaudit.stats.intervals import LIKE_THESE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_LINES, _MOST_STEPS, _MOST_DETAILED = 12, 400, 4
_WIDE, _HIGH = 3.0, 2.6  # inches of a panel
Line = tuple[str, CertifiedAccuracy]
"""A result with the name of its line."""


def sketch(found: Sequence[Found[CertifiedAccuracy]], _: Ask) -> Sketch:
    """The picture of these results, at least one; the first twelve."""
    keys = [_parts(one) for one in found]
    named = dict(zip(names := list(dict.fromkeys(keys)), told_apart(names), strict=True))
    styles = dict(list(zip(named.values(), styles_of(names), strict=True))[:_MOST_LINES])
    lines = [(named[key], one.record) for key, one in zip(keys, found, strict=True) if named[key] in styles]
    norms = list(dict.fromkeys(accuracy.certificates.key.norm for _, accuracy in lines))
    return Sketch(
        title="Certified accuracy against radius",
        caption=" ".join(_caption(lines, list(named.values())[_MOST_LINES:])),
        height=lambda look: rows_of(len(norms), look, _WIDE) * _HIGH + legend_rows(list(styles), look) * look.line,
        draw=lambda body, look: _draw(body, look, norms, lines, styles),
    )


def _parts(one: Found[CertifiedAccuracy]) -> tuple[str, str, str]:
    """Run, estimator without the norm, and level."""
    key = one.record.certificates.key
    return one.name, ResultName.parse(key.estimator).estimator, "" if key.at.level is None else str(key.at)


def _caption(lines: Sequence[Line], left: Sequence[str]) -> Iterator[str]:
    level = f"{100 * lines[0][1].confidence:.4g} %"
    yield (
        f"Share of {span([one.certificates.images for _, one in lines])} images whose class is certified within the radius, and is the "
        f"label. Band: {level} Clopper-Pearson interval, {LIKE_THESE}, each radius alone. Ring: clean accuracy of the network itself."
    )
    for name, one in lines:
        ends = "" if one.interval is None else f" [{one.interval[0]:.3g}, {one.interval[1]:.3g}]"
        words = [f"mean radius {one.mean:.3g}{ends}"]
        if len(lines) <= _MOST_DETAILED:
            words.append(f"nothing certified {share_estimate(one.abstains)}")
            words += [f"another class {share_estimate(one.wrong)}"] if one.wrong.count else []
        if np.isfinite(one.certificates.possible):
            words.append(f"at most {one.certificates.possible:.3g} possible")
        if one.certificates.asked is not None:
            words.append(f"a lower bound but at {one.certificates.asked:g}, which its images were asked about")
        yield f"{name}{f' ({one.certificates.key.norm})' if one.certificates.key.norm else ''}: {', '.join(words)}."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _draw(body: SubFigure, look: PictureSize, norms: Sequence[str], lines: Sequence[Line], styles: Mapping[str, dict[str, Any]]) -> None:
    for ax, norm in zip(panels(body, len(norms), look, _WIDE, sharey=True), norms, strict=True):
        mine = [(styles[name], one) for name, one in lines if one.certificates.key.norm == norm]
        end = 1.05 * max(*(one.largest for _, one in mine), 1e-12)
        for style, one in mine:
            _curve(ax, one, end, style)
        ax.set(xlim=(0.0, end), ylim=(0.0, 1.02), xlabel=f"{norm} radius" if norm else "radius")
        few_ticks(ax.xaxis)
        percent_scale(ax.yaxis)
        if ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            ax.set_ylabel("certified accuracy")
    legend(body, list(styles), list(styles.values()), look)


def _curve(ax: Axes, one: CertifiedAccuracy, end: float, style: dict[str, Any]) -> None:
    """The steps: at a radius where it falls, the curve still has the value of that radius, and then that of the next one.

    Where nothing could have been certified it has neither line nor band.
    """
    curve, last = one.curve(), min(end, one.certificates.possible)
    beyond = one.at(2.0 * end)  # nothing
    at = np.unique(np.linspace(0, len(curve.radii) - 1, min(len(curve.radii), _MOST_STEPS)).round().astype(int))
    radii = np.append(curve.radii[at], max(last, one.largest))
    columns = ((curve.values, beyond.value), (curve.lowers, beyond.lower), (curve.uppers, beyond.upper))
    values, lowers, uppers = (np.append(of[at], zero) for of, zero in columns)
    ax.fill_between(radii, lowers, uppers, step="pre", color=style["color"], alpha=0.13, linewidth=0, zorder=1.5)
    ax.step(radii, values, where="pre", zorder=3, **style)
    ax.plot([0.0], [one.clean.value], **ring(style["color"]))
