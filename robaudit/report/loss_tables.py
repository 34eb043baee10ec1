"""Losses between the average and the worst case: their means by q, and the images with the highest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from robaudit.documents import json_values
from robaudit.errors import RunError
from robaudit.levels import NoiseLevel
from robaudit.names import PartName, ResultName
from robaudit.quantities import LOSS
from robaudit.report import numbers
from robaudit.report.differences import P_VALUE, Paired, paired_cells, paired_changes, run_columns
from robaudit.report.sections import Ask, Found, Section
from robaudit.report.summary_tables import caveats
from robaudit.report.tables import Cell, Column, Table, cells, columns
from robaudit.report.words import failed_attacks
from robaudit.stats.groups import GroupKey
from robaudit.stats.intervals import LIKE_THESE, THESE_IMAGES
from robaudit.stats.losses import MOST_WORST, Losses, LossResult, loss_changes, losses
from robaudit.stats.summary import GroupSummary
from robaudit.store.run import Run
from robaudit.text import count

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

    title = "From the average to the worst case"
    words = (
        "The loss at q is the q-norm (E[l^q])^(1/q) over the noise, where l is the cross-entropy of a noisy copy of the image. q=1 is the "
        "mean; the larger q is, the more the upper tail counts; the limit is the maximum, which an attack searches for. Lower is better. "
        "A flat curve means that the loss hardly varies with the noise; a steep one, that rare noise gives a much larger loss than the "
        "mean. Sampling rarely reaches the tail, so values at large q are biased low, as is the attack's: where two disagree beyond "
        "their intervals, the higher one is closer to the true value."
    )
    uses = Section.uses | {"bottom"}

    def applies(self, run: Run) -> bool:
        """Whether it has losses by q, not only by attacks."""
        return LOSS.name in run.quantities and any(key.quantity == LOSS.name and _finite(key.estimator) for key in run.frame)

    def records(self, run: Run, ask: Ask) -> list[ByOrder]:
        """The losses at all noise levels, together.

        Raises:
            RunError: there are none by q.
        """
        found = losses(run, ask.estimators, ask.levels, MOST_WORST if ask.bottom is None else ask.bottom)
        if not found:
            raise RunError(str(run.path), "has no losses by q", "add qnorm_path to its estimators: --extend computes it")
        return [ByOrder(found, {(group.key.estimator, group.key.at): group for group in run.summary()})]

    def tables(self, found: Sequence[Found[ByOrder]], ask: Ask) -> Iterator[Table]:
        """The means by q, of several runs side by side, then the images with the highest losses."""
        several = len(found) > 1
        failed = [(one.name, failed_attacks(one.record.losses)) for one in found]
        told = tuple(f"{name}: {text}" if several else text for name, text in failed if text)
        table = _side_by_side(found, ask) if several else _means(found[0].record)
        yield replace(table, notes=(*table.notes, *told))
        for one in found:
            for worst in worst_losses_tables(one.record.losses, one.record.levels):
                yield replace(worst, heading=f"{one.name}: {worst.heading}") if several else worst

    def document(self, one: Found[ByOrder], ask: Ask) -> dict[str, Any]:
        """The means by q and the values of the images with the highest losses."""
        return {"levels": [_document(of) for of in one.record.losses]}

    def documents(self, found: Sequence[Found[ByOrder]], ask: Ask) -> list[dict[str, Any]]:
        """The same of each run; of several runs, with the differences of the means from the first run's."""
        made, changes = super().documents(found, ask), _changes(found, ask)
        for one in made[1:]:
            moved = changes[one["run"]].items()
            differences = [{"estimator": key.estimator, **key.at.document(), **json_values(change)} for key, change in moved]
            one.update(base=found[0].name, differences=differences)
        return made

    def sheet(self, found: Sequence[Found[ByOrder]], ask: Ask) -> list[dict[str, Any]]:
        """A line for each run, noise level and result; of several runs, with the difference of the mean from the first run's."""
        changes = _changes(found, ask)
        lines = []
        for one in found:
            for of in one.record.losses:
                for result in of.results:
                    line = {"run": one.name, "estimator": result.name, **of.at.document(), "q": result.q, "images": result.images}
                    line["mean"] = {part: getattr(result.mean, part) for part in _PARTS}
                    if (change := changes.get(one.name, {}).get(_key(result.name, of.at))) is not None:
                        parted = json_values(change)
                        line |= {"base": found[0].name, "common_images": parted.pop("images"), "difference": parted}
                    lines.append(line)
        return lines


def _finite(name: str) -> bool:
    part = ResultName.parse(name).part
    return part is not None and part.name is PartName.Q and part.number < math.inf


_PARTS = ("value", "lower", "upper", "measured_lower", "measured_upper")


def _changes(found: Sequence[Found[ByOrder]], ask: Ask) -> dict[str, Paired[GroupKey]]:
    return paired_changes(found, partial(loss_changes, estimators=ask.estimators, levels=ask.levels))


