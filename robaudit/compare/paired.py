"""Pairs of results of two runs, with the noise draws that both share."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.compare.matching import CommonDraws, Matching, Pair, common_draws, why_unpaired
from robaudit.errors import NothingLeftError
from robaudit.estimates import Estimate
from robaudit.numerics.image_intervals import Floats, Mask
from robaudit.numerics.intervals import antithetic_difference, paired_difference
from robaudit.quantities import Quantity
from robaudit.runs.groups import GroupKey
from robaudit.runs.rows import Row
from robaudit.runs.table import NO_CLASS, Columns, ColumnsBuilder, Ints, antithetic


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The pairs of rows of one estimator and noise level with a finite value in both runs.

    Attributes:
        key, quantity: estimator, noise level, and the quantity of the values.
        ids: of the samples, in the order of the pairs (n,).
        base, new: the rows of both runs, restricted to the draws that both share; votes replace
            approximations.
        shared: the common draws of each sample (n, 5): draws, lost, won, half_lost, half_won, as in
            :class:`robaudit.compare.matching.CommonDraws`.
        other_noise: why the samples' noise differs between the runs; "" if it is the same.
        same_generator: whether both runs drew their noise from the same random numbers.
        why: why draws are not paired, where both have the same noise.
        cut: draws per image of the base run and of the new run, if the group uses only the first
            ones of either.
        voted: whether votes replace the rows' approximations.
        without: label and base prediction of the samples without a difference: a value is not
            finite, or the new run skipped the sample.
        skipped: number of skipped samples among these.
    """

    key: GroupKey
    quantity: Quantity
    ids: Sequence[str]
    base: Columns
    new: Columns
    shared: Floats
    other_noise: str
    same_generator: bool
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
        """Whether all samples can be compared draw by draw.

        The draws need not have the same noise. Each two of the same number are independent of all
        others, which is all that :meth:`difference` needs, however they depend on each other.
        """
        return bool((self.draws > 0).all())

    @property
    def method(self) -> str:
        """How the draws of the two runs belong together, where they are compared one by one."""
        return "draws of different noise" if self.other_noise else "paired draws"

    @property
    def antithetic(self) -> bool:
        """Whether the shared draws are antithetic pairs."""
        splits = [antithetic(side.split) for side in (self.base, self.new)]
        return all(split is not None for split in splits)

    @property
    def by_label(self) -> bool:
        """Whether classes are labels; else the base run's predictions."""
        return bool((self.new.label >= 0).any())

    @property
    def adds(self) -> bool:
        """Whether the distances of unpaired intervals add, instead of in quadrature."""
        # Stopping adaptively biases, chains may lag in all images, and errors from the same random
        # numbers may have opposite signs.
        sides = (self.base, self.new)
        leans = any(side.adaptive or bool(side.is_chained.any()) for side in sides)
        return leans or self.same_generator

    def difference(self, shared: Floats, confidence: float) -> tuple[Floats, Floats]:
        """The interval of new minus base from sums, or single rows, of :attr:`shared`."""
        draws, lost, won, half_lost, half_won = np.moveaxis(shared, -1, 0)
        # The copies of an antithetic pair depend on each other, so pairs are the units then.
        if self.antithetic:
            return antithetic_difference(
                (half_lost, half_won), (lost, won), draws / 2.0, confidence
            )
        return paired_difference(lost, won, draws, confidence)

    def paired_change(self, mask: Mask, confidence: float) -> Estimate:
        """The mean change of selected samples with its interval from the draws that both share.

        Draws are pooled over samples with the same number.
        """
        parts = []
        # In a pool of unequal numbers, a sample with more draws would weigh more in the mean.
        for draws in np.unique(self.draws[mask]):
            same = mask & (self.draws == draws)
            lower, upper = self.difference(self.shared[same].sum(0), confidence)
            change = Estimate.measured(
                float(self.changes[same].mean()),
                (float(lower), float(upper)),
                f"{self.method}:pooled",
            )
            parts.append((same.sum() / mask.sum(), change))
        if len(parts) == 1:
            return parts[0][1]
        return mean_of_parts(parts, f"{self.method}:pooled by number")


# Columns of a collection's array: the five counts of CommonDraws, then for each run its kept draws
# and its antithetic pairs that disagree.
_KEPT = 5
_SPLIT = 7
_SUMS = 9


