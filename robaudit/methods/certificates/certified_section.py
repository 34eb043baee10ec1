"""Certified accuracy at some radii, results side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.errors import SpecError
from robaudit.methods.certificates.accuracy import (
    AccuracyAtRadii,
    CertifiedAccuracy,
    certificates_of,
    certified_accuracy,
)
from robaudit.names import ResultName
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES
from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.layout import laid_out
from robaudit.report.numbers import span
from robaudit.report.pictures.page import (
    Drawing,
    PictureSize,
    few_ticks,
    paneled,
    percent_scale,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import ring
from robaudit.report.sections import Entry, Section, SectionOption, SectionRequest, by_name
from robaudit.report.tables import Table
from robaudit.report.typed import TEXT, WRITTEN, Beside, TypedColumn, TypedTable
from robaudit.runs.run import Run
from robaudit.settings import Setting
from robaudit.spec.fields import number
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Round distances between the radii of a table: 0.0001, 0.00025, 0.0005, 0.001, ...
_STEPS = tuple(factor * 10.0**power for power, factor in product(range(-4, 4), (1.0, 2.5, 5.0)))
_MOST_RADII = 8
_BEYOND = "not certifiable"


def read_radii(texts: Sequence[str], where: str) -> tuple[float, ...] | None:
    """The requested radii without repeats, ascending; None: every radius where certified accuracy
    falls.

    Raises:
        SpecError: a radius is not a number, or is negative.
    """
    if "all" in texts:
        if set(texts) != {"all"}:
            raise SpecError(f"{where} all", "includes every radius", "leave the others out")
        return None
    # a dictionary, because 0.5 and 1/2 are the same radius
    radii = {number(where, text): text for text in texts}
    for value, text in radii.items():
        if value < 0.0:
            raise SpecError(
                f"{where} {text}", "is not a radius", "give 0 or a positive number, or all"
            )
    return tuple(sorted(radii))


def _requested(request: SectionRequest) -> tuple[float, ...] | None:
    """The requested radii: none, some, or every (None)."""
    radii: tuple[float, ...] | None = request.options.get("radius", ())
    return radii


class CertifiedSection(Section[CertifiedAccuracy]):
    """Certified accuracy: the share of images whose class provably stays the same within a radius,
    and is the label."""

    title = "Certified accuracy"
    place = 20
    words = (
        "The share of images whose class provably stays the same within a radius, and is the "
        "label: unlike robustness under noise, it is "
        "relative to the label. A result of a noise level is about the network smoothed by that "
        "noise, any other about the network itself."
    )
    options = (
        SectionOption(
            "radius",
            "R|all",
            "certified: at this radius (repeatable), or at every one where it falls. Default: 0, "
            "0.25, 0.5, ...",
            read_radii,
        ),
    )

    def applies(self, run: Run) -> bool:
        """Whether it has labels and certified radii."""
        return run.info.clean_accuracy is not None and CERTIFIED.name in run.quantities

    def records(self, run: Run, request: SectionRequest) -> list[CertifiedAccuracy]:
        """The certified accuracy of each result."""
        return [
            certified_accuracy(certificates)
            for certificates in certificates_of(run, request.estimators, request.levels)
        ]

    def tables(
        self, entries: Sequence[Entry[CertifiedAccuracy]], request: SectionRequest
    ) -> Iterator[Table]:
        """A table for each norm, with a column for each result, runs side by side; the notes are
        below the last.

        Raises:
            SpecError: every radius is requested.
        """
        if _requested(request) is None:
            raise SpecError(
                Setting("radius").set_to("all"),
                "is too long for a table",
                "add --format csv or --format json",
            )
        named = _named(entries)
        norms = list(dict.fromkeys(accuracy.certificates.key.norm for _, accuracy in named))
        for norm in norms:
            alike = {
                title: accuracy
                for title, accuracy in named
                if accuracy.certificates.key.norm == norm
            }
            # the same radii for all of them, so that the columns can be compared
            radii = _requested(request) or usual_radii(list(alike.values()))
            sized = len({accuracy.certificates.images for accuracy in alike.values()}) > 1
            columns = [
                (title, _table(accuracy, radii, sized=sized)) for title, accuracy in alike.items()
            ]
            table = laid_out(columns, several=True)
            yield replace(table, notes=tuple(_notes(named))) if norm == norms[-1] else table

    def figure(
        self, entries: Sequence[Entry[CertifiedAccuracy]], request: SectionRequest
    ) -> Drawing:
        """Certified accuracy against radius: a panel for each norm, a step curve with its band for
        each of the first twelve results."""
        keys = [_parts(entry) for entry in entries]
        different = list(dict.fromkeys(keys))
        named = dict(zip(different, told_apart(different), strict=True))
        all_styles = dict(zip(named.values(), styles_of(different), strict=True))
        styles = dict(list(all_styles.items())[:_MOST_LINES])
        lines = []
        for key, entry in zip(keys, entries, strict=True):
            if named[key] in styles:
                lines.append((named[key], entry.record))

        def draw(ax: Axes, norm: str, _: PictureSize) -> None:
            curves = [
                (styles[name], accuracy)
                for name, accuracy in lines
                if accuracy.certificates.key.norm == norm
            ]
            end = 1.05 * max(*(accuracy.largest for _, accuracy in curves), 1e-12)
            for style, accuracy in curves:
                _curve(ax, accuracy, end, style)
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

    def document(self, entry: Entry[CertifiedAccuracy], request: SectionRequest) -> dict[str, Any]:
        """The numbers of the table, at the requested radii, at all, or at the usual radii of this
        result."""
        is_whole_curve = _requested(request) is None
        steps = {"curve": entry.record.curve().document()} if is_whole_curve else {}
        radii = _requested(request) or usual_radii([entry.record])
        return {**AccuracyAtRadii(entry.record, radii).document(), **steps}

    def lines(
        self, entry: Entry[CertifiedAccuracy], request: SectionRequest
    ) -> Iterator[Mapping[str, Any]]:
        """A line for each number."""
        certificates = entry.record.certificates
        numbers_of = (
            _steps(entry.record)
            if _requested(request) is None
            else _statistics(entry.record, _requested(request) or usual_radii([entry.record]))
        )
        for values in numbers_of:
            yield {
                **certificates.key.document(),
                "norm": certificates.key.norm,
                **dict(zip(_STATISTIC, values, strict=True)),
            }


def usual_radii(accuracies: Sequence[CertifiedAccuracy]) -> tuple[float, ...]:
    """0, .25, .5, .75, ... up to the largest radius that counts, in other round steps where .25
    does not suit it, eight at most; and the radii that estimators were asked about."""
    largest = max((accuracy.largest for accuracy in accuracies), default=0.0)
    step = next((step for step in _STEPS if largest < step * (_MOST_RADII + 1)), _STEPS[-1])
    if 0.25 <= largest < 0.25 * (_MOST_RADII + 1):
        step = 0.25  # as Cohen et al. 2019 report certified accuracy
    number_of_steps = min(math.floor(largest / step), _MOST_RADII)
    # 12 digits: 3 * 0.1 is 0.3, as the user writes it
    radii = {float(f"{i * step:.12g}") for i in range(number_of_steps + 1)}
    for accuracy in accuracies:
        if accuracy.certificates.asked is not None:
            radii.add(accuracy.certificates.asked)
    return tuple(sorted(radii))


def _named(entries: Sequence[Entry[CertifiedAccuracy]]) -> list[tuple[str, CertifiedAccuracy]]:
    """The results with their titles, runs side by side: "certified_radius at sigma 0.25", without
    the norm, after the run's name."""
    keys = list(dict.fromkeys(entry.record.certificates.key for entry in entries))
    several = len(by_name(entries)) > 1
    named = []
    for entry in sorted(entries, key=lambda entry: keys.index(entry.record.certificates.key)):
        key = entry.record.certificates.key
        title = str(replace(key, estimator=ResultName.parse(key.estimator).estimator))
        named.append((f"{entry.name}: {title}" if several else title, entry.record))
    return named