def _key(name: str, at: NoiseLevel) -> GroupKey:
    return GroupKey(name, at, LOSS.name)


def _document(of: Losses) -> dict[str, Any]:
    results = [
        {"estimator": one.name, "q": one.q if math.isfinite(one.q) else None, "images": one.images, "mean": one.mean.document()}
        for one in of.results
    ]
    worst = [{"id": flag.id, **{one.name: one.worst[i] for one in of.results}} for i, flag in enumerate(of.worst)]
    return {**of.at.document(), "results": results, "attacked": of.attacked, "beaten": of.beaten, "worst": worst}


def _means(by: ByOrder) -> Table:
    """A line for each noise level and result."""
    sizes = {one.images for of in by.losses for one in of.results}
    rows = []
    for of in by.losses:
        for one in of.results:
            group = by.groups[one.name, of.at]
            spread = (numbers.quantile_estimate(quantile, LOSS.low, LOSS.high) for quantile in (group.median, group.bad_end))
            images = () if len(sizes) == 1 else (f"{one.images:,}",)
            measured = numbers.ends(one.mean.measured_lower, one.mean.measured_upper, LOSS.low, LOSS.high)
            rows.append((*cells((by.levels[of.at], *_named(one), *images)), _mean(one), *cells((measured, *spread))))
    return Table(
        f"Mean loss by q ({LOSS.unit}, lower is better)",
        (
            *columns(("noise", "estimator"), ("q", *(["images"] if len(sizes) > 1 else []), "mean [95% interval]")),
            Column(f"[{THESE_IMAGES}]", number=True, detail=True),
            *columns((), ("median", "95th %ile")),
        ),
        tuple(rows),
        lines=tuple(count(size, "image") for size in sizes) if len(sizes) == 1 else (),
        notes=(_ORDER, *caveats(_listed(by.losses, by.groups), "[ ]")),
    )


_ORDER = "q = 1 is the mean loss of an image's noisy copies; a larger q gives the worst copies more weight; max is the attack."


def _side_by_side(found: Sequence[Found[ByOrder]], ask: Ask) -> Table:
    """The means of the runs at each level and q, and their differences from the first."""
    changes, names = list(_changes(found, ask).values()), [one.name for one in found]
    paired = any(changes)
    every = {(one.name, result.name, of.at): result for one in found for of in one.record.losses for result in of.results}
    levels = numbers.level_texts(at for _, _, at in every)
    rows = []
    for name, at in dict.fromkeys((name, at) for _, name, at in every):
        mine = [every.get((run, name, at)) for run in names]
        first = next(one for one in mine if one is not None)
        rows.append(
            (
                *cells((levels[at], *_named(first))),
                *(Cell(numbers.NONE) if one is None else _mean(one) for one in mine),
                *cells(text for of in changes if paired for text in paired_cells(of.get(_key(name, at)))),
            )
        )
    groups = [group for one in found for group in _listed(one.record.losses, one.record.groups)]
    about = [f"[ ] 95 % interval, {LIKE_THESE}."]
    if paired:
        about += ["Differences: of the images with a value in both runs, with Student's t for pairs.", f"{P_VALUE}."]
    return Table(
        f"Mean loss by q ({LOSS.unit}, lower is better)",
        (*columns(("noise", "estimator"), ("q",)), *(run_columns(names, tested=True) if paired else columns((), names))),
        tuple(rows),
        notes=(_ORDER, *about, *dict.fromkeys(caveats(groups, "[ ]"))),
    )


def _mean(one: LossResult) -> Cell:
    text = numbers.mean_estimate(one.mean, LOSS.low, LOSS.high)
    return Cell(numbers.NO_INTERVAL + text if one.with_interval < one.images and not text.startswith(numbers.NO_INTERVAL) else text)


def worst_losses_tables(found: Sequence[Losses], levels: Mapping[NoiseLevel, str]) -> Iterator[Table]:
    """The images with the highest losses at each noise level, worst first: the values that rank them, at each q, and the attack's."""
    for of in found:
        results = (*of.ranking.results, *of.attacks)
        heads = [f"q={one.q:.6g}" if math.isfinite(one.q) else one.name for one in results]
        rows = [
            cells(
                (
                    sample.id,
                    *(numbers.NONE if (value := one.worst[i]) is None else numbers.plain(value, LOSS.low, LOSS.high) for one in results),
                )
            )
            for i, sample in enumerate(of.worst)
        ]
        yield Table(
            f"Images with the highest loss, {of.ranking.estimator}, {levels[of.at]}", columns(("sample",), heads), tuple(rows), folded=True
        )


def _named(one: LossResult) -> tuple[str, str]:
    """The estimator and the order, as tables have them."""
    return (one.name, "max") if math.isinf(one.q) else (one.estimator, f"{one.q:.6g}")


def _listed(found: Sequence[Losses], groups: Groups) -> list[GroupSummary]:
    return [groups[one.name, of.at] for of in found for one in of.results]
