"""Bounds on how many samples are truly worse, or truly newly flagged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robaudit.compare.paired import Group
from robaudit.compare.result import Counts
from robaudit.estimates import Covers, Estimate
from robaudit.gates.measure import Method
from robaudit.numerics.image_intervals import TAIL, Floats, Mask, least_share, least_shown

_BY_COUNTS = "counts of the samples' intervals"


def sample_ends(group: Group, tail: float | None = None) -> tuple[Floats, Floats]:
    """Each sample's interval of the difference; NaN where there is none.

    Args:
        group: the pairs.
        tail: the chance that an interval misses on a given side; None: as for the rows' own 95 %
            intervals.
    """
    change = group.changes
    sides = (group.base, group.new)
    (low, high), (new_low, new_high) = (side.restated(tail) for side in sides)
    below = (group.new.values - new_low, high - group.base.values)
    above = (new_high - group.new.values, group.base.values - low)
    join = np.add if group.adds else np.hypot
    lower = change - join(*below)
    upper = change + join(*above)
    if (paired := group.draws > 0).any():
        confidence = 1.0 - 2.0 * (TAIL if tail is None else tail)
        lower[paired], upper[paired] = group.difference(group.shared[paired], confidence)
    return lower, upper


def counted(group: Group, below: float, confidence: float, *, same_model: bool) -> Counts | None:
    """Bounds on the number of samples that are truly worse, or truly newly flagged, despite
    measurement errors; None without intervals.

    Of n samples whose intervals each miss on one side with a chance of g, about g n appear worse
    even if none is. The bounds (:func:`robaudit.numerics.image_intervals.least_shown`) allow for
    that.

    Args:
        group: at least one pair.
        below: the threshold of flagged samples.
        confidence: of the bounds.
        same_model: whether both runs have the same model: then no sample is truly worse or newly
            flagged, unless the runs prove otherwise.
    """
    if np.isnan(group.base.ends[0]).any() or np.isnan(group.new.ends[0]).any():
        return None
    size = group.size
    alpha = (1.0 - confidence) / 2.0
    strict = alpha / (4.0 * size)
    once = max(_tails(group))
    twice = sum(_tails(group))
    tail = twice if group.adds and not group.paired else TAIL
    worse, not_worse = zip(_worse(group, None), _worse(group, strict), strict=True)
    flagged, not_flagged = zip(
        _flagged(group, below, None), _flagged(group, below, strict), strict=True
    )

    def number(yes: Shown, no: Shown, tail: float, tail_of_no: float) -> Estimate:
        """The number of samples of a kind; the value is the number of samples that their own
        intervals show to be of it."""
        least = least_shown(*yes, size, tail, alpha)
        same = same_model and not least
        most = size - (len(group) if same else least_shown(*no, size, tail_of_no, alpha))
        value = min(max(int(yes[0].sum()), least), most)
        return Estimate.measured(value, (least, most), Method.SAME_MODEL if same else _BY_COUNTS)

    def share(shown: Shown) -> float:
        usual, strictly = (int(mask.sum()) for mask in shown)
        each = 1.0 - (1.0 - confidence) / 2.0
        return max(
            least_share(usual, size, tail, each), least_share(strictly, size, 2.0 * strict, each)
        )

    measured = number(worse, not_worse, tail, tail).over(size)
    population = replace(measured, covers=Covers.POPULATION)
    if measured.method != Method.SAME_MODEL:
        bounds = share(worse), 1.0 - share(not_worse)
        population = Estimate.population(measured.value, bounds, f"{_BY_COUNTS}, Clopper-Pearson")
    return Counts(measured, population, number(flagged, not_flagged, once, twice))


Shown = tuple[Mask, Mask]
"""Masks of the samples shown to be of a kind: by their own 95 % intervals, and by intervals that
hold for all samples at once (n,)."""


def _tails(group: Group) -> list[float]:
    """The chance that an interval of each run misses on one side."""
    return [2 * TAIL if side.adaptive else TAIL for side in (group.base, group.new)]


def _worse(group: Group, tail: float | None) -> tuple[Mask, Mask]:
    """The samples that are worse, and those that are not."""
    lower, upper = sample_ends(group, tail)
    return (upper < 0, lower >= 0) if group.sign > 0 else (lower > 0, upper <= 0)


def _flagged(group: Group, below: float, tail: float | None) -> tuple[Mask, Mask]:
    """The samples that are newly flagged, and those that are not."""
    edge = group.sign * below
    ends = [side.restated(tail) for side in (group.base, group.new)]
    (worst, best), (new_worst, new_best) = (
        ends if group.sign > 0 else [(-upper, -lower) for lower, upper in ends]
    )
    return (worst >= edge) & (new_best < edge), (best < edge) | (new_worst >= edge)
