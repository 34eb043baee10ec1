"""What does a comparison need of two runs' rows of one group: a few numbers of each pair?"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from robaudit.compare.matching import Common, Pair, common, why_unpaired
from robaudit.compare.paired import Ends
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import IntervalKind
from robaudit.rows import Row
from robaudit.stats.groups import GroupKey, QuantityLike

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
_USUAL = 0.95
"""Confidence of the rows' own intervals."""


class Side:
    """The numbers of one run's rows."""

    def __init__(self) -> None:
        self._values, self._lowers, self._uppers = array("d"), array("d"), array("d")
        self._draws, self._hits, self._hit_draws = array("d"), array("d"), array("d")
        self._predicted, self._labels, self._correct = array("q"), array("q"), array("b")
        self.adaptive = self.sampling_only = 0

    def add(self, row: Row, whole: Row) -> None:
        """Take one more row with a finite value, of the draws that are compared; votes for its label are counted of all draws."""
        bounded = row.lower is not None or row.upper is not None
        self._values.append(row.value)
        self._lowers.append(row.lower if row.lower is not None else -math.inf if bounded else math.nan)
        self._uppers.append(row.upper if row.upper is not None else math.inf if bounded else math.nan)
        draws, votes = row.draws, row.votes or ()
        adaptive = row.interval.kind is IntervalKind.CONFIDENCE_SEQUENCE
        independent = draws >= sum(votes) > 0 and not adaptive and row.effective_draws == draws and row.predicted < len(votes)
        counted = independent and abs(votes[row.predicted] / draws - row.value) < 1e-9
        self._draws.append(draws if counted else 0)
        labelled = independent and row.label is not None
        all_votes = whole.votes or ()
        self._hits.append(all_votes[row.label] if labelled and row.label is not None and row.label < len(all_votes) else 0)
        self._hit_draws.append(whole.draws if labelled else 0)
        self._predicted.append(row.predicted)
        self._labels.append(-1 if row.label is None else row.label)
        self._correct.append(-1 if row.correct is None else row.correct)
        self.adaptive += adaptive
        self.sampling_only += not row.interval.covers_bias

    @cached_property
    def values(self) -> Floats:
        """The values."""
        return np.frombuffer(self._values, dtype=np.float64)

    @cached_property
    def lowers(self) -> Floats:
        """Lower ends; NaN without an interval, -inf where it is open."""
        return np.frombuffer(self._lowers, dtype=np.float64)

    @cached_property
    def uppers(self) -> Floats:
        """Upper ends; NaN without an interval, inf where it is open."""
        return np.frombuffer(self._uppers, dtype=np.float64)

    @cached_property
    def draws(self) -> Floats:
        """Independent draws whose share the value is; 0 where it is none."""
        return np.frombuffer(self._draws, dtype=np.float64)

    @cached_property
    def hits(self) -> Floats:
        """Votes for the label."""
        return np.frombuffer(self._hits, dtype=np.float64)

    @cached_property
    def hit_draws(self) -> Floats:
        """Independent draws behind them; 0 where there is no label or no such draws."""
        return np.frombuffer(self._hit_draws, dtype=np.float64)

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """Classes predicted on the clean images."""
        return np.frombuffer(self._predicted, dtype=np.int64)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Labels; -1 where unknown."""
        return np.frombuffer(self._labels, dtype=np.int64)

    @cached_property
    def correct(self) -> NDArray[np.int8]:
        """1 predicted right, 0 wrong, -1 unknown."""
        return np.frombuffer(self._correct, dtype=np.int8)

    def ends(self, tail: float) -> tuple[Floats, Floats]:
        """Each image's interval that misses on a given side with a chance of at most ``tail``; NaN where none can be made so sure.

        Shares of votes: Clopper-Pearson; others: the 95 % interval, stretched as a normal error's. Confidence sequences and ends that
        only bound are as they are.
        """
        from scipy.special import ndtri

        stretch = max(1.0, float(ndtri(1.0 - tail) / ndtri(0.5 + _USUAL / 2)))
        lower, upper = self.values - stretch * (self.values - self.lowers), self.values + stretch * (self.uppers - self.values)
        if self.adaptive:
            return np.full_like(lower, np.nan), np.full_like(upper, np.nan)
        if (votes := self.draws > 0).any():
            lower[votes], upper[votes] = clopper_pearson(np.round(self.values * self.draws)[votes], self.draws[votes], 1.0 - 2.0 * tail)
        return lower, upper

    def mean_ends(self, of: Mask, confidence: float) -> Ends | None:
        """The interval of the mean of these values for these images; None where an image has none.

        As :func:`robaudit.stats.summary.mean_of` makes it; intervals of rows, which are of 95 %, are stretched to another
        confidence as those of a normal distribution are.
        """
        from scipy.special import ndtri

        values, draws = self.values[of], self.draws[of]
        if (draws > 0).all() and (draws == draws[0]).all():
            lower, upper = clopper_pearson(round(float(values @ draws)), float(draws.sum()), confidence)
            return Ends(float(lower), float(upper), "clopper-pearson:pooled")
        lowers, uppers = self.lowers[of], self.uppers[of]
        if np.isnan(lowers).any():
            return None
        stretch = float(ndtri(0.5 + confidence / 2) / ndtri(0.5 + _USUAL / 2))
        mean, below, above = float(values.mean()), values - lowers, uppers - values
        if self.adaptive:
            return Ends(mean - stretch * float(below.mean()), mean + stretch * float(above.mean()), "mean of intervals")
        size = values.size
        return Ends(mean - stretch * float(np.linalg.norm(below)) / size, mean + stretch * float(np.linalg.norm(above)) / size, "mover")


class Group:
    """The pairs of rows of one estimator and noise level.

    Attributes:
        key, quantity: what was measured.
        ids: of the samples, in the order of the pairs.
        base, new: the numbers of each run.
        same_noise: whether both runs gave each sample the same noise.
        not_finite: pairs left out, as one of their values is no finite number.
        skipped: samples of the base run that the new one skipped.
        cut: draws of each image of the base run and of the new one, where one has more than are compared.
        why: why pairs are not paired, where both saw the same noise.
    """

    def __init__(self, key: GroupKey, quantity: QuantityLike, *, same_noise: bool, paired: bool) -> None:
        self.key, self.quantity, self.same_noise, self._paired = key, quantity, same_noise, same_noise and paired
        self.ids: list[str] = []
        self.base, self.new = Side(), Side()
        self.not_finite = self.skipped = 0
        self.cut: tuple[int, int] | None = None
        self.why = "" if paired else "only the draws of mc are numbered alike in both"
        self._unknown = array("q"), array("q")  # labels and predictions of those without a difference
        self._lost, self._won, self._draws = array("d"), array("d"), array("d")

    def add(self, pair: Pair) -> None:
        """Take one more pair."""
        if not all(math.isfinite(row.value) for row in pair):
            self.not_finite += 1
            self._without(pair[0], pair[1].label)
            return
        lost, won, draws, rows = common(*pair) if self._paired else Common(0, 0, 0, pair)
        if self._paired and not draws:
            self.why = self.why or why_unpaired(*pair)
        if self.cut is None and (rows[0] is not pair[0] or rows[1] is not pair[1]):
            self.cut = pair[0].draws, pair[1].draws
        self.ids.append(pair[1].sample_id)
        self.base.add(rows[0], pair[0])
        self.new.add(rows[1], pair[1])
        self._lost.append(lost)
        self._won.append(won)
        self._draws.append(draws)

    def lose(self, row: Row) -> None:
        """Take one more sample of the base run that the new one skipped."""
        self.skipped += 1
        self._without(row, row.label)

    def _without(self, base: Row, label: int | None) -> None:
        self._unknown[0].append(-1 if label is None else label)
        self._unknown[1].append(base.predicted)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sign(self) -> float:
        """1 where higher is better, else -1."""
        return 1.0 if self.quantity.higher_is_better else -1.0

    @cached_property
    def changes(self) -> Floats:
        """New minus base, sample by sample."""
        return self.new.values - self.base.values

    @cached_property
    def lost(self) -> Floats:
        """Draws that kept the class in the base run only."""
        return np.frombuffer(self._lost, dtype=np.float64)

    @cached_property
    def won(self) -> Floats:
        """Draws that kept the class in the new run only."""
        return np.frombuffer(self._won, dtype=np.float64)

    @cached_property
    def draws(self) -> Floats:
        """Draws that both runs were tried on; 0 where the rows do not say."""
        return np.frombuffer(self._draws, dtype=np.float64)

    @property
    def paired(self) -> bool:
        """Whether all samples can be paired draw by draw, with as many draws each."""
        return bool(len(self) and self.draws[0] > 0 and (self.draws == self.draws[0]).all())

    @property
    def identical(self) -> bool:
        """Whether nothing at all differs."""
        return bool(not self.changes.any() and not self.lost.any() and not self.won.any())

    @property
    def by_label(self) -> bool:
        """Whether classes are labels; else the base run's predictions."""
        return bool((self.new.labels >= 0).any())

    @property
    def unknown(self) -> Counter[int]:
        """How many samples of each class have no difference; -1: of none."""
        return Counter(self._unknown[0] if self.by_label else self._unknown[1])

    @property
    def unknown_labelled(self) -> int:
        """How many samples with a label have none."""
        return sum(label >= 0 for label in self._unknown[0])

    @property
    def everything(self) -> Mask:
        """All samples."""
        return np.ones(len(self), dtype=np.bool_)
