"""Certified accuracy at some radii, results side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from robaudit.errors import SpecError
from robaudit.levels import LevelChoice
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, run_names
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.certified import CertifiedAccuracy, certificates_of, certified_accuracy
from robaudit.stats.intervals import LIKE_THESE, ROW_CONFIDENCE, THESE_IMAGES
from robaudit.store.run import Run
from robaudit.text import count

_STEPS = tuple(factor * 10.0**power for power in range(-4, 4) for factor in (1.0, 2.5, 5.0))
_MOST_RADII = 8
_BEYOND = "not certifiable"


class OfRun(NamedTuple):
    """The certified accuracy of one result, and the name of its run."""

    run: str
    accuracy: CertifiedAccuracy


class CertifiedSection(Section[OfRun]):
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

    def find(self, runs: Sequence[Run], ask: Ask) -> list[Found[OfRun]]:
        """The records of one result together, in the order of the runs, with their names."""
        return side_by_side([replace(one, record=one.record._replace(run=one.name)) for one in super().find(runs, ask)])

    def records(self, run: Run, ask: Ask) -> list[OfRun]:
        """The certified accuracy of each result."""
        return of_runs([run], ask.estimators, ask.levels, ROW_CONFIDENCE if ask.confidence is None else ask.confidence)

    def tables(self, found: Sequence[Found[OfRun]], ask: Ask) -> Iterator[Table]:
        """A column for each result; results of different norms share no table.

        Raises:
            SpecError: every radius is asked for.
        """
        if ask.every_radius:
            raise SpecError("--radius all", "is too long for a table", "add --format csv or --format json")
        return certified_tables([one.record for one in side_by_side(found)], ask.radius)

    def document(self, one: Found[OfRun], ask: Ask) -> dict[str, Any]:
        """The numbers of the table, at the radii asked for, all, or the usual ones of this result."""
        steps = {"curve": one.record.accuracy.curve().document()} if ask.every_radius else {}
        return {**one.record.accuracy.document(_radii(one.record, ask)), **steps}

    def lines(self, one: Found[OfRun], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each number."""
        lines = _curve_lines(one.record) if ask.every_radius else _summary_lines(one.record, _radii(one.record, ask))
        return (dict(zip(_HEADS, line, strict=True)) for line in lines)


def _radii(one: OfRun, ask: Ask) -> Sequence[float]:
    return ask.radius or usual_radii([one.accuracy])


def of_runs(
    runs: Sequence[Run], estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = (), confidence: float = ROW_CONFIDENCE
) -> list[OfRun]:
    """The certified accuracies of some runs: those of one result stand together, in the order of the runs.

    Args:
        runs: at least one.
        estimators, levels: only these, which each run must have.
        confidence: of the intervals.

    Raises:
        RunError: a run has no certified radii among those named, or no labels.
    """
    found = [
        OfRun(name, certified_accuracy(one, confidence))
        for run, name in zip(runs, run_names(runs), strict=True)
        for one in certificates_of(run, estimators, levels)
    ]
    places = {key: i for i, key in enumerate(dict.fromkeys(one.accuracy.certificates.key for one in found))}
    return sorted(found, key=lambda one: places[one.accuracy.certificates.key])


def side_by_side(found: Sequence[Found[OfRun]]) -> list[Found[OfRun]]:
    """Those of one result together, in the order in which they come."""
    places = {key: i for i, key in enumerate(dict.fromkeys(one.record.accuracy.certificates.key for one in found))}
    return sorted(found, key=lambda one: places[one.record.accuracy.certificates.key])


def usual_radii(every: Sequence[CertifiedAccuracy]) -> tuple[float, ...]:
    """0, .25, .5, .75, ... up to the largest radius that counts, or other round steps of which at most eight are needed; and those that an
    estimator was asked about."""
    largest = max((one.largest for one in every), default=0.0)
    step = next((step for step in _STEPS if largest < step * (_MOST_RADII + 1)), _STEPS[-1])
    usual = 0.25 if 0.25 <= largest < 0.25 * (_MOST_RADII + 1) else step
    steps = {float(f"{i * usual:.12g}") for i in range(min(math.floor(largest / usual), _MOST_RADII) + 1)}
    return tuple(sorted(steps | {one.certificates.asked for one in every if one.certificates.asked is not None}))


def radii_beside(one: OfRun, every: Sequence[OfRun]) -> tuple[float, ...]:
    """The usual radii of all results of its norm: those that it is shown at."""
    return usual_radii([other.accuracy for other in every if other.accuracy.certificates.norm == one.accuracy.certificates.norm])