def _table(accuracy: CertifiedAccuracy, radii: Sequence[float], *, sized: bool) -> TypedTable:
    """A row for each number of a result, for a column beside other results of its norm.

    Args:
        accuracy: of the result.
        radii: at which it is shown.
        sized: whether the number of images is a row, as it differs between the results.
    """
    certificates = accuracy.certificates
    norm = certificates.key.norm
    rows: list[tuple[str, str | None]] = []
    if sized:
        rows.append(("images", f"{certificates.images:,}"))
    rows.append(("clean accuracy", numbers.percents(accuracy.clean.estimate)))
    rows += [(_radius_text(radius), _at(accuracy, radius)) for radius in radii]
    possible = f"{certificates.possible:.4g}" if math.isfinite(certificates.possible) else None
    rows += [
        ("another class certified", numbers.percents(accuracy.wrong.estimate)),
        ("nothing certified", numbers.percents(accuracy.abstains.estimate)),
        ("mean radius", _mean(accuracy)),
        ("median radius", f"{accuracy.median:.4g}"),
        ("largest radius", f"{accuracy.largest:.4g}"),
        ("largest possible", possible),
    ]
    return TypedTable(
        f"Certified accuracy, radii in {norm}" if norm else "Certified accuracy",
        _COLUMNS,
        rows,
        lines=() if sized else (count(certificates.images, "image"),),
        shows=lambda row: row[1] is not None,
        beside=Beside.COLUMNS,
    )


