"""The results of a run behind its gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from robaudit.errors import RunError, SpecError, did_you_mean
from robaudit.gates.measure import Basis
from robaudit.levels import NONE
from robaudit.names import ResultName
from robaudit.numerics.image_intervals import MeasuredImages
from robaudit.quantities import Quantity
from robaudit.runs.groups import GroupKey, quantity_of, refuse_no_values
from robaudit.runs.run import Run, chosen
from robaudit.runs.table import NO_CLASS, Columns, Ints
from robaudit.spec.gate_grammar import WARNINGS, Gate

T = TypeVar("T")
ANY_VALUES = "the interval holds for any values they may have"
"""The remark on images without a finite value."""


class Evidence:
    """The rows of one result of a run.

    Args:
        run: the run.
        columns: the rows.
        basis: how gates on it are decided.

    Attributes:
        run, basis: see above.
        key: estimator, noise level and quantity of the rows.
        every: all rows, approximations replaced by votes
            (:meth:`robaudit.runs.table.Columns.by_votes`).
        rows: the rows with a finite value.
        by_label: whether classes are labels, else predictions.
        voted: number of rows whose approximation is replaced by their votes.
    """

    def __init__(self, run: Run, columns: Columns, basis: Basis) -> None:
        self.run = run
        self.basis = basis
        self.key = columns.key
        # Votes have an interval without bias, which approximations from the same copies lack.
        self.all_rows = columns.by_votes()
        self.rows = self.all_rows.finite
        self.by_label = bool(run.info.data.labelled)
        self.voted = int(columns.approximated.sum())
        self._computed: dict[Callable[[Evidence], Any], Any] = {}

    @property
    def scale(self) -> Quantity:
        """The quantity of the rows."""
        return quantity_of(self.key.quantity, self.run.quantities)

    @property
    def size(self) -> int:
        """Number of rows, including those without a finite value."""
        return len(self.all_rows)

    @property
    def draws(self) -> int:
        """Noisy copies per image, on average: forward passes without the clean pass."""
        # Images that stop adaptively have numbers of their own.
        return max(1, round(int(self.all_rows.forwards.sum()) / self.size) - 1)

    @property
    def has_votes(self) -> bool:
        """Whether every labelled row has a fixed number of votes."""
        labelled = self.rows.label != NO_CLASS
        if not labelled.any() or self.rows.adaptive:
            return False
        return bool((self.rows.label_draws[labelled] > 0).all())

    @property
    def without_value(self) -> list[str]:
        """The remark on images without a finite value."""
        number = self.rows.not_finite
        if not number:
            return []
        return [f"{number} of {self.size} images have no finite value: {ANY_VALUES}"]

    @property
    def classes(self) -> Ints:
        """The class of every row, -1 where unknown."""
        return self.all_rows.label if self.by_label else self.all_rows.predicted

    @property
    def without_class(self) -> int:
        """Number of rows without a known class."""
        return int((self.classes == NO_CLASS).sum())

    def images(self) -> MeasuredImages:
        """All images as arrays.

        Raises:
            NothingLeftError: no image has a finite value.
        """
        refuse_no_values(len(self.rows), self.rows.not_finite, str(self.key))
        return self.rows.images(self.scale.low, self.scale.high, self.rows.not_finite)

    def by_class(self, images: MeasuredImages) -> dict[int, MeasuredImages]:
        """The images of each class, by class index.

        A class whose images all lack a finite value has no values.
        """
        known = self.rows.label if self.by_label else self.rows.predicted
        # Images without a finite value: all of the class less those with one.
        unknown = Counter(self.classes.tolist())
        unknown.subtract(known.tolist())
        return {
            index: images.chosen(np.flatnonzero(known == index), unknown[index])
            for index in sorted(unknown)
            if index != NO_CLASS
        }

    # Scores and certified accuracies of a result take a bootstrap, for all of its gates together.
    def once(self, measure: Callable[[Evidence], T]) -> T:
        """The result of ``measure`` on this evidence, computed once for all gates."""
        if measure not in self._computed:
            self._computed[measure] = measure(self)
        result: T = self._computed[measure]
        return result


def matching_groups(
    gate: Gate, keys: Iterable[GroupKey], *, subject: str = "the run"
) -> list[GroupKey]:
    """The groups that a gate can be about, at least one.

    Args:
        gate: the gate.
        keys: of all groups.
        subject: the owner of the groups, for messages.

    Raises:
        SpecError: no group matches.
    """
    where = f"gate {str(gate)!r}"
    keys = list(keys)
    names = list(dict.fromkeys(key.estimator for key in keys))
    named = [name for name in names if gate.applies_to(name)]
    if not named:
        estimators = [ResultName.parse(name).estimator for name in names]
        known = dict.fromkeys([*estimators, *names])
        wanted = gate.result or str(gate.part)
        raise SpecError(
            where, f"{subject} has no {wanted} for this gate", did_you_mean(wanted, known)
        )
    # chosen() speaks of the run's selection; the error must name the gate.
    try:
        matches = chosen(keys, named, gate.levels, subject)
    except RunError as error:
        raise SpecError(where, f"{subject} {error.what}", error.remedy) from error
    if not matches:
        present = ", ".join(f"{key.estimator} at {key.at}" for key in keys)
        raise SpecError(where, f"{subject} has no such results", f"it has {present}")
    return matches


def only_group(gate: Gate, groups: Sequence[GroupKey]) -> GroupKey:
    """The only group that a gate can be about.

    Raises:
        SpecError: several groups match.
    """
    if len(groups) == 1:
        return groups[0]
    levels = dict.fromkeys(key.at for key in groups)
    noises = dict.fromkeys(at.noise or NONE for at in levels)
    # The levels of several noises are in different units, so the noise must be chosen first.
    numbers: dict[str, None] = {}
    if len(noises) == 1:
        numbers = dict.fromkeys(f"{at.number:g}" for at in levels)
    level_argument = next(iter(levels)).argument
    choices = {
        "estimator": dict.fromkeys(key.estimator for key in groups),
        "noise": noises,
        level_argument: numbers,
    }
    # Only arguments that the groups differ in can tell them apart.
    options = [
        f"{name}={' | '.join(values)}" for name, values in choices.items() if len(values) > 1
    ]
    raise SpecError(
        f"gate {str(gate)!r}",
        "does not say which results it is about",
        f"say {' and '.join(options)}",
    )


def refuse_results_of(gate: Gate) -> None:
    """Refuse an estimator or a noise level in a gate about the run or its clean images.

    Raises:
        SpecError: the gate has one.
    """
    names_results = gate.estimator is not None or gate.part is not None or bool(gate.levels)
    if not names_results:
        return
    where = f"gate {str(gate)!r}"
    if gate.quantity == WARNINGS:
        raise SpecError(where, "warnings are about the run", "leave estimator and noise level out")
    raise SpecError(
        where,
        f"{gate.quantity} is about the clean images",
        f"leave estimator and noise level out, or use noisy_{gate.quantity}",
    )
