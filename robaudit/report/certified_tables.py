"""Certified accuracy at some radii, results side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from robaudit.errors import SpecError
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.certified import CertifiedAccuracy, certificates_of, certified_accuracy
from robaudit.stats.intervals import LIKE_THESE, ROW_CONFIDENCE, THESE_IMAGES
from robaudit.store.run import Run
from robaudit.text import count

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

    def document(self, one: Found[CertifiedAccuracy], ask: Ask) -> dict[str, Any]:
        """The numbers of the table, at the radii asked for, all, or the usual ones of this result."""
        steps = {"curve": one.record.curve().document()} if ask.every_radius else {}
        return {**one.record.document(ask.radius or usual_radii([one.record])), **steps}

    def lines(self, one: Found[CertifiedAccuracy], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each number."""
        lines = _curve_lines(one.record) if ask.every_radius else _summary_lines(one.record, ask.radius or usual_radii([one.record]))
        return (dict(zip(_HEADS, line, strict=True)) for line in lines)


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


_KEY = ("estimator", "noise", "level_name", "level", "quantity", "norm")
_HEADS = (*_KEY, "statistic", "radius", "count", "images", "value", "lower", "upper")
_CERTIFIED = "certified_accuracy"


def _key(one: CertifiedAccuracy) -> list[object]:
    given = one.certificates
    return [*given.key.document().values(), given.key.norm]


def _summary_lines(one: CertifiedAccuracy, radii: Sequence[float]) -> Iterator[list[object]]:
    key, n = _key(one), one.certificates.images
    shares = [("clean_accuracy", None, one.clean), *((_CERTIFIED, radius, one.at(radius)) for radius in radii)]
    for name, radius, share in [*shares, ("wrong_class", None, one.wrong), ("abstains", None, one.abstains)]:
        yield [*key, name, radius, share.count, share.total, share.value, share.lower, share.upper]
    yield [*key, "mean_radius", None, None, n, one.mean, *(one.interval or (None, None))]
    possible = one.certificates.possible
    for name, value in (
        ("median_radius", one.median),
        ("largest_radius", one.largest),
        ("largest_possible", possible if math.isfinite(possible) else None),
    ):
        yield [*key, name, None, None, n, value, None, None]


def _curve_lines(one: CertifiedAccuracy) -> Iterator[list[object]]:
    key, curve = _key(one), one.curve()
    columns = (curve.radii, curve.counts, curve.values, curve.lowers, curve.uppers)
    for radius, certified, value, lower, upper in zip(*(column.tolist() for column in columns), strict=True):
        yield [*key, _CERTIFIED, radius, certified, one.certificates.images, value, lower, upper]


def _radius_text(radius: float) -> str:
    return f"r >= {radius:g}" if radius else "r > 0"


def _at(one: CertifiedAccuracy, radius: float) -> str:
    return _BEYOND if radius > one.certificates.possible else numbers.share_estimate(one.at(radius))


def _mean(one: CertifiedAccuracy) -> str:
    if one.interval is None:
        return f"{one.mean:.4g}"
    lower, upper = one.interval
    return f"{one.mean:.3g} [{lower:.3g}, {upper:.3g}]"