class Pairs:
    """Collects the pairs of an estimator and noise level."""

    def __init__(self, key: GroupKey, quantity: Quantity, matching: Matching) -> None:
        known = key.estimator in matching.paired
        self._key = key
        self._quantity = quantity
        self._other_noise = matching.why_other_noise(key.at)
        self._same_generator = matching.same_generator
        self._paired = matching.same_generator and known
        self._why = "" if known else "it is another estimator in each run"
        self._ids = list[str]()
        self._shared = array("d")
        self._drafts = ColumnsBuilder(key, self._ids), ColumnsBuilder(key, self._ids)

    def add(self, pair: Pair) -> None:
        """Add a pair."""
        # With other seeds, draw j of one run has nothing to do with draw j of the other.
        shared = common_draws(*pair) if self._paired else CommonDraws()
        if self._paired and not shared.draws:
            self._why = self._why or why_unpaired(*pair)
        self._ids.append(pair[1].sample_id)
        for draft, row in zip(self._drafts, pair, strict=True):
            draft.add(row, len(self._ids) - 1)
        self._shared.extend((*shared[:5], *shared.kept, *shared.split))

    def group(self, lost: Iterable[Row], where: str) -> Group:
        """All pairs.

        Args:
            lost: the base run's rows of samples that the new run skipped.
            where: for messages.

        Raises:
            NothingLeftError: no pair has finite values.
        """
        key = self._key
        runs = [draft.columns() for draft in self._drafts]
        voted = any(columns.approximated.any() for columns in runs)
        # Votes have an interval without bias, which approximations from the same copies lack.
        runs = [columns.by_votes() for columns in runs]
        finite = np.isfinite(runs[0].values) & np.isfinite(runs[1].values)
        if not finite.any():
            raise NothingLeftError(
                where, f"{key.estimator} at {key.at} has no finite value in both"
            )
        all_sums = np.frombuffer(self._shared, dtype=np.float64)
        table = all_sums.reshape(-1, _SUMS)[finite]
        draws = table[:, 0].astype(np.int64)
        whole = [columns.take(finite) for columns in runs]
        # Draw j is the same in both runs, so the run with more draws is cut to the first ones.
        cut = []
        for side, columns in enumerate(whole):
            longer = (draws > 0) & (draws < columns.draws)
            kept = table[:, _KEPT + side].astype(np.int64)
            split = table[:, _SPLIT + side]
            cut.append(columns.of_votes(longer, kept, draws, split))
        # The label and the base run's prediction: the classes of a comparison.
        left_out_labels = runs[1].label[~finite].tolist()
        left_out_predictions = runs[0].predicted[~finite].tolist()
        left_out = zip(left_out_labels, left_out_predictions, strict=True)
        skipped = []
        for row in lost:
            label = NO_CLASS if row.label is None else row.label
            skipped.append((label, row.predicted))
        return Group(
            key=key,
            quantity=self._quantity,
            ids=whole[1].names,
            base=cut[0],
            new=cut[1],
            shared=table[:, :_KEPT],
            other_noise=self._other_noise,
            same_generator=self._same_generator,
            why=self._why,
            cut=_first_cut(whole, draws),
            voted=voted,
            without=[*left_out, *skipped],
            skipped=len(skipped),
        )


def mean_of_parts(parts: Sequence[tuple[float, Estimate]], method: str) -> Estimate:
    """The mean of independent parts, from the share of the samples and the change of each (MOVER;
    Zou and Donner 2008)."""
    value = sum(share * change.value for share, change in parts)
    below = math.hypot(*(share * change.below for share, change in parts))
    above = math.hypot(*(share * change.above for share, change in parts))
    return Estimate.measured(value, (value - below, value + above), method)


def _first_cut(runs: Sequence[Columns], draws: Ints) -> tuple[int, int] | None:
    """The draws of both runs on the first sample of which one has more than are compared."""
    more_draws = (runs[0].draws > draws) | (runs[1].draws > draws)
    longer = (draws > 0) & more_draws
    places = np.flatnonzero(longer)[:1]
    if not len(places):
        return None
    base, new = (int(columns.draws[places[0]]) for columns in runs)
    return base, new
