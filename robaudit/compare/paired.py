"""Pairs of results of two runs, with the noise draws that both share."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.compare.matching import Common, Matching, Pair, common, why_unpaired
from robaudit.errors import NothingLeftError
from robaudit.estimates import Estimate
from robaudit.numerics.image_intervals import Floats, Mask
from robaudit.numerics.intervals import antithetic_difference, paired_difference
from robaudit.quantities import Quantity
from robaudit.runs.groups import GroupKey
from robaudit.runs.rows import Row
from robaudit.runs.table import NO_CLASS, Columns, Draft, antithetic


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The pairs of rows of one estimator and noise level with a finite value in both runs.

    Attributes:
        key, quantity: what was measured.
        ids: of the samples, in the order of the pairs (n,).
        base, new: the rows of both runs, restricted to the draws that both share; votes replace
            approximations.
        shared: the common draws of each sample (n, 5): draws, lost, won, half_lost, half_won, as in
            :class:`robaudit.compare.matching.Common`.
        same_noise: whether both runs gave each sample the same noise.
        why: why draws are not paired, where both have the same noise.
        cut: draws per image of the base run and of the new run, where either has more than are
            compared.
        voted: whether values are shares of votes where the rows have approximations.
        without: label and base prediction of the samples without a difference: without a finite
            value in either run, or skipped by the new run.
        skipped: number of skipped samples among these.
    """

    key: GroupKey
    quantity: Quantity
    ids: Sequence[str]
    base: Columns
    new: Columns
    shared: Floats
    same_noise: bool
    why: str
    cut: tuple[int, int] | None
    voted: bool
    without: Sequence[tuple[int, int]]
    skipped: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        """Number of samples, including those without a difference."""
        return len(self) + len(self.without)

    @property
    def sign(self) -> float:
        """1 where higher is better, else -1."""
        return 1.0 if self.quantity.higher_is_better else -1.0

    @property
    def changes(self) -> Floats:
        """New minus base, sample by sample (n,)."""
        return self.new.values - self.base.values

    @property
    def approximate(self) -> bool:
        """Whether some intervals cover the draws only."""
        return self.base.approximate + self.new.approximate > 0

    @property
    def draws(self) -> Floats:
        """Draws that both runs share (n,); 0 where the rows do not record them."""
        return self.shared[:, 0]

    @property
    def paired(self) -> bool:
        """Whether all samples can be paired draw by draw."""
        return bool((self.draws > 0).all())

    @property
    def antithetic(self) -> bool:
        """Whether the shared draws are antithetic pairs."""
        return antithetic(self.base.split) is not None and antithetic(self.new.split) is not None

    @property
    def by_label(self) -> bool:
        """Whether classes are labels; else the base run's predictions."""
        return bool((self.new.label >= 0).any())

    @property
    def adds(self) -> bool:
        """Whether distances add: adaptive stopping biases, and errors on the same noise may have
        opposite signs."""
        return self.base.adaptive or self.new.adaptive or self.same_noise

    def difference(self, shared: Floats, confidence: float) -> tuple[Floats, Floats]:
        """The interval of new minus base from sums, or single rows, of :attr:`shared`."""
        draws, lost, won, half_lost, half_won = np.moveaxis(shared, -1, 0)
        if self.antithetic:
            return antithetic_difference(
                (half_lost, half_won), (lost, won), draws / 2.0, confidence
            )
        return paired_difference(lost, won, draws, confidence)

    def paired_change(self, mask: Mask, confidence: float) -> Estimate:
        """The mean change of selected samples with its interval from the draws that both runs
        share, pooled over samples with the same number."""
        parts = []
        for draws in np.unique(self.draws[mask]):
            same = mask & (self.draws == draws)
            lower, upper = self.difference(self.shared[same].sum(0), confidence)
            change = Estimate.measured(
                float(self.changes[same].mean()),
                (float(lower), float(upper)),
                "paired draws:pooled",
            )
            parts.append((same.sum() / mask.sum(), change))
        return parts[0][-1] if len(parts) == 1 else joined(parts, "paired draws:pooled by number")


class Pairs:
    """Collects the pairs of one estimator and noise level."""

    def __init__(self, key: GroupKey, quantity: Quantity, matching: Matching) -> None:
        known = key.estimator in matching.paired
        self._key, self._quantity, self._same_noise, self._paired = (
            key,
            quantity,
            matching.same_noise,
            matching.same_noise and known,
        )
        self._why = "" if known else "it is another estimator in each run"
        self._ids = list[str]()
        self._shared = array("d")
        self._drafts = Draft(key, self._ids), Draft(key, self._ids)

    def add(self, pair: Pair) -> None:
        """Add a pair."""
        shared = common(*pair) if self._paired else Common()
        if self._paired and not shared.draws:
            self._why = self._why or why_unpaired(*pair)
        self._ids.append(pair[1].sample_id)
        for draft, row in zip(self._drafts, pair, strict=True):
            draft.add(row, len(self._ids) - 1)
        self._shared.extend((*shared[:5], *shared.kept, *shared.split))

    def group(self, lost: Iterable[Row], where: str) -> Group:
        """All pairs; ``lost``: the base run's rows of samples that the new run skipped.

        Raises:
            NothingLeftError: no pair has finite values.
        """
        key = self._key
        runs = [draft.columns() for draft in self._drafts]
        voted = any(columns.approximated.any() for columns in runs)
        runs = [columns.by_votes() for columns in runs]
        finite = np.isfinite(runs[0].values) & np.isfinite(runs[1].values)
        if not finite.any():
            raise NothingLeftError(
                where, f"{key.estimator} at {key.at} has no finite value in both"
            )
        taken = [columns.take(finite) for columns in runs]
        table = np.frombuffer(self._shared, dtype=np.float64).reshape(-1, 9)[finite]
        draws = table[:, 0].astype(np.int64)
        sides = []
        for which, columns in enumerate(taken):
            cut = (draws > 0) & (draws < columns.draws)
            sides.append(
                columns.of_votes(
                    cut, table[:, 5 + which].astype(np.int64), draws, table[:, 7 + which]
                )
            )
        longer = np.flatnonzero(
            (draws > 0) & ((taken[0].draws > draws) | (taken[1].draws > draws))
        )[:1]
        cut_at = (
            (int(taken[0].draws[longer[0]]), int(taken[1].draws[longer[0]]))
            if len(longer)
            else None
        )
        skipped = [(NO_CLASS if row.label is None else row.label, row.predicted) for row in lost]
        left_out = zip(
            runs[1].label[~finite].tolist(), runs[0].predicted[~finite].tolist(), strict=True
        )
        return Group(
            key=key,
            quantity=self._quantity,
            ids=taken[1].names,
            base=sides[0],
            new=sides[1],
            shared=table[:, :5],
            same_noise=self._same_noise,
            why=self._why,
            cut=cut_at,
            voted=voted,
            without=[*left_out, *skipped],
            skipped=len(skipped),
        )


def joined(parts: Sequence[tuple[float, Estimate]], method: str) -> Estimate:
    """The mean of independent parts, from the share of the samples and the change of each
    (MOVER)."""
    value = sum(share * change.value for share, change in parts)
    below = math.hypot(*(share * change.below for share, change in parts))
    above = math.hypot(*(share * change.above for share, change in parts))
    return Estimate.measured(value, (value - below, value + above), method)
