"""How do two runs differ at one estimator and noise level: in the mean, by class, and sample by sample?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from robaudit.compare.columns import Floats, Group, Mask
from robaudit.compare.counts import counted, sample_ends
from robaudit.compare.matching import Matching
from robaudit.compare.paired import Ends, paired_difference, unpaired_difference
from robaudit.compare.result import ClassChange, Difference, GroupComparison, How, SampleChange, Sureness
from robaudit.compare.thresholds import check_threshold
from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.stats.flags import usual_threshold

_SAME = Ends(0.0, 0.0, "the same model")


def compared(group: Group, matching: Matching, names: Sequence[str] | None, below: float | None, confidence: float) -> GroupComparison:
    """Compare the pairs of one group.

    Args:
        group: at least one pair.
        matching: how the runs fit together: where nothing differs of one model, nothing can.
        names: of the classes.
        below: the threshold of flagged samples; None: the usual one.
        confidence: of the intervals.
    """
    if below is None:
        below = usual_threshold(group.quantity)
    else:
        check_threshold(below, group.quantity, "--below", str(group.key))
    same = matching.same_model and group.identical
    how: How = "the same model" if same else "common random numbers" if group.paired else "unpaired"
    lower, upper = sample_ends(group)
    low, high = group.quantity.low, group.quantity.high
    sign = group.sign
    worse, better = (sign * np.where(sign > 0, upper, lower) < 0), (sign * np.where(sign > 0, lower, upper) > 0)
    return GroupComparison(
        key=group.key,
        unit=group.quantity.unit,
        higher_is_better=group.quantity.higher_is_better,
        images=len(group),
        not_finite=group.not_finite,
        skipped=group.skipped,
        unknown=group.unknown,
        unknown_labelled=group.unknown_labelled,
        span=high - low,
        why="" if how != "unpaired" else matching.why_not or group.why,
        cut=group.cut if group.paired else None,
        counts=counted(group, below, confidence, same_model=matching.same_model),
        draws=int(group.draws[0]) if group.paired else None,
        how=how,
        mean=_mean(group, group.everything, same, confidence),
        noisy_accuracy=_noisy_accuracy(group, same, confidence),
        variance_saved=_saved(group),
        classes=_classes(group, same, names, confidence),
        threshold=below,
        worse=int(worse.sum()),
        better=int(better.sum()),
        declined=int((sign * group.changes < 0).sum()),
        compared=int((~np.isnan(lower)).sum()),
        sampling_only=bool(group.base.sampling_only or group.new.sampling_only),
        changed=_changed(group, below, lower, upper, worse),
        confidence=confidence,
    )


def _mean(group: Group, of: Mask, same: bool, confidence: float) -> Difference:
    base, new = float(group.base.values[of].mean()), float(group.new.values[of].mean())
    if same:
        return Difference(base, new, 0.0, _SAME, _SAME)
    value = float(group.changes[of].mean())
    return Difference(base, new, value, _these(group, of, confidence), _population(group, of, confidence))


def _these(group: Group, of: Mask, confidence: float) -> Ends | None:
    """The measurement of these images: by pooled discordant draws, or from the two means' intervals."""
    if group.paired:
        total = float(group.draws[of].sum())
        lower, upper = paired_difference(group.lost[of].sum(), group.won[of].sum(), total, confidence)
        return Ends(float(lower), float(upper), "paired draws:pooled")
    sides = [(float(side.values[of].mean()), side.mean_ends(of, confidence)) for side in (group.base, group.new)]
    (base, before), (new, now) = sides
    if before is None or now is None:
        return None
    return unpaired_difference((base, before), (new, now), same_noise=group.same_noise)


def _population(group: Group, of: Mask, confidence: float) -> Ends:
    """The choice of the images: Student's t on the samples' differences, with one more at either end of their range. Where that has
    no ends, any number of images says nothing about the rest: one in a million may have changed without bound."""
    base, new, span = group.base, group.new, group.quantity.high - group.quantity.low
    if not math.isfinite(span):
        return Ends(-math.inf, math.inf, "paired images: no bound on a difference")
    open_below = bool(np.isneginf(new.lowers[of]).any() or np.isposinf(base.uppers[of]).any())
    open_above = bool(np.isposinf(new.uppers[of]).any() or np.isneginf(base.lowers[of]).any())
    if open_below or open_above:  # values that only bound on one side
        lower, upper = mean_interval(group.changes[of], -span, span, confidence)
        return Ends(-math.inf if open_below else lower, math.inf if open_above else upper, "paired images: bounds")
    if not (group.base.adaptive or group.new.adaptive):
        lower, upper = mean_interval(group.changes[of], -span, span, confidence)
        return Ends(lower, upper, "paired images")
    lowest, highest = new.lowers[of] - base.uppers[of], new.uppers[of] - base.lowers[of]
    lowest, highest = (np.where(np.isfinite(ends), ends, group.changes[of]) for ends in (lowest, highest))  # those without an interval
    lower, _ = mean_interval(lowest.clip(-span, span), -span, span, confidence)
    _, upper = mean_interval(highest.clip(-span, span), -span, span, confidence)
    return Ends(lower, upper, "paired images: mean of intervals")


