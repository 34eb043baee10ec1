"""How many samples are truly worse, or truly newly flagged, given that each was measured with an error?

Of n samples whose intervals each miss on one side with a chance of g, some g n look worse where none is. So what is claimed is not
the number that look so, but how many there are at least and at most: by :func:`robaudit.gates.misses.at_least` on the samples' own
95 % intervals, and by intervals so wide that of all n together hardly one misses (Bonferroni), whichever says more. Each takes half
of the error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robaudit.compare.columns import Floats, Group, Mask, Side
from robaudit.compare.paired import Ends, paired_difference
from robaudit.gates.images import TAIL
from robaudit.gates.misses import at_least
from robaudit.numerics.intervals import clopper_pearson

_METHOD = "counts of the samples' intervals"


class Sides(NamedTuple):
    """Samples that are surely of a kind, and surely not: by their own intervals, and by those at the stricter level."""

    yes: Mask
    no: Mask
    strictly_yes: Mask
    strictly_no: Mask


class Counts(NamedTuple):
    """Bounds on the share of samples that are worse, and on the number of newly flagged ones; None without intervals."""

    worse: Ends | None
    worse_population: Ends | None
    newly_flagged: Ends | None


def sample_ends(group: Group, tail: float | None = None) -> tuple[Floats, Floats]:
    """Each sample's interval of the difference; NaN where there is none.

    Args:
        group: the pairs.
        tail: the chance that an interval misses on a given side; None: that of the rows' own 95 % intervals.
    """
    change, sides = group.changes, (group.base, group.new)
    (low, high), (new_low, new_high) = ((side.lowers, side.uppers) if tail is None else side.ends(tail) for side in sides)
    below, above = (group.new.values - new_low, high - group.base.values), (new_high - group.new.values, group.base.values - low)
    join = np.add if _adds(group) else np.hypot
    lower, upper = change - join(*below), change + join(*above)
    if (some := group.draws > 0).any():
        confidence = 1.0 - 2.0 * (TAIL if tail is None else tail)
        lower[some], upper[some] = paired_difference(group.lost[some], group.won[some], group.draws[some], confidence)
    return lower, upper


def counted(group: Group, below: float, confidence: float, *, same_model: bool) -> Counts:
    """The bounds for the gates on counts.

    Args:
        group: at least one pair.
        below: the threshold of flagged samples.
        confidence: of the bounds.
        same_model: no sample is truly worse or newly flagged then; unless the runs prove that the model is not the same.
    """
    if np.isnan(group.base.lowers).any() or np.isnan(group.new.lowers).any():
        return Counts(None, None, None)
    known, size = len(group), len(group) + group.not_finite + group.skipped
    alpha = (1.0 - confidence) / 2.0
    strict = alpha / (4.0 * size)
    tails = [2 * TAIL if side.adaptive else TAIL for side in (group.base, group.new)]
    worse, flagged = _worse(group, strict), _flagged(group, below, strict)
    by_worse = (sum(tails), sum(tails)) if _adds(group) and not group.paired else (TAIL, TAIL)
    by_flags = max(tails), sum(tails)
    found = []
    for sides, (tail_yes, tail_no) in ((worse, by_worse), (flagged, by_flags)):
        least = _least(sides.yes, sides.strictly_yes, size, tail_yes, alpha)
        least_not = _least(sides.no, sides.strictly_no, size, tail_no, alpha)
        if same_model and not least:
            least_not = known
        found.append((least, size - least_not))
    (least, most), (flags, most_flags) = found
    method = "the same model" if same_model and not least else _METHOD
    these = Ends(least / size, most / size, method)
    if same_model and not least:
        population = these
    else:
        shares = (
            _least_share(yes, strictly, size, tail, strict, confidence)
            for yes, strictly, tail in ((worse.yes, worse.strictly_yes, by_worse[0]), (worse.no, worse.strictly_no, by_worse[1]))
        )
        lower, not_so = shares
        population = Ends(lower, 1.0 - not_so, f"{_METHOD}, Clopper-Pearson")
    return Counts(these, population, Ends(float(flags), float(most_flags), "the same model" if same_model and not flags else _METHOD))


def _adds(group: Group) -> bool:
    """Whether distances add: sequences lean, and errors on the same noise may go against each other."""
    return bool(group.base.adaptive or group.new.adaptive or group.same_noise)


def _worse(group: Group, strict: float) -> Sides:
    found = []
    for tail in (None, strict):
        lower, upper = sample_ends(group, tail)
        found += [upper < 0, lower >= 0] if group.sign > 0 else [lower > 0, upper <= 0]
    return Sides(*found)


def _flagged(group: Group, below: float, strict: float) -> Sides:
    sign, found = group.sign, list[Mask]()
    edge = sign * below

    def ends(side: Side, tail: float | None) -> tuple[Floats, Floats]:
        """Where higher is better: the worst value it may have, and the best."""
        lower, upper = (side.lowers, side.uppers) if tail is None else side.ends(tail)
        return (lower, upper) if sign > 0 else (-upper, -lower)

    for tail in (None, strict):
        (worst, best), (new_worst, new_best) = ends(group.base, tail), ends(group.new, tail)
        found += [(worst >= edge) & (new_best < edge), (best < edge) | (new_worst >= edge)]
    return Sides(*found)


def _least(sure: Mask, strictly: Mask, size: int, tail: float, alpha: float) -> int:
    """So many are of the kind at least, at confidence 1 - alpha."""
    return max(at_least(int(sure.sum()), size, tail, alpha / 2.0), int(strictly.sum()))


def _least_share(sure: Mask, strictly: Mask, size: int, tail: float, strict: float, confidence: float) -> float:
    """So large a share of all images of this kind: a sample looks so with a chance r <= s + g (1 - s)."""

    def share(number: int, g: float) -> float:
        rate = float(clopper_pearson(number, size, 1.0 - (1.0 - confidence) / 2.0)[0])
        return max(0.0, (rate - g) / (1.0 - g))

    return max(share(int(sure.sum()), tail), share(int(strictly.sum()), 2.0 * strict))
