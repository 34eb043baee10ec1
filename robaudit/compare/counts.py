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
    """Each sample's interval of the difference (n,); NaN where there is none.

    Args:
        group: the pairs.
        tail: the chance that an interval misses on a given side. Default: the chance of the rows'
            own 95 % intervals.
    """
    base = group.base.values
    new = group.new.values
    base_lower, base_upper = group.base.restated(tail)
    new_lower, new_upper = group.new.restated(tail)
    # Distances of independent errors add in quadrature (MOVER; Zou and Donner 2008).
    join = np.add if group.adds else np.hypot
    lower = group.changes - join(new - new_lower, base_upper - base)
    upper = group.changes + join(new_upper - new, base - base_lower)
    paired = group.draws > 0
    if paired.any():
        confidence = 1.0 - 2.0 * (TAIL if tail is None else tail)
        lower[paired], upper[paired] = group.difference(group.shared[paired], confidence)
    return lower, upper


def count_bounds(
    group: Group, below: float, confidence: float, *, same_model: bool
) -> Counts | None:
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
    # A sample without an interval may be of any kind: its value does not tell.
    sides = (group.base, group.new)
    without_interval = [np.isnan(side.ends[0]).any() for side in sides]
    if any(without_interval):
        return None
    size = group.size
    alpha = (1.0 - confidence) / 2.0
    # A sample is judged by an interval of each run. With this tail, those of all samples hold at
    # once but for an error of 2 size tail = alpha / 2, which is half of the error on a side.
    strict_tail = alpha / (4.0 * size)
    either_tail = max(_tails(group))
    both_tails = sum(_tails(group))
    # Where distances add, the interval of a difference misses if either run's does.
    tail = both_tails if group.adds and not group.paired else TAIL
    usual_worse, usual_not_worse = _worse(group, None)
    strictly_worse, strictly_not_worse = _worse(group, strict_tail)
    worse = (usual_worse, strictly_worse)
    not_worse = (usual_not_worse, strictly_not_worse)
    usual_flagged, usual_not_flagged = _flagged(group, below, None)
    strictly_flagged, strictly_not_flagged = _flagged(group, below, strict_tail)
    flagged = (usual_flagged, strictly_flagged)
    not_flagged = (usual_not_flagged, strictly_not_flagged)

    def number(yes: Shown, no: Shown, tail: float, tail_of_no: float) -> Estimate:
        """The number of samples of a kind.

        The value is the number of samples that their own intervals show to be of the kind.
        """
        least = least_shown(*yes, size, tail, alpha)
        same = same_model and not least
        # With the same model all compared samples are known not to be of the kind.
        least_not = len(group) if same else least_shown(*no, size, tail_of_no, alpha)
        most = size - least_not
        shown = int(yes[0].sum())
        value = min(max(shown, least), most)
        return Estimate.measured(value, (least, most), Method.SAME_MODEL if same else _BY_COUNTS)

    def share(shown: Shown) -> float:
        """A lower bound of the share of a kind in the population."""
        usual, strictly = (int(mask.sum()) for mask in shown)
        # The better of two bounds, each at half of the error.
        each = 1.0 - (1.0 - confidence) / 2.0
        by_usual = least_share(usual, size, tail, each)
        by_strict = least_share(strictly, size, 2.0 * strict_tail, each)
        return max(by_usual, by_strict)

    measured = number(worse, not_worse, tail, tail).over(size)
    population = replace(measured, covers=Covers.POPULATION)
    if measured.method != Method.SAME_MODEL:
        bounds = share(worse), 1.0 - share(not_worse)
        population = Estimate.population(measured.value, bounds, f"{_BY_COUNTS}, Clopper-Pearson")
    # A sample that is not newly flagged seems so if one given interval misses; a newly flagged one
    # seems not to be if either of two misses.
    newly_flagged = number(flagged, not_flagged, either_tail, both_tails)
    return Counts(measured, population, newly_flagged)


Shown = tuple[Mask, Mask]
"""Masks of the samples shown to be of a kind (n,).

The first is by their own 95 % intervals, the second by intervals that hold for all samples at once.
"""


def _tails(group: Group) -> list[float]:
    """The chance that an interval of each run misses on one side."""
    # A confidence sequence bounds only both sides together.
    return [2 * TAIL if side.adaptive else TAIL for side in (group.base, group.new)]


def _worse(group: Group, tail: float | None) -> tuple[Mask, Mask]:
    """The samples that are worse, and those that are not worse."""
    lower, upper = sample_ends(group, tail)
    if group.sign > 0:
        return upper < 0, lower >= 0
    return lower > 0, upper <= 0


def _flagged(group: Group, below: float, tail: float | None) -> tuple[Mask, Mask]:
    """The samples that are newly flagged, and those that are not newly flagged."""
    base_ends = group.base.restated(tail)
    new_ends = group.new.restated(tail)
    # Mirrored where lower is better, so that a flagged value is always below the edge.
    if group.sign < 0:
        base_ends = (-base_ends[1], -base_ends[0])
        new_ends = (-new_ends[1], -new_ends[0])
    edge = group.sign * below
    base_lower, base_upper = base_ends
    new_lower, new_upper = new_ends
    newly = (base_lower >= edge) & (new_upper < edge)
    not_newly = (base_upper < edge) | (new_lower >= edge)
    return newly, not_newly