_COLUMNS = (TypedColumn("", TEXT, head="radius r"), TypedColumn("", WRITTEN, head="value"))


def _notes(named: Sequence[tuple[str, CertifiedAccuracy]]) -> Iterator[str]:
    """How to read the numbers, what they leave out, and the error probability of the
    certificates."""
    accuracies = [accuracy for _, accuracy in named]
    yield (
        "At r: share of images whose class is certified within r, and is the label; r > 0: "
        "within any radius."
    )
    yield f"[ ] 95 % interval, {LIKE_THESE}, each alone. For {THESE_IMAGES} the shares are exact."
    yield "Mean, median and largest radius: 0 where the certified class is not the label."
    if any(math.isfinite(accuracy.certificates.possible) for accuracy in accuracies):
        yield (
            "Largest possible: with these options, for any image; larger radii are not certifiable."
        )
    for alpha in dict.fromkeys(
        accuracy.certificates.alpha for accuracy in accuracies if accuracy.certificates.alpha
    ):
        same_alpha = [
            accuracy.certificates for accuracy in accuracies if accuracy.certificates.alpha == alpha
        ]
        names = ", ".join(
            dict.fromkeys(
                ResultName.parse(accuracy.key.estimator).estimator for accuracy in same_alpha
            )
        )
        most = max(accuracy.false_at_most for accuracy in same_alpha)
        yield (
            f"{names}: a certificate is false with probability at most {alpha:g}: at most "
            f"{most:.2g} expected among as many."
        )
    for title, accuracy in named:
        certificates = accuracy.certificates
        if certificates.asked is not None:
            yield (
                f"{title}: images stopped once r >= {certificates.asked:g} was decided: lower "
                "bounds at other radii."
            )
        if certificates.unlabelled:
            yield f"{title}: {count(certificates.unlabelled, 'image')} without a label left out."
        if certificates.not_finite:
            yield (
                f"{title}: {count(certificates.not_finite, 'image')} without a finite radius, "
                "not certified."
            )


_STATISTIC = ("statistic", "radius", "count", "images", "value", "lower", "upper")
_CERTIFIED = "certified_accuracy"


def _statistics(
    accuracy: CertifiedAccuracy, radii: Sequence[float]
) -> Iterator[tuple[object, ...]]:
    """The numbers of the table, below :data:`_STATISTIC`."""
    images = accuracy.certificates.images
    possible = accuracy.certificates.possible
    shares = [
        ("clean_accuracy", None, accuracy.clean),
        *((_CERTIFIED, radius, accuracy.at(radius)) for radius in radii),
    ]
    for name, radius, share in [
        *shares,
        ("wrong_class", None, accuracy.wrong),
        ("abstains", None, accuracy.abstains),
    ]:
        yield name, radius, share.count, share.total, share.value, *share.estimate.ends
    # the median and the largest radius are exact for these images, and have no interval for others
    yield "mean_radius", None, None, images, accuracy.mean.value, *accuracy.mean.ends
    others = {"median": accuracy.median, "largest": accuracy.largest}
    yield from (
        (f"{name}_radius", None, None, images, value, None, None) for name, value in others.items()
    )
    yield (
        "largest_possible",
        None,
        None,
        images,
        possible if math.isfinite(possible) else None,
        None,
        None,
    )


