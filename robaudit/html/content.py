"""What does a report say about one run: summaries, classes, flagged samples, agreement and cost, as plain data?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.html.agreement import Agreement, agreements
from robaudit.html.tally import GroupTally, Tally
from robaudit.reports import numbers
from robaudit.rows import Row
from robaudit.store.run import Run
from robaudit.summary.bias import ClassBias, class_bias
from robaudit.summary.flags import Flag, Flagged, flag, usual_threshold
from robaudit.summary.groups import QuantityLike, quantity_of
from robaudit.summary.overall import GroupSummary, Overview

Key = tuple[str, float]
_FEW = 6  # the least robust samples that are shown though none of them is flagged


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run is reported.

    Attributes:
        estimators, sigmas: those named; all without.
        threshold: beyond it a sample is flagged; None: the usual one of each quantity.
        most: samples listed at most, for each estimator and noise level.
    """

    estimators: Sequence[str] = ()
    sigmas: Sequence[float] = ()
    threshold: float | None = None
    most: int = 60


@dataclass(frozen=True, slots=True)
class Content:
    """What is said about one run.

    Attributes:
        run: the run.
        groups: the summaries of the chosen estimators and noise levels, in the run's order.
        tallies: passes and intervals of the same.
        shown: the estimators whose classes and samples are shown: those asked for, else the first that gives probabilities with
            intervals, else the first.
        biases: by class, for each shown estimator and noise level.
        flagged: the samples that are not robust, for the same; at most ``most`` of them are listed.
        agreements: pairs of estimators.
        examples: ids of samples whose noisy copies show what noise looks like.
        whole: whether no estimator or noise level was left out.
        edges: of the same, how many flagged samples have an interval that straddles the threshold, and how many have none.
        decisions: of the run's gates, as documents: see :func:`robaudit.gates.standing.standing`.
    """

    run: Run
    groups: tuple[GroupSummary, ...]
    tallies: Mapping[Key, GroupTally]
    shown: tuple[str, ...]
    biases: tuple[ClassBias, ...]
    flagged: tuple[Flagged, ...]
    agreements: tuple[Agreement, ...]
    examples: tuple[str, ...]
    whole: bool
    edges: Mapping[Key, tuple[int, int]] = field(default_factory=dict)
    decisions: tuple[Mapping[str, Any], ...] = ()

    @property
    def sigmas(self) -> dict[float, str]:
        """The noise levels, and the shortest texts that tell them apart."""
        return numbers.sigmas(group.key.sigma for group in self.groups)

    def quantity(self, name: str) -> QuantityLike:
        """Range and direction of a quantity of the run."""
        return quantity_of(name, self.run.quantities)

    def main(self) -> list[GroupSummary]:
        """The summaries of the first shown estimator."""
        return [group for group in self.groups if group.key.estimator == self.shown[0]]


def gather(run: Run, choice: Choice) -> Content:
    """Read a run and say what a report says; the rows of a large run are gone through once, and once more for each shown group.

    Raises:
        NothingLeftError: a group has no finite value.
        RunError: it has no such estimator or noise level.
        RobauditError: a threshold that the quantity cannot have.
    """
    overview, tally = Overview(run.quantities), Tally()
    for row in run.rows:
        overview.add(row)
        tally.add(row)
    summaries = {(group.key.estimator, group.key.sigma): group for group in overview.summaries()}
    if not summaries:
        raise NothingLeftError(str(run.path), "there are no results to report", "audit at least one sample")
    keys = run.chosen(summaries, choice.estimators, choice.sigmas)
    if not keys:
        raise NothingLeftError(str(run.path), "has none of these estimators at these noise levels", "name others")
    groups = tuple(summaries[key] for key in keys)
    shown = tuple(dict.fromkeys(choice.estimators)) or (_principal(groups),)
    biases, flagged, edges = [], [], {}
    for key in keys:
        if key[0] in shown:
            quantity = quantity_of(summaries[key].key.quantity, run.quantities)
            rows = [row for row in run.rows if (row.estimator, row.sigma) == key]
            names = run.class_names
            found = _worst(rows, quantity, choice)
            unsure = Counter(one.certainty for one in found.samples if is_beyond(one, found))
            edges[key] = unsure["maybe"], unsure["no interval"]
            flagged.append(replace(found, samples=found.samples[: min(choice.most, max(found.beyond, _FEW))]))
            biases.append(class_bias(rows, by="label" if tally.labelled else "predicted", class_names=names, quantity=quantity))
    tallies = {key: tally.groups[key] for key in keys}
    pairs = agreements(tallies, {group.key.quantity: quantity_of(group.key.quantity, run.quantities) for group in groups})
    return Content(run, groups, tallies, shown, tuple(biases), tuple(flagged), pairs, tally.examples, len(keys) == len(summaries), edges)


def _principal(groups: Sequence[GroupSummary]) -> str:
    """The estimator that answers the question: the first of a probability with intervals, else the first."""
    probable = [group for group in groups if group.unit == "probability" and group.with_interval]
    return (probable or list(groups))[0].key.estimator


def _worst(rows: Sequence[Row], quantity: QuantityLike, choice: Choice) -> Flagged:
    """All samples, the worst first, and how many are beyond the threshold."""
    threshold = usual_threshold(quantity) if choice.threshold is None else choice.threshold
    if not quantity.low <= threshold <= quantity.high:
        reach = f"{quantity.low:g} to {quantity.high:g}"
        raise RobauditError(f"--threshold {threshold:g}", f"{quantity.name} goes from {reach}", "name a value inside, or other --estimator")
    return flag(rows, below=threshold, bottom=len(rows), quantity=quantity)


def is_beyond(sample: Flag, flagged: Flagged) -> bool:
    """Whether a listed sample is flagged, or shown as one of the least robust only."""
    return sample.value < flagged.threshold if flagged.higher_is_better else sample.value > flagged.threshold
