"""The results of a run behind its gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from robaudit.errors import RunError, SpecError, did_you_mean
from robaudit.levels import NONE, NoiseLevel
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED, Quantity
from robaudit.spec.gates import CERTIFIED_ACCURACY, SCORES, WARNINGS, Gate
from robaudit.stats.frame import NO_CLASS, Columns, Ints
from robaudit.stats.groups import quantity_of, refuse_no_values
from robaudit.stats.intervals import MeasuredImages
from robaudit.stats.scores import RADII
from robaudit.store.run import Run

Group = tuple[str, NoiseLevel]
OF_THE_RUN = frozenset({"accuracy", WARNINGS})
"""Quantities without an estimator or a noise level."""


_NEEDED = {
    **dict.fromkeys(SCORES, (RADII, "there are no radii, and so no scores", "add radius_attack, radius_exact or noise_tolerance")),
    CERTIFIED_ACCURACY: ((CERTIFIED.name,), "there are no certified radii", "add certified_radius, margin_radius or smoothed_margin"),
}
"""For gates on a set of values: the quantities of their results, and problem and remedy for a run without any."""


class Evidence:
    """The rows of one result at one noise level.

    Args:
        columns: the rows.
        by_label: whether classes are labels, else predictions.

    Attributes:
        key: estimator, noise level and quantity of the rows.
        every: all rows, approximations replaced by votes (:meth:`robaudit.stats.frame.Columns.by_votes`).
        rows: those with a finite value.
        classes: of all rows, -1 where unknown.
        voted: number of rows with an approximation that their votes replace.
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
        """Noisy copies per image, on average: forward passes without the clean pass."""
        return max(1, round(int(self.every.forwards.sum()) / self.size) - 1)

    @property
    def has_votes(self) -> bool:
        """Whether every labelled row has a fixed number of votes."""
        labelled = self.rows.label != NO_CLASS
        return bool(labelled.any() and (self.rows.label_draws[labelled] > 0).all() and not self.rows.adaptive)

    def scale(self, quantities: Mapping[str, Quantity]) -> Quantity:
        """The quantity of the rows."""
        return quantity_of(self.key.quantity, quantities)

    def images(self, scale: Quantity) -> MeasuredImages:
        """All images of the group as arrays.

        Raises:
            NothingLeftError: no image has a finite value.
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
    by_label = bool(run.info.data.labelled)
    return {group: Evidence(columns, by_label=by_label) for group, columns in run.groups().items()}


def group_of(gate: Gate, quantities: Mapping[Group, str], voted: Container[Group] | None = None) -> Group | None:
    """The results that a gate is about; None for a gate on warnings or on the accuracy without noise.

    Args:
        gate: the gate.
        quantities: quantity names of all results.
        voted: the results with votes for labels; None: not known yet.

    Raises:
        SpecError: no results match, or several.
    """
    if gate.quantity in OF_THE_RUN:
        refuse_results_of(gate)
        return None
    needed, lacking, remedy = _NEEDED.get(gate.quantity, (None, "", ""))
    able = [group for group, quantity in quantities.items() if needed is None or quantity in needed]
    if needed is not None and not able:
        raise SpecError(f"gate {str(gate)!r}", lacking, f"{remedy} to the estimators")
    groups = matching_groups(gate, able)
    if gate.quantity == "noisy_accuracy":
        groups = [group for group in groups if voted is None or group in voted]
        if not groups:
            what = "there are no results with labels and a fixed number of votes"
            raise SpecError(f"gate {str(gate)!r}", what, "audit labelled images with mc")
        if voted is None:
            return groups[0]
    return only_group(gate, groups)


def matching_groups(gate: Gate, keys: Iterable[Group], *, subject: str = "the run") -> list[Group]:
    """The groups that a gate can be about, at least one. ``subject``: their owner, for messages.

    Raises:
        SpecError: no group matches.
    """
    where, keys = f"gate {str(gate)!r}", list(keys)
    names = list(dict.fromkeys(name for name, _ in keys))
    named = [name for name in names if gate.means(name)]
    if not named:
        known = dict.fromkeys([*(ResultName.parse(name).estimator for name in names), *names])
        wanted = gate.result or str(gate.part)
        raise SpecError(where, f"{subject} has no {wanted} for this gate", did_you_mean(wanted, known))
    try:
        levels = set(gate.levels.among((at for _, at in keys), subject))
    except RunError as error:
        raise SpecError(where, f"{subject} {error.what}", error.remedy) from error
    matches = [(name, at) for name, at in keys if name in named and at in levels]
    if not matches:
        present = ", ".join(f"{name} at {at}" for name, at in keys)
        raise SpecError(where, f"{subject} has no such results", f"it has {present}")
    return matches


def only_group(gate: Gate, groups: Sequence[Group]) -> Group:
    """The only group that a gate can be about.

    Raises:
        SpecError: several groups match.
    """
    if len(groups) == 1:
        return groups[0]
    levels = dict.fromkeys(at for _, at in groups)
    noises = dict.fromkeys(at.noise or NONE for at in levels)
    of_levels = dict.fromkeys(f"{at.number:g}" for at in levels) if len(noises) == 1 else {}
    choices = {"estimator": dict.fromkeys(name for name, _ in groups), "noise": noises, next(iter(levels)).argument: of_levels}
    options = [f"{name}={' | '.join(values)}" for name, values in choices.items() if len(values) > 1]
    raise SpecError(f"gate {str(gate)!r}", "does not say which results it is about", f"say {' and '.join(options)}")


def refuse_results_of(gate: Gate) -> None:
    """Refuse an estimator or a noise level in a gate on warnings, on the accuracy without noise, or on its drop.

    Raises:
        SpecError: the gate has one.
    """
    if gate.estimator is not None or gate.part is not None or gate.levels:
        if gate.quantity == WARNINGS:
            raise SpecError(f"gate {str(gate)!r}", "warnings are about the run", "leave estimator and noise level out")
        raise SpecError(
            f"gate {str(gate)!r}",
            f"{gate.quantity} is about the clean images",
            f"leave estimator and noise level out, or use noisy_{gate.quantity}",
        )