def certified_tables(every: Sequence[OfRun], radii: Sequence[float] = ()) -> Iterator[Table]:
    """A table for each norm, with a column for each result; the notes are below the last.

    Args:
        every: at least one result.
        radii: those of the lines; default: :func:`usual_radii` of the results of a norm.
    """
    named = list(zip(titles(every), every, strict=True))
    norms = list(dict.fromkeys(one.accuracy.certificates.norm for one in every))
    for norm in norms:
        alike = [(title, one) for title, one in named if one.accuracy.certificates.norm == norm]
        table = _table(alike, radii or radii_beside(alike[0][1], every))
        yield replace(table, notes=tuple(notes(named))) if norm == norms[-1] else table


def titles(every: Sequence[OfRun]) -> list[str]:
    """The results without their norms: "certified_radius at sigma 0.25", with the names of the runs where there are several."""
    several = len({one.run for one in every}) > 1
    return [f"{one.run}: {_title(one)}" if several else _title(one) for one in every]


def _title(one: OfRun) -> str:
    key = one.accuracy.certificates.key
    return str(replace(key, estimator=ResultName.parse(key.estimator).estimator))


def _table(block: Sequence[tuple[str, OfRun]], radii: Sequence[float]) -> Table:
    """A line for each radius and number, and a column for each of these results, all of one norm."""
    accuracies = [one.accuracy for _, one in block]
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
    norm = accuracies[0].certificates.norm
    return Table(
        f"Certified accuracy{f', radii in {norm}' if norm else ''}",
        (Column("radius r"), *(Column(title, number=True) for title, _ in block)),
        tuple(cells((name, *texts)) for name, texts in lines),
        lines=(count(sizes[0], "image"),) if len(set(sizes)) == 1 else (),
    )


def notes(named: Sequence[tuple[str, OfRun]]) -> Iterator[str]:
    """How to read the numbers, what they leave out, and the error probability of the certificates.

    Args:
        named: results with their titles, at least one.
    """
    every = [one.accuracy for _, one in named]
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
        given = one.accuracy.certificates
        if given.asked is not None:
            yield f"{title}: images stopped once r >= {given.asked:g} was decided: lower bounds at other radii."
        if given.unlabelled:
            yield f"{title}: {count(given.unlabelled, 'image')} without a label left out."
        if given.not_finite:
            yield f"{title}: {count(given.not_finite, 'image')} without a finite radius, not certified."


_KEY = ("estimator", "noise", "level_name", "level", "quantity", "norm")
_HEADS = (*_KEY, "statistic", "radius", "count", "images", "value", "lower", "upper")
_CERTIFIED = "certified_accuracy"


def _key(one: OfRun) -> list[object]:
    given = one.accuracy.certificates
    return [*given.key.document().values(), given.norm]


def _summary_lines(one: OfRun, radii: Sequence[float]) -> Iterator[list[object]]:
    made, key, n = one.accuracy, _key(one), one.accuracy.certificates.images
    shares = [("clean_accuracy", None, made.clean), *((_CERTIFIED, radius, made.at(radius)) for radius in radii)]
    for name, radius, share in [*shares, ("wrong_class", None, made.wrong), ("abstains", None, made.abstains)]:
        yield [*key, name, radius, share.count, share.total, share.value, share.lower, share.upper]
    yield [*key, "mean_radius", None, None, n, made.mean, *(made.interval or (None, None))]
    possible = one.accuracy.certificates.possible
    for name, value in (
        ("median_radius", made.median),
        ("largest_radius", made.largest),
        ("largest_possible", possible if math.isfinite(possible) else None),
    ):
        yield [*key, name, None, None, n, value, None, None]


def _curve_lines(one: OfRun) -> Iterator[list[object]]:
    key, curve = _key(one), one.accuracy.curve()
    columns = (curve.radii, curve.counts, curve.values, curve.lowers, curve.uppers)
    for radius, certified, value, lower, upper in zip(*(column.tolist() for column in columns), strict=True):
        yield [*key, _CERTIFIED, radius, certified, one.accuracy.certificates.images, value, lower, upper]


def _radius_text(radius: float) -> str:
    return f"r >= {radius:g}" if radius else "r > 0"


def _at(one: CertifiedAccuracy, radius: float) -> str:
    return _BEYOND if radius > one.certificates.possible else numbers.share_estimate(one.at(radius))


def _mean(one: CertifiedAccuracy) -> str:
    if one.interval is None:
        return f"{one.mean:.4g}"
    lower, upper = one.interval
    return f"{one.mean:.3g} [{lower:.3g}, {upper:.3g}]"
