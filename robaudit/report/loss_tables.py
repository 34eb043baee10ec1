"""Losses between the average and the worst case: their means by q, and the images with the highest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from robaudit.errors import RunError
from robaudit.levels import NoiseLevel
from robaudit.quantities import LOSS
from robaudit.report import numbers
from robaudit.report.pictures.losses import failed_attacks
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.summary_tables import caveats
from robaudit.report.tables import Column, Table, Terminal, cells, columns
from robaudit.report.words import MEASUREMENT, POPULATION
from robaudit.stats.losses import MOST_WORST, Losses, losses
from robaudit.stats.summary import GroupSummary
from robaudit.store.run import Run
from robaudit.text import clipped, count, printable

Groups = Mapping[tuple[str, NoiseLevel], GroupSummary]


@dataclass(frozen=True, slots=True)
class ByOrder:
    """The losses of a run by noise level, at least one, and the summaries of all results."""

    losses: tuple[Losses, ...]
    groups: Groups

    @property
    def levels(self) -> dict[NoiseLevel, str]:
        """The shortest texts that tell the noise levels apart."""
        return numbers.level_texts(one.at for one in self.losses)


class LossSection(Section[ByOrder]):
    """The loss between its average over the noise and its maximum, by the order q of its norm."""

    uses = Section.uses | {"bottom"}

    def applies(self, run: Run) -> bool:
        """Whether it has losses."""
        return LOSS.name in run.quantities

    def records(self, run: Run, ask: Ask) -> list[ByOrder]:
        """The losses at all noise levels, together.

        Raises:
            RunError: there are none by q.
        """
        found = losses(run, ask.estimators, ask.levels, MOST_WORST if ask.bottom is None else ask.bottom)
        if not found:
            raise RunError(str(run.path), "has no losses by q", "add qnorm_path to its estimators: --extend computes it")
        return [ByOrder(found, {(group.key.estimator, group.key.at): group for group in run.summary()})]

    def table(self, one: Found[ByOrder], ask: Ask) -> Terminal:
        """The means by q, then the images with the highest losses."""
        by, failed = one.record, failed_attacks(one.record.losses)

        def build(narrow: bool) -> Iterator[Table]:
            means = _terminal_table(by, narrow)
            yield replace(means, notes=(*means.notes, *filter(None, (failed,))))
            yield from worst_losses_tables(by.losses, by.levels)

        return Terminal(build)

    def sheet(self, one: Found[ByOrder], ask: Ask) -> Sheet:
        """A line for each noise level and result."""
        heads = ("estimator", "noise", "level_name", "level", "q", "images", *(f"mean{part}" for part in _PARTS.values()))
        lines = [
            [result.name, *of.at.document().values(), result.q, result.images, *(getattr(result.mean, part) for part in _PARTS)]
            for of in one.record.losses
            for result in of.results
        ]
        return Sheet(heads, lines)

    def document(self, one: Found[ByOrder], ask: Ask) -> dict[str, Any]:
        """The means by q and the values of the images with the highest losses."""
        return {"levels": [_document(of) for of in one.record.losses]}


_PARTS = {
    "value": "",
    "lower": "_lower",
    "upper": "_upper",
    "measured_lower": "_measured_lower",
    "measured_upper": "_measured_upper",
}


def _document(of: Losses) -> dict[str, Any]:
    results = [
        {"estimator": one.name, "q": one.q if math.isfinite(one.q) else None, "images": one.images, "mean": one.mean.document()}
        for one in of.results
    ]
    worst = [{"id": flag.id, **{one.name: one.worst[i] for one in of.results}} for i, flag in enumerate(of.worst)]
    return {**of.at.document(), "results": results, "attacked": of.attacked, "beaten": of.beaten, "worst": worst}


def _terminal_table(by: ByOrder, narrow: bool) -> Table:
    """A line for each noise level and result."""
    sizes = {one.images for of in by.losses for one in of.results}
    rows = []
    for of in by.losses:
        for one in of.results:
            mark = numbers.NO_INTERVAL if one.with_interval < one.images else ""
            mean = numbers.mean_estimate(one.mean, LOSS.low, LOSS.high, tight=narrow)
            group = by.groups[one.name, of.at]
            spread = (numbers.quantile_estimate(quantile, LOSS.low, LOSS.high) for quantile in (group.median, group.bad_end))
            images = () if len(sizes) == 1 else (f"{one.images:,}",)
            rows.append(cells((by.levels[of.at], *_named(one.name, one.estimator, one.q), *images, mark + mean, *spread)))
    heads = (*columns(("noise", "estimator"), ("q", *(["images"] if len(sizes) > 1 else []))),)
    return Table(
        f"Mean loss by q ({LOSS.unit}, lower is better)",
        (*heads, Column("mean [95% interval]", number=True, wrap=True), *columns((), ("median", "95th %ile"))),
        tuple(rows),
        lines=tuple(count(size, "image") for size in sizes) if len(sizes) == 1 else (),
        notes=(
            "q = 1: the mean loss of an image's noisy copies; the larger q, the more the worst copies count; max: the attack.",
            *caveats(_listed(by.losses, by.groups), "[ ]"),
        ),
    )


def loss_table(found: Sequence[Losses], groups: Groups, levels: Mapping[NoiseLevel, str]) -> Table:
    """The mean loss at each q, by estimator and noise level, with that of the attack, for pages.

    Args:
        found: at each noise level.
        groups: the summaries of their results.
        levels: texts of the noise levels.
    """
    rows = []
    for of in found:
        for result in of.results:
            one, group = result.mean, groups[result.name, of.at]
            marked = result.with_interval < result.images
            spread = (numbers.quantile(quantile, of.quantity) for quantile in (group.median, group.bad_end))
            ends = numbers.interval(one.lower, one.upper), numbers.interval(one.measured_lower, one.measured_upper)
            mean = numbers.mean(one, of.quantity, marked=marked)
            name = _named(result.name, result.estimator, result.q, "\u221e (attack)")
            rows.append(cells((levels[of.at], *name, f"{result.images:,}", mean, *ends, *spread)))
    heads = ("q", "images", "mean", POPULATION, MEASUREMENT, "median", "95th percentile")
    title = f"Mean loss by q ({LOSS.unit}, lower is better)"
    return Table(title, columns(("noise", "estimator"), heads), tuple(rows), notes=tuple(caveats(_listed(found, groups))))


def worst_losses_tables(found: Sequence[Losses], levels: Mapping[NoiseLevel, str]) -> Iterator[Table]:
    """The images with the highest losses at each noise level, worst first: the values that rank them, at each q, and the attack's."""
    for of in found:
        results = (*of.ranking.results, *of.attacks)
        heads = [f"q={one.q:.6g}" if math.isfinite(one.q) else one.name for one in results]
        rows = [
            cells(
                (
                    clipped(printable(sample.id), 80),
                    *(numbers.NONE if (value := one.worst[i]) is None else numbers.plain(value, LOSS.low, LOSS.high) for one in results),
                )
            )
            for i, sample in enumerate(of.worst)
        ]
        yield Table(f"Images with the highest loss, {of.ranking.estimator}, {levels[of.at]}", columns(("sample",), heads), tuple(rows))


def _named(name: str, estimator: str, q: float, attack: str = "max") -> tuple[str, str]:
    """The estimator and the order, as tables have them."""
    return (name, attack) if math.isinf(q) else (estimator, f"{q:.6g}")


def _listed(found: Sequence[Losses], groups: Groups) -> list[GroupSummary]:
    return [groups[one.name, of.at] for of in found for one in of.results]
