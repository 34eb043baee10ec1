"""Certified accuracy at some radii, results side by side, for terminals, pages and as CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from robaudit.compare.matching import check_same_images
from robaudit.errors import SpecError
from robaudit.levels import LevelChoice
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.summary_tables import run_names
from robaudit.report.tables import Column, Table, Terminal, cells
from robaudit.stats.certified import CertifiedAccuracy, certificates_of, certified_accuracy
from robaudit.stats.intervals import LIKE_THESE, ROW_CONFIDENCE, THESE_IMAGES
from robaudit.stats.summary import Share
from robaudit.store.run import Run
from robaudit.text import count

_STEPS = tuple(factor * 10.0**power for power in range(-4, 4) for factor in (1.0, 2.5, 5.0))
_MOST_RADII, _SIDE_BY_SIDE, _ON_A_PAGE = 8, 3, 4
_BEYOND = "not certifiable"


class OfRun(NamedTuple):
    """The certified accuracy of one result, and the name of its run."""

    run: str
    accuracy: CertifiedAccuracy


class CertifiedSection(Section[OfRun]):
    """Certified accuracy: the share of images whose class provably stays the same within a radius, and is the label."""

    uses = Section.uses | {"radius", "every_radius", "confidence"}

    def applies(self, run: Run) -> bool:
        """Whether it has labels and certified radii."""
        return run.info["clean_accuracy"] is not None and CERTIFIED.name in run.quantities

    def find(self, runs: Sequence[Run], ask: Ask) -> list[Found[OfRun]]:
        """The records of one result together, in the order of the runs.

        Raises:
            RunError: as :meth:`records`; or a run has other images than the first under the same ids.
        """
        for other in runs[1:]:
            check_same_images(runs[0], other)
        found = super().find(runs, ask)
        places = {key: i for i, key in enumerate(dict.fromkeys(one.record.accuracy.certificates.key for one in found))}
        named = [replace(one, record=one.record._replace(run=one.name)) for one in found]
        return sorted(named, key=lambda one: places[one.record.accuracy.certificates.key])

    def records(self, run: Run, ask: Ask) -> list[OfRun]:
        """The certified accuracy of each result."""
        return of_runs([run], ask.estimators, ask.levels, ROW_CONFIDENCE if ask.confidence is None else ask.confidence)

    def tables(self, found: Sequence[Found[OfRun]], ask: Ask) -> Iterator[Terminal]:
        """The results side by side.

        Raises:
            SpecError: every radius is asked for.
        """
        if ask.every_radius:
            raise SpecError("--radius all", "is too long for a table", "add --format csv or --format json")
        yield certified_tables([one.record for one in found], ask.radius)

    def table(self, one: Found[OfRun], ask: Ask) -> Terminal:
        """One result."""
        return certified_tables([one.record], ask.radius)

    def sheet(self, one: Found[OfRun], ask: Ask) -> Sheet:
        """A line for each number; the radii are those asked for, all, or the usual ones of this result."""
        return Sheet(_HEADS, _curve_lines(one.record) if ask.every_radius else _summary_lines(one.record, _radii(one.record, ask)))

    def document(self, one: Found[OfRun], ask: Ask) -> dict[str, Any]:
        """The same numbers."""
        steps = {"curve": one.record.accuracy.curve().document()} if ask.every_radius else {}
        return {**one.record.accuracy.document(_radii(one.record, ask)), **steps}


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
    return side_by_side(
        OfRun(name, certified_accuracy(one, confidence))
        for run, name in zip(runs, run_names(runs), strict=True)
        for one in certificates_of(run, estimators, levels)
    )


def side_by_side(every: Iterable[OfRun]) -> list[OfRun]:
    """Those of one result together, in the order in which they come."""
    found = list(every)
    places = {key: i for i, key in enumerate(dict.fromkeys(one.accuracy.certificates.key for one in found))}
    return sorted(found, key=lambda one: places[one.accuracy.certificates.key])


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


def certified_tables(every: Sequence[OfRun], radii: Sequence[float] = ()) -> Terminal:
    """Tables for a terminal: a column for each result, three side by side; results of different norms share no table.

    Args:
        every: at least one result.
        radii: those of the lines; default: :func:`usual_radii` of the results of a norm.
    """

    return Terminal(lambda narrow: _tables(every, radii, _SIDE_BY_SIDE, narrow=narrow))


def page_tables(every: Sequence[OfRun]) -> Iterator[Table]:
    """The same for a page, with mathematical signs."""
    return _tables(every, (), _ON_A_PAGE, page=True)


def titles(every: Sequence[OfRun]) -> list[str]:
    """The results without their norms: "certified_radius at sigma 0.25", with the names of the runs where there are several."""
    several = len({one.run for one in every}) > 1
    return [f"{one.run}: {_title(one)}" if several else _title(one) for one in every]


def _title(one: OfRun) -> str:
    key = one.accuracy.certificates.key
    return str(replace(key, estimator=ResultName.parse(key.estimator).estimator))


def _tables(every: Sequence[OfRun], radii: Sequence[float], abreast: int, *, narrow: bool = False, page: bool = False) -> Iterator[Table]:
    """Tables of so many results abreast, the notes below the last one."""
    blocks: list[list[tuple[str, OfRun]]] = []
    named = list(zip(titles(every), every, strict=True))
    for norm in dict.fromkeys(one.accuracy.certificates.norm for one in every):
        alike = [(title, one) for title, one in named if one.accuracy.certificates.norm == norm]
        blocks += [alike[i : i + abreast] for i in range(0, len(alike), abreast)]
    for i, block in enumerate(blocks):
        table = _table(block, radii or radii_beside(block[0][1], every), narrow=narrow, page=page)
        yield replace(table, notes=tuple(notes(named))) if i + 1 == len(blocks) else table


def _table(block: Sequence[tuple[str, OfRun]], radii: Sequence[float], *, narrow: bool, page: bool) -> Table:
    """A line for each radius and number, and a column for each of these results, all of one norm."""
    accuracies = [one.accuracy for _, one in block]
    lines = [
        ("clean accuracy", _shares(accuracies, lambda one: one.clean, narrow)),
        *((_radius_text(radius), [_at(one, radius, narrow) for one in accuracies]) for radius in radii),
        ("another class certified", _shares(accuracies, lambda one: one.wrong, narrow)),
        ("nothing certified", _shares(accuracies, lambda one: one.abstains, narrow)),
        ("mean radius", [_mean(one, narrow) for one in accuracies]),
        ("median radius", [f"{one.median:.4g}" for one in accuracies]),
        ("largest radius", [f"{one.largest:.4g}" for one in accuracies]),
    ]
    reach = [one.certificates.possible for one in accuracies]
    if any(map(math.isfinite, reach)):
        lines.append(("largest possible", [f"{most:.4g}" if math.isfinite(most) else numbers.NONE for most in reach]))
    sizes = [one.certificates.images for one in accuracies]
    if len(set(sizes)) > 1:
        lines.insert(0, ("images", [f"{size:,}" for size in sizes]))
    signed = numbers.signs if page else str
    norm = accuracies[0].certificates.norm
    return Table(
        f"Certified accuracy{f', radii in {norm}' if norm else ''}",
        (Column("radius r"), *(Column(title, number=True, wrap=True) for title, _ in block)),
        tuple(cells(map(signed, (name, *texts))) for name, texts in lines),
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


def _shares(every: Sequence[CertifiedAccuracy], of: Callable[[CertifiedAccuracy], Share], narrow: bool) -> list[str]:
    return [numbers.share_estimate(of(one), tight=narrow) for one in every]


def _at(one: CertifiedAccuracy, radius: float, narrow: bool) -> str:
    return _BEYOND if radius > one.certificates.possible else numbers.share_estimate(one.at(radius), tight=narrow)


def _mean(one: CertifiedAccuracy, narrow: bool) -> str:
    if one.interval is None:
        return f"{one.mean:.4g}"
    lower, upper = one.interval
    return f"{one.mean:.3g} [{lower:.3g},{'' if narrow else ' '}{upper:.3g}]"
