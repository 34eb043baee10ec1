"""Robustness and accuracy against the noise level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robaudit.quantities import P_ROBUST, Quantity
from robaudit.report import numbers
from robaudit.report.differences import Changes, changes_of, difference
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.summary_tables import bar_of, mean_cell
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.levels import LevelCurve, LevelPoint, level_curves
from robaudit.store.run import Run


class LevelSection(Section[LevelCurve]):
    """Accuracy under noise and robustness by the level of the noise, for each estimator and noise."""

    title = "Accuracy and robustness by noise level"
    main_only = True
    words = (
        "Accuracy under noise counts the noisy copies that are classified as labelled; robustness compares with the prediction on the "
        "clean image, right or wrong."
    )

    def applies(self, run: Run) -> bool:
        """Whether a noise has levels."""
        return bool(run.info["spec"].get("noise"))

    def records(self, run: Run, ask: Ask) -> Sequence[LevelCurve]:
        """A curve for each result and noise."""
        return level_curves(run, ask.estimators, ask.levels)

    def tables(self, found: Sequence[Found[LevelCurve]], ask: Ask) -> Iterator[Table]:
        """A table for each result and noise, with a line for each level and run."""
        several = len(by_name(found)) > 1
        changes = changes_of(found) if several else {}
        for key in dict.fromkeys((one.record.estimator, one.record.noise, one.record.quantity.name) for one in found):
            mine = [one for one in found if (one.record.estimator, one.record.noise, one.record.quantity.name) == key]
            yield _table(mine, changes, several)

    def lines(self, one: Found[LevelCurve], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each level."""
        for point in one.record.points:
            yield {"estimator": one.record.estimator, "noise": one.record.noise, "quantity": one.record.quantity.name, **point.document()}


def _table(found: Sequence[Found[LevelCurve]], changes: Mapping[str, Changes], several: bool) -> Table:
    first = found[0].record
    points = [point for one in found for point in one.record.points]
    levels, labelled = list(dict.fromkeys(point.at for point in points)), any(point.accuracy for point in points)
    texts = numbers.level_numbers(levels)
    rows: list[tuple[Cell, ...]] = [
        (Cell("no noise"), *([Cell(one.name)] if several else []), _clean(one.record), Cell(numbers.NONE), *([Cell("")] if changes else []))
        for one in found
        if labelled and one.record.clean is not None
    ]
    for at in levels:
        for one in found:
            for point in (point for point in one.record.points if point.at == at):
                group = changes.get(one.name, {}).get((first.estimator, at))
                rows.append(
                    (
                        *cells((texts[at], *([one.name] if several else []))),
                        *([_accuracy(point)] if labelled else []),
                        _robustness(point, first.quantity),
                        *([Cell("" if group is None else difference(group.mean))] if changes else []),
                    )
                )
    return Table(
        f"{first.estimator}, {first.noise} noise",
        (
            Column(str(levels[0].name)),
            *([Column("run")] if several else []),
            *([Column("accuracy", number=True)] if labelled else []),
            Column(_head(first.quantity), number=True),
            *([Column(f"difference from {found[0].name}", number=True)] if changes else []),
        ),
        tuple(rows),
        notes=(f"[ ] 95 % interval, {LIKE_THESE}.",),
    )


def _head(quantity: Quantity) -> str:
    return "robustness" if quantity.name == P_ROBUST.name else f"mean {quantity.name}"


def _clean(curve: LevelCurve) -> Cell:
    return Cell("") if curve.clean is None else Cell(numbers.share_estimate(curve.clean), bar_of(curve.clean, P_ROBUST))


def _accuracy(point: LevelPoint) -> Cell:
    one = point.accuracy
    return Cell(numbers.NONE) if one is None else Cell(numbers.with_percents(one.value, one.lower, one.upper), bar_of(one, P_ROBUST))


def _robustness(point: LevelPoint, quantity: Quantity) -> Cell:
    mean = point.robustness
    return mean_cell(mean, quantity, exact=mean.measured_lower is not None, alone=point.images == 1)