def _steps(accuracy: CertifiedAccuracy) -> Iterator[tuple[object, ...]]:
    """Certified accuracy at every radius where it falls."""
    curve = accuracy.curve()
    columns = (curve.radii, curve.counts, curve.values, curve.lowers, curve.uppers)
    for radius, certified, *share in zip(*(column.tolist() for column in columns), strict=True):
        yield _CERTIFIED, radius, certified, accuracy.certificates.images, *share


def _radius_text(radius: float) -> str:
    return f"r >= {radius:g}" if radius else "r > 0"


def _at(accuracy: CertifiedAccuracy, radius: float) -> str:
    """Certified accuracy at a radius."""
    if radius > accuracy.certificates.possible:
        return _BEYOND
    return numbers.percents(accuracy.at(radius).estimate)


def _mean(accuracy: CertifiedAccuracy) -> str:
    """The mean radius with its interval."""
    mean = accuracy.mean
    if not mean.has_interval:
        return f"{mean.value:.4g}"
    return f"{mean.value:.3g} {numbers.rough_interval(*mean.ends)}"


# --- the figure

_MOST_LINES = 12
_MOST_STEPS = 400
Line = tuple[str, CertifiedAccuracy]
"""The name of a line, and its result."""


def _parts(entry: Entry[CertifiedAccuracy]) -> tuple[str, str, str]:
    """Run, estimator without the norm, and level."""
    key = entry.record.certificates.key
    return (
        entry.name,
        ResultName.parse(key.estimator).estimator,
        "" if key.at.level is None else str(key.at),
    )


def _caption(lines: Sequence[Line], left: Sequence[str]) -> Iterator[str]:
    images = span([accuracy.certificates.images for _, accuracy in lines])
    yield (
        f"Share of {images} images whose class is certified within the radius, and is the label. "
        f"Band: 95 % Clopper-Pearson interval, {LIKE_THESE}, each radius alone. Ring: clean "
        "accuracy of the network itself."
    )
    for name, accuracy in lines:
        certificates = accuracy.certificates
        interval = numbers.rough_interval(*accuracy.mean.ends)
        facts = [
            f"mean radius {accuracy.mean.value:.3g} {interval}".rstrip(),
            f"nothing certified {numbers.percents(accuracy.abstains.estimate)}",
        ]
        if np.isfinite(certificates.possible):
            facts.append(f"at most {certificates.possible:.3g} possible")
        if certificates.asked is not None:
            facts.append(
                f"a lower bound but at {certificates.asked:g}, which its images were asked about"
            )
        norm = f" ({certificates.key.norm})" if certificates.key.norm else ""
        yield f"{name}{norm}: {', '.join(facts)}."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _curve(ax: Axes, accuracy: CertifiedAccuracy, end: float, style: dict[str, Any]) -> None:
    """Draw the steps: the curve has a radius's value up to and including that radius.

    Beyond the largest possible radius there is neither line nor band.
    """
    curve = accuracy.curve()
    # beyond the largest possible radius no image of any network could be certified
    last = min(end, accuracy.certificates.possible)
    beyond = accuracy.at(2.0 * end).estimate  # nothing is certified there
    lower, upper = beyond.bounds or (0.0, 1.0)
    # a data set may have as many steps as images: only some are drawn
    steps = len(curve.radii)
    at = np.unique(np.linspace(0, steps - 1, min(steps, _MOST_STEPS)).round().astype(int))
    radii = np.append(curve.radii[at], max(last, accuracy.largest))
    columns = ((curve.values, beyond.value), (curve.lowers, lower), (curve.uppers, upper))
    values, lowers, uppers = (np.append(column[at], zero) for column, zero in columns)
    ax.fill_between(
        radii, lowers, uppers, step="pre", color=style["color"], alpha=0.13, linewidth=0, zorder=1.5
    )
    ax.step(radii, values, where="pre", zorder=3, **style)
    ax.plot([0.0], [accuracy.clean.value], **ring(style["color"]))
