"""Bounds on how many samples are truly worse, or truly newly flagged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robaudit.compare.paired import Group, Mask
from robaudit.compare.result import Counts, Limits
from robaudit.gates.measure import Method
from robaudit.numerics.intervals import clopper_pearson
from robaudit.stats.intervals import TAIL, Floats, least_count

_BY_COUNTS = "counts of the samples' intervals"


def sample_ends(group: Group, tail: float | None = None) -> tuple[Floats, Floats]:
    """Each sample's interval of the difference; NaN where there is none.

    Args:
        group: the pairs.
        tail: the chance that an interval misses on a given side; None: the chance of the rows' own 95 % intervals.
    """
    change, sides = group.changes, (group.base, group.new)
    (low, high), (new_low, new_high) = (side.ends(tail) for side in sides)
    below, above = (group.new.values - new_low, high - group.base.values), (new_high - group.new.values, group.base.values - low)
    join = np.add if group.adds else np.hypot
    lower, upper = change - join(*below), change + join(*above)
    if (some := group.draws > 0).any():
        confidence = 1.0 - 2.0 * (TAIL if tail is None else tail)
        lower[some], upper[some] = group.difference(group.shared[some], confidence)
    return lower, upper


def counted(group: Group, below: float, confidence: float, *, same_model: bool) -> Counts:
    """Bounds on how many samples are truly worse, or truly newly flagged, given that each was measured with an error.

    Of n samples whose intervals each miss on one side with a chance of g, about g n appear worse even if none is. The bounds allow for
    that: by :func:`robaudit.stats.intervals.least_count` on the
    samples' own 95 % intervals, and by intervals wide enough to hold simultaneously for all n (Bonferroni), whichever bound is tighter.
    Each gets half of the error.

    Args:
        group: at least one pair.
        below: the threshold of flagged samples.
        confidence: of the bounds.
        same_model: then no sample is truly worse or newly flagged, unless the runs prove that the models differ.
    """
    if np.isnan(group.base.lowers).any() or np.isnan(group.new.lowers).any():
        return Counts(None, None, None)
    size, alpha = group.size, (1.0 - confidence) / 2.0
    strict = alpha / (4.0 * size)
    (worse, not_worse), (flagged, not_flagged) = _worse(group, strict), _flagged(group, below, strict)

    def bounds(yes: ShownCounts, no: ShownCounts) -> tuple[int, int, str]:
        least = yes.least(size, alpha)
        if same_model and not least:
            return least, size - len(group), Method.SAME_MODEL
        return least, size - no.least(size, alpha), _BY_COUNTS

    least, most, method = bounds(worse, not_worse)
    population = measured = Limits(least / size, most / size, method)
    if method != Method.SAME_MODEL:
        shares = (shown.least_share(size, strict, confidence) for shown in (worse, not_worse))
        lower, not_so = shares
        population = Limits(lower, 1.0 - not_so, f"{_BY_COUNTS}, Clopper-Pearson")
    flags, most_flags, method = bounds(flagged, not_flagged)
    return Counts(measured, population, Limits(float(flags), float(most_flags), method))


class ShownCounts(NamedTuple):
    """Samples shown to be of a kind.

    Attributes:
        usual: by their own 95 % intervals (n,), each of which is wrong with a chance of at most ``tail``.
        strict: by intervals that hold for all samples at once (n,).
    """

    usual: Mask
    strict: Mask
    tail: float

    def least(self, size: int, alpha: float) -> int:
        """A lower bound on the number of the kind, at confidence 1 - alpha."""
        return max(least_count(int(self.usual.sum()), size, self.tail, alpha / 2.0), int(self.strict.sum()))

    def least_share(self, size: int, strict: float, confidence: float) -> float:
        """A lower bound on the share s of the kind among all images: a sample appears to be of it with a chance r <= s + g (1 - s)."""

        def share(number: int, g: float) -> float:
            rate = float(clopper_pearson(number, size, 1.0 - (1.0 - confidence) / 2.0)[0])
            return max(0.0, (rate - g) / (1.0 - g))

        return max(share(int(self.usual.sum()), self.tail), share(int(self.strict.sum()), 2.0 * strict))


def _tails(group: Group) -> list[float]:
    """The chance that an interval of each run misses on one side."""
    return [2 * TAIL if side.adaptive else TAIL for side in (group.base, group.new)]


def _worse(group: Group, strict: float) -> tuple[ShownCounts, ShownCounts]:
    """The samples that are worse, and that are not."""
    tail = sum(_tails(group)) if group.adds and not group.paired else TAIL
    masks = []
    for each in (None, strict):
        lower, upper = sample_ends(group, each)
        masks.append((upper < 0, lower >= 0) if group.sign > 0 else (lower > 0, upper <= 0))
    (yes, no), (strictly, strictly_no) = masks
    return ShownCounts(yes, strictly, tail), ShownCounts(no, strictly_no, tail)


def _flagged(group: Group, below: float, strict: float) -> tuple[ShownCounts, ShownCounts]:
    """The samples that are newly flagged, and that are not."""
    edge, masks = group.sign * below, []
    for tail in (None, strict):
        ends = [side.ends(tail) for side in (group.base, group.new)]
        (worst, best), (new_worst, new_best) = ends if group.sign > 0 else [(-upper, -lower) for lower, upper in ends]
        masks.append(((worst >= edge) & (new_best < edge), (best < edge) | (new_worst >= edge)))
    (yes, no), (strictly, strictly_no) = masks
    return ShownCounts(yes, strictly, max(_tails(group))), ShownCounts(no, strictly_no, sum(_tails(group)))