def _saved(group: Group) -> float | None:
    """1 - Var[mean difference] / (Var[base mean] + Var[new mean]), of the measurement."""
    if not group.paired:
        return None
    rates = (group.lost + group.won) / group.draws
    apart = sum(float((side.values * (1 - side.values)).sum()) for side in (group.base, group.new))
    return 1 - float((rates - group.changes**2).sum()) / apart if apart > 0 else None


def _noisy_accuracy(group: Group, same: bool, confidence: float) -> Difference | None:
    of = (group.base.labels >= 0) & (group.new.labels >= 0)
    sides = group.base, group.new
    if not of.any() or not all((side.hit_draws[of] > 0).all() for side in sides):
        return None
    shares = [side.hits[of] / side.hit_draws[of] for side in sides]
    base, new = (float(share.mean()) for share in shares)
    if same:
        return Difference(base, new, 0.0, _SAME, _SAME)
    return Difference(base, new, new - base, _noisy_these(group, of, confidence), _shares_population(shares, confidence))


def _noisy_these(group: Group, of: Mask, confidence: float) -> Ends | None:
    """The measurement of accuracy under noise: where both models have the image right, the draws that kept the class are the hits, and
    can be paired; the other images cannot. The two parts are independent: their distances add in quadrature, by their shares."""
    right = of & (group.base.predicted == group.base.labels) & (group.new.predicted == group.new.labels)
    paired = right if group.paired and group.cut is None else np.zeros_like(of)
    found: list[tuple[float, float, Ends]] = []
    if paired.any():
        lost, won, draws = (float(counts[paired].sum()) for counts in (group.lost, group.won, group.draws))
        lower, upper = paired_difference(lost, won, draws, confidence)
        found.append((paired.sum() / of.sum(), (won - lost) / draws, Ends(float(lower), float(upper), "paired draws")))
    rest = of & ~paired
    if rest.any():
        sides = []
        for side in (group.base, group.new):
            hits, all_draws = side.hits[rest], side.hit_draws[rest]
            if not (all_draws == all_draws[0]).all():
                return None
            low, high = clopper_pearson(hits.sum(), all_draws.sum(), confidence)
            sides.append((float(hits.sum() / all_draws.sum()), Ends(float(low), float(high), "clopper-pearson:pooled")))
        found.append((rest.sum() / of.sum(), sides[1][0] - sides[0][0], unpaired_difference(*sides, same_noise=group.same_noise)))
    value = sum(share * part for share, part, _ in found)
    below = math.hypot(*(share * (part - ends.lower) for share, part, ends in found))
    above = math.hypot(*(share * (ends.upper - part) for share, part, ends in found))
    return Ends(value - below, value + above, "; ".join(ends.method for _, _, ends in found))


def _shares_population(shares: Sequence[Floats], confidence: float) -> Ends:
    return Ends(*mean_interval(shares[1] - shares[0], -1.0, 1.0, confidence), "paired images")


def _classes(group: Group, same: bool, names: Sequence[str] | None, confidence: float) -> tuple[ClassChange, ...]:
    """By label where there are any, else by the base run's prediction; largest drop first. Bonferroni over the classes."""
    indices = group.new.labels if group.by_label else group.base.predicted
    present = [int(index) for index in np.unique(indices) if index >= 0]
    each = 1 - (1 - confidence) / len(present)
    found = []
    for index in present:
        of = indices == index
        name = names[index] if names is not None and index < len(names) else None
        found.append(ClassChange(index, name, int(of.sum()), _mean(group, of, same, each)))
    return tuple(sorted(found, key=lambda one: group.sign * one.difference.value))


def _changed(group: Group, below: float, lower: Floats, upper: Floats, worse: Mask) -> tuple[SampleChange, ...]:
    """Samples that are worse beyond their interval, newly flagged or fixed; worst first."""
    sign = group.sign
    beyond = [sign * side.values < sign * below for side in (group.base, group.new)]
    # NaN compares as false: without an interval nothing is sure
    surely = [sign * (side.uppers if sign > 0 else side.lowers) < sign * below for side in (group.base, group.new)]
    surely_not = [sign * (side.lowers if sign > 0 else side.uppers) >= sign * below for side in (group.base, group.new)]
    newly, fixed = beyond[1] & ~beyond[0], beyond[0] & ~beyond[1]
    certain = (newly & surely[1] & surely_not[0]) | (fixed & surely[0] & surely_not[1])
    places = np.flatnonzero(worse | newly | fixed)
    places = places[np.argsort(sign * group.changes[places], kind="stable")]
    sure: Sureness = "likely" if group.base.sampling_only or group.new.sampling_only else "surely"
    found = []
    for i in places.tolist():
        bounded = not math.isnan(lower[i])
        certainty: Sureness = "no interval" if not bounded else sure if certain[i] or not (newly[i] or fixed[i]) else "maybe"
        label = int(group.new.labels[i])
        found.append(
            SampleChange(
                id=group.ids[i],
                label=None if label < 0 else label,
                base_predicted=int(group.base.predicted[i]),
                predicted=int(group.new.predicted[i]),
                base=float(group.base.values[i]),
                new=float(group.new.values[i]),
                difference=float(group.changes[i]),
                lower=float(lower[i]) if bounded else None,
                upper=float(upper[i]) if bounded else None,
                flagged="newly flagged" if newly[i] else "fixed" if fixed[i] else "",
                sure=certainty,
            )
        )
    return tuple(found)
