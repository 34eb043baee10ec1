"""The results of a run that gates are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.errors import RunError, SpecError, did_you_mean
from robaudit.levels import NoiseLevel
from robaudit.names import Part, ResultName, series
from robaudit.quantities import CERTIFIED, Quantity
from robaudit.spec.gates import CERTIFIED_ACCURACY, SCORES, WARNINGS, Gate
from robaudit.stats.frame import NO_CLASS, Columns, Ints
from robaudit.stats.groups import quantity_of, refuse_no_values
from robaudit.stats.intervals import MeasuredImages
from robaudit.stats.scores import RADII
from robaudit.store.run import Run

Group = tuple[str, NoiseLevel]
OF_THE_RUN = frozenset({"accuracy", WARNINGS})
"""Quantities that no estimator and no noise level has to do with."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The results that gates on a set of values are about.

    Attributes:
        quantities: names of theirs.
        subject: what has them, in messages.
        lacking: what a run without any lacks, and what would add some.
    """

    quantities: Sequence[str]
    subject: str
    lacking: tuple[str, str]


_RADII = Needed(
    RADII,
    "the set of radii",
    ("there are no radii, and so no scores", "add radius_attack, radius_exact or noise_tolerance to the estimators"),
)
_CERTIFICATES = Needed(
    (CERTIFIED.name,),
    "the set of certificates",
    ("there are no certified radii", "add certified_radius, margin_radius or smoothed_margin to the estimators"),
)
_NEEDED = {**dict.fromkeys(SCORES, _RADII), CERTIFIED_ACCURACY: _CERTIFICATES}


class Evidence:
    """The rows of one result at one noise level.

    Args:
        columns: the rows.
        by_label: whether classes are labels, else predictions.

    Attributes:
        key: their estimator, noise level, noise and quantity.
        every: all rows, as their votes make them (:meth:`robaudit.stats.frame.Columns.by_votes`).
        rows: those with a finite value.
        classes: of all rows, -1 where unknown.
        voted: rows whose own value is an approximation, and whose votes are taken for it.
    """

    def __init__(self, columns: Columns, *, by_label: bool) -> None:
        self.key, self.every = columns.key, columns.by_votes()
        self.rows = self.every.finite
        self.by_label = by_label
        self.voted = int(columns.approximated.sum())

    @property
    def classes(self) -> Ints:
        """The class of every row, -1 where unknown."""
        return self.every.label if self.by_label else self.every.predicted

    @property
    def size(self) -> int:
        """Number of rows, including those without a finite value."""
        return len(self.every)

    @property
    def without_class(self) -> int:
        """Number of rows without a known class."""
        return int((self.classes == NO_CLASS).sum())

    @property
    def draws(self) -> int:
        """Noisy copies per image, on average: forward passes less the clean one."""
        return max(1, round(int(self.every.forwards.sum()) / self.size) - 1)

    @property
    def has_votes(self) -> bool:
        """Whether every labelled row has a fixed number of votes."""
        labelled = self.rows.label != NO_CLASS
        return bool(labelled.any() and (self.rows.label_draws[labelled] > 0).all() and not self.rows.adaptive)

    def scale(self, quantities: Mapping[str, Quantity]) -> Quantity:
        """The description of what the rows measure."""
        return quantity_of(self.key.quantity, quantities)

    def images(self, scale: Quantity) -> MeasuredImages:
        """All images of the group as arrays.

        Raises:
            NothingLeftError: none has a finite value.
        """
        refuse_no_values(len(self.rows), self.rows.not_finite, str(self.key))
        return self.rows.images(scale.low, scale.high, self.rows.not_finite)

    def by_class(self, images: MeasuredImages) -> dict[int, MeasuredImages]:
        """The images of each class, by class index; a class without a finite value has no values."""
        known, unknown = (self.rows.label if self.by_label else self.rows.predicted), Counter(self.classes.tolist())
        unknown.subtract(known.tolist())
        return {index: images.chosen(np.flatnonzero(known == index), unknown[index]) for index in sorted(unknown) if index != NO_CLASS}


def gather(run: Run) -> dict[Group, Evidence]:
    """The evidence of every group of the run, in its order."""
    by_label = bool(run.info["data"].get("labelled"))
    return {group: Evidence(columns, by_label=by_label) for group, columns in run.groups().items()}


def group_of(gate: Gate, run: Run, quantities: Mapping[Group, str], voted: Container[Group] | None = None) -> Group | None:
    """The results that a gate is about; None for a gate on warnings or on the accuracy without noise.

    Args:
        gate: the gate.
        run: for messages.
        quantities: the names of the quantities of all results.
        voted: those with votes for labels; None: not known yet.

    Raises:
        SpecError: there are no such results, or several.
    """
    if gate.quantity in OF_THE_RUN:
        refuse_results_of(gate)
        return None
    needed = _NEEDED.get(gate.quantity)
    if needed is not None:
        able = [group for group, quantity in quantities.items() if quantity in needed.quantities]
        if not able:
            raise SpecError(f"gate {str(gate)!r}", *needed.lacking)
        return matching_groups(gate, run, able, one=True, subject=needed.subject)[0]
    groups = matching_groups(gate, run, quantities, one=gate.quantity != "noisy_accuracy")
    if gate.quantity == "noisy_accuracy" and voted is not None:
        groups = [group for group in groups if group in voted]
        if not groups:
            what = "there are no results with labels and a fixed number of votes"
            raise SpecError(f"gate {str(gate)!r}", what, "audit labelled images with mc")
        _refuse_several(gate, groups)
    return groups[0]


def matching_groups(gate: Gate, run: Run, keys: Iterable[Group], *, one: bool, subject: str = "the run") -> list[Group]:
    """The groups that a gate can be about; with ``one``, exactly one. ``subject`` names what has them in messages.

    Raises:
        SpecError: there is none, or there are several.
    """
    where, keys = f"gate {str(gate)!r}", list(keys)
    names = list(dict.fromkeys(name for name, _ in keys))
    named = [name for name in names if gate.means(name)]
    if not named:
        raise SpecError(where, *_lacking(gate, names, subject))
    try:
        matches = run.chosen(keys, named, gate.levels)
    except RunError as error:
        raise SpecError(where, f"{subject} {error.what}", error.remedy) from error
    if not matches:
        present = ", ".join(f"{name} at {at}" for name, at in keys)
        raise SpecError(where, f"{subject} has no such results", f"it has {present}")
    if one:
        _refuse_several(gate, matches)
    return matches


def _lacking(gate: Gate, names: Sequence[str], subject: str) -> tuple[str, str]:
    """What the results lack that a gate names, and what there is instead."""
    estimators = dict.fromkeys(ResultName.parse(name).estimator for name in names)
    if gate.estimator is not None and gate.estimator not in estimators:
        return f"{subject} has no estimator {gate.estimator}", did_you_mean(gate.estimator, estimators)
    of = "" if gate.estimator is None else f" of {gate.estimator}"
    there = dict.fromkeys(
        str(part) for name in names if gate.estimator in (None, (one := ResultName.parse(name)).estimator) and (part := one.part)
    )
    have = f"it has {', '.join(there)}" if there else f"leave {gate.part.name if gate.part else 'it'} out: there is one value of each image"
    return f"{subject} has no {gate.part}{of}", have


def refuse_results_of(gate: Gate) -> None:
    """Refuse an estimator or a noise level in a gate on warnings, on the accuracy without noise, or on its drop.

    Raises:
        SpecError: it does.
    """
    if gate.estimator is not None or gate.part is not None or gate.levels:
        if gate.quantity == WARNINGS:
            raise SpecError(f"gate {str(gate)!r}", "warnings are about the run", "leave estimator and noise level out")
        raise SpecError(
            f"gate {str(gate)!r}",
            f"{gate.quantity} is about the clean images",
            f"leave estimator and noise level out, or use noisy_{gate.quantity}",
        )


def _refuse_several(gate: Gate, keys: Sequence[Group]) -> None:
    if len(keys) > 1:
        results, levels = list(dict.fromkeys(name for name, _ in keys)), dict.fromkeys(at for _, at in keys)
        noises = dict.fromkeys(at.noise for at in levels)
        alike = series(results)
        if len(alike) == 1 and len(results) == len(numbers := next(iter(alike.values()))) > 1:
            ((_, what),) = alike
            choices = [f"{what}={' | '.join(Part(what, number).value for number, _ in numbers)}"]
        else:
            choices = [f"estimator={' | '.join(results)}"] if len(results) > 1 else []
        choices += [f"noise={' | '.join(noises)}"] if len(noises) > 1 else []
        if len(noises) == 1 and len(levels) > 1:
            first = next(iter(levels))
            choices += [f"{first.argument}={' | '.join(f'{at.level:g}' for at in levels)}"]
        text, one = str(gate), ", ".join(choice.partition(" | ")[0] for choice in choices)
        before, closing, after = text.rpartition(")")
        example = f"{before}, {one}){after}" if closing else text.replace(gate.quantity, f"{gate.quantity}({one})", 1)
        remedy = f"say {' and '.join(choices)}: {example}"
        raise SpecError(f"gate {text!r}", "does not say which results it is about", remedy)
