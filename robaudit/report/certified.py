"""Certified accuracy at some radii, results side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.errors import SpecError
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.numbers import share_estimate, span
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    paneled,
    percent_scale,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import ring
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.certified import CertifiedAccuracy, certificates_of, certified_accuracy
from robaudit.stats.intervals import LIKE_THESE, ROW_CONFIDENCE, THESE_IMAGES
from robaudit.store.run import Run
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = tuple(factor * 10.0**power for power in range(-4, 4) for factor in (1.0, 2.5, 5.0))
_MOST_RADII = 8
_BEYOND = "not certifiable"


class CertifiedSection(Section[CertifiedAccuracy]):
    """Certified accuracy: the share of images whose class provably stays the same within a radius, and is the label."""

    title = "Certified accuracy"
    words = (
        "The share of images whose class provably stays the same within a radius, and is the label: unlike robustness under noise, it is "
        "relative to the label. A result of a noise level is about the network smoothed by that noise, any other about the network itself."
    )
    uses = Section.uses | {"radius", "every_radius", "confidence"}

    def applies(self, run: Run) -> bool:
        """Whether it has labels and certified radii."""
        return run.info["clean_accuracy"] is not None and CERTIFIED.name in run.quantities

    def records(self, run: Run, ask: Ask) -> list[CertifiedAccuracy]:
        """The certified accuracy of each result."""
        confidence = ROW_CONFIDENCE if ask.confidence is None else ask.confidence
        return [certified_accuracy(one, confidence) for one in certificates_of(run, ask.estimators, ask.levels)]

    def tables(self, found: Sequence[Found[CertifiedAccuracy]], ask: Ask) -> Iterator[Table]:
        """A table for each norm, with a column for each result, runs side by side; the notes are below the last.

        Raises:
            SpecError: every radius is asked for.
        """
        if ask.every_radius:
            raise SpecError("--radius all", "is too long for a table", "add --format csv or --format json")
        named = _named(found)
        norms = list(dict.fromkeys(one.certificates.key.norm for _, one in named))
        for norm in norms:
            alike = [(title, one) for title, one in named if one.certificates.key.norm == norm]
            table = _table(alike, ask.radius or usual_radii([one for _, one in alike]))
            yield replace(table, notes=tuple(_notes(named))) if norm == norms[-1] else table

    def figure(self, found: Sequence[Found[CertifiedAccuracy]], ask: Ask) -> Sketch:
        """Certified accuracy against radius: a panel for each norm, a step curve with its band for each of the first twelve results."""
        keys = [_parts(one) for one in found]
        named = dict(zip(names := list(dict.fromkeys(keys)), told_apart(names), strict=True))
        styles = dict(list(zip(named.values(), styles_of(names), strict=True))[:_MOST_LINES])
        lines = [(named[key], one.record) for key, one in zip(keys, found, strict=True) if named[key] in styles]

        def draw(ax: Axes, norm: str, _: PictureSize) -> None:
            mine = [(styles[name], one) for name, one in lines if one.certificates.key.norm == norm]
            end = 1.05 * max(*(one.largest for _, one in mine), 1e-12)
            for style, one in mine:
                _curve(ax, one, end, style)
            ax.set(xlim=(0.0, end), ylim=(0.0, 1.02), xlabel=f"{norm} radius" if norm else "radius")
            few_ticks(ax.xaxis)
            percent_scale(ax.yaxis)

        return paneled(
            "Certified accuracy against radius",
            _caption(lines, list(named.values())[_MOST_LINES:]),
            list(dict.fromkeys(accuracy.certificates.key.norm for _, accuracy in lines)),
            draw,
            wide=3.0,
            high=2.6,
            styles=styles,
            ylabel="certified accuracy",
            sharey=True,
        )

    def document(self, one: Found[CertifiedAccuracy], ask: Ask) -> dict[str, Any]:
        """The numbers of the table, at the radii asked for, all, or the usual ones of this result."""
        steps = {"curve": one.record.curve().document()} if ask.every_radius else {}
        return {**one.record.document(ask.radius or usual_radii([one.record])), **steps}

    def lines(self, one: Found[CertifiedAccuracy], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each number."""
        given = one.record.certificates
        numbers_of = _steps(one.record) if ask.every_radius else _statistics(one.record, ask.radius or usual_radii([one.record]))
        for values in numbers_of:
            yield {**given.key.document(), "norm": given.key.norm, **dict(zip(_COLUMNS, values, strict=True))}


def usual_radii(every: Sequence[CertifiedAccuracy]) -> tuple[float, ...]:
    """0, .25, .5, .75, ... up to the largest radius that counts, or other round steps of which at most eight are needed; and those that an
    estimator was asked about."""
    largest = max((one.largest for one in every), default=0.0)
    step = next((step for step in _STEPS if largest < step * (_MOST_RADII + 1)), _STEPS[-1])
    usual = 0.25 if 0.25 <= largest < 0.25 * (_MOST_RADII + 1) else step
    steps = {float(f"{i * usual:.12g}") for i in range(min(math.floor(largest / usual), _MOST_RADII) + 1)}
    return tuple(sorted(steps | {one.certificates.asked for one in every if one.certificates.asked is not None}))


def _named(found: Sequence[Found[CertifiedAccuracy]]) -> list[tuple[str, CertifiedAccuracy]]:
    """The results, runs side by side, with titles without their norms ("certified_radius at sigma 0.25"), behind the names of runs."""
    places = {key: i for i, key in enumerate(dict.fromkeys(one.record.certificates.key for one in found))}
    several, named = len(by_name(found)) > 1, []
    for one in sorted(found, key=lambda one: places[one.record.certificates.key]):
        key = one.record.certificates.key
        title = str(replace(key, estimator=ResultName.parse(key.estimator).estimator))
        named.append((f"{one.name}: {title}" if several else title, one.record))
    return named


def _table(block: Sequence[tuple[str, CertifiedAccuracy]], radii: Sequence[float]) -> Table:
    """A line for each radius and number, and a column for each of these results, all of one norm."""
    accuracies = [one for _, one in block]
    lines: list[tuple[str, list[str]]] = [
        ("clean accuracy", [numbers.share_estimate(one.clean) for one in accuracies]),
        *((_radius_text(radius), [_at(one, radius) for one in accuracies]) for radius in radii),
        ("another class certified", [numbers.share_estimate(one.wrong) for one in accuracies]),
        ("nothing certified", [numbers.share_estimate(one.abstains) for one in accuracies]),
        ("mean radius", [_mean(one) for one in accuracies]),
        ("median radius", [f"{one.median:.4g}" for one in accuracies]),
        ("largest radius", [f"{one.largest:.4g}" for one in accuracies]),
    ]
    reach = [one.certificates.possible for one in accuracies]
    if any(map(math.isfinite, reach)):
        lines.append(("largest possible", [f"{most:.4g}" if math.isfinite(most) else numbers.NONE for most in reach]))
    sizes = [one.certificates.images for one in accuracies]
    if len(set(sizes)) > 1:
        lines.insert(0, ("images", [f"{size:,}" for size in sizes]))
    norm = accuracies[0].certificates.key.norm
    return Table(
        f"Certified accuracy{f', radii in {norm}' if norm else ''}",
        (Column("radius r"), *(Column(title, number=True) for title, _ in block)),
        tuple(cells((name, *texts)) for name, texts in lines),
        lines=(count(sizes[0], "image"),) if len(set(sizes)) == 1 else (),
    )


def _notes(named: Sequence[tuple[str, CertifiedAccuracy]]) -> Iterator[str]:
    """How to read the numbers, what they leave out, and the error probability of the certificates."""
    every = [one for _, one in named]
    level = f"{100 * every[0].confidence:.4g} %"
    yield "At r: share of images whose class is certified within r, and is the label; r > 0: within any radius."
    yield f"[ ] {level} interval, {LIKE_THESE}, each alone. For {THESE_IMAGES} the shares are exact."
    yield "Mean, median and largest radius: 0 where the certified class is not the label."
    if any(math.isfinite(one.certificates.possible) for one in every):
        yield "Largest possible: with these options, for any image; larger radii are not certifiable."
    for alpha in dict.fromkeys(one.certificates.alpha for one in every if one.certificates.alpha):
        mine = [one.certificates for one in every if one.certificates.alpha == alpha]
        names = ", ".join(dict.fromkeys(ResultName.parse(one.key.estimator).estimator for one in mine))
        most = max(one.false_at_most for one in mine)
        yield f"{names}: a certificate is false with probability at most {alpha:g}: at most {most:.2g} expected among as many."
    for title, one in named:
        given = one.certificates
        if given.asked is not None:
            yield f"{title}: images stopped once r >= {given.asked:g} was decided: lower bounds at other radii."
        if given.unlabelled:
            yield f"{title}: {count(given.unlabelled, 'image')} without a label left out."
        if given.not_finite:
            yield f"{title}: {count(given.not_finite, 'image')} without a finite radius, not certified."


_COLUMNS = ("statistic", "radius", "count", "images", "value", "lower", "upper")
_CERTIFIED = "certified_accuracy"


def _statistics(one: CertifiedAccuracy, radii: Sequence[float]) -> Iterator[tuple[object, ...]]:
    """The numbers of the table."""
    images, possible = one.certificates.images, one.certificates.possible
    shares = [("clean_accuracy", None, one.clean), *((_CERTIFIED, radius, one.at(radius)) for radius in radii)]
    for name, radius, share in [*shares, ("wrong_class", None, one.wrong), ("abstains", None, one.abstains)]:
        yield name, radius, share.count, share.total, share.value, share.lower, share.upper
    yield "mean_radius", None, None, images, one.mean, *(one.interval or (None, None))
    others = {"median": one.median, "largest": one.largest}
    yield from ((f"{name}_radius", None, None, images, value, None, None) for name, value in others.items())
    yield "largest_possible", None, None, images, possible if math.isfinite(possible) else None, None, None


def _steps(one: CertifiedAccuracy) -> Iterator[tuple[object, ...]]:
    """Certified accuracy at every radius at which it falls."""
    curve = one.curve()
    columns = (curve.radii, curve.counts, curve.values, curve.lowers, curve.uppers)
    for radius, certified, *share in zip(*(column.tolist() for column in columns), strict=True):
        yield _CERTIFIED, radius, certified, one.certificates.images, *share


def _radius_text(radius: float) -> str:
    return f"r >= {radius:g}" if radius else "r > 0"


def _at(one: CertifiedAccuracy, radius: float) -> str:
    return _BEYOND if radius > one.certificates.possible else numbers.share_estimate(one.at(radius))


def _mean(one: CertifiedAccuracy) -> str:
    return f"{one.mean:.4g}" if one.interval is None else f"{one.mean:.3g} {numbers.rough_interval(*one.interval)}"


# --- the figure

_MOST_LINES, _MOST_STEPS, _MOST_DETAILED = 12, 400, 4
Line = tuple[str, CertifiedAccuracy]
"""A result with the name of its line."""


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
        words = [f"mean radius {one.mean:.3g} {numbers.rough_interval(*(one.interval or (None, None)))}".rstrip()]
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
