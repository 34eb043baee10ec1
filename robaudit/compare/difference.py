"""Differences between two runs: of means, of classes, of samples, and counts of changed samples.

The measurement error of a difference comes from the draws that both runs share, if there are any
(:func:`paired_difference`), else from the interval of each run (:func:`unpaired_difference`).
Intervals of the means of a single run are in :mod:`robaudit.numerics.image_intervals`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from robaudit.compare.counts import count_bounds, sample_ends
from robaudit.compare.matching import Matching, Pair, match, no_common_sample, other_images, pairs
from robaudit.compare.paired import Group, Pairs, mean_of_parts
from robaudit.compare.result import (
    ClassChange,
    Comparison,
    Difference,
    GroupComparison,
    Pairing,
    SampleChange,
)
from robaudit.errors import RunError
from robaudit.estimates import Estimate
from robaudit.gates.measure import Method
from robaudit.levels import LevelChoice
from robaudit.numerics.image_intervals import (
    Floats,
    Mask,
    MeanMethod,
    MeasuredImages,
    measured_mean,
    opened,
    population_mean,
    simultaneous,
)
from robaudit.numerics.intervals import paired_difference, share_variance
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run, chosen
from robaudit.runs.table import Columns, pooled_votes
from robaudit.settings import THRESHOLD
from robaudit.stats.flags import Certainty, check_threshold, usual_threshold
from robaudit.text import known_name

_NO_CHANGE = Estimate.measured(0.0, (0.0, 0.0), Method.SAME_MODEL)
_NO_CHANGE_OF_OTHERS = Estimate.population(0.0, (0.0, 0.0), Method.SAME_MODEL)
_SHOWN = 3  # ids in a warning


def compare(
    base: Run,
    new: Run,
    *,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
    below: float | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compare the results of two runs sample by sample.

    Where both have the same noise, the draws are compared one by one.

    Args:
        base, new: finished runs. To be paired by draws, they are read with their bits
            (``read_run(path, kept=True)``).
        estimators, levels: only these. Default: all that both have.
        below: the threshold of flagged samples. Default: the quantity's usual threshold.
        confidence: of the intervals; single samples have 95 % intervals.

    Raises:
        RunError: they differ in the noise, have no sample or no results in common, or an estimator
            has different quantities.
        NothingLeftError: a group has no pair of finite values.
    """
    matching = match(base, new)
    collectors: dict[GroupKey, Pairs] = {}
    correct: list[tuple[bool, bool]] = []
    samples = 0
    for sample_pairs in pairs(base, new, matching):
        samples += 1
        # The clean prediction is the same in all rows of a sample.
        if sample_pairs:
            before, now = (row.correct for row in sample_pairs[0])
            if before is not None and now is not None:
                correct.append((before, now))
        for pair in sample_pairs:
            key = GroupKey.from_row(pair[1])
            if key not in collectors:
                collectors[key] = _collector(base, new, pair, matching)
            collectors[key].add(pair)
    where = f"{base.path} and {new.path}"
    # Samples with another image in each run share only their ids, so the error names these.
    if not samples:
        if matching.other_images:
            raise other_images(base, new, matching.other_images[0])
        raise no_common_sample(base, new)
    if not collectors:
        raise RunError(
            where,
            "have no estimator at a noise level in common",
            "compare runs with the same estimators and levels",
        )
    groups = {}
    for key, collector in collectors.items():
        lost = [row for row in matching.lost if GroupKey.from_row(row) == key]
        groups[key] = collector.group(lost, where)
    _warn(matching)
    skipped_labelled = {row.sample_id for row in matching.lost if row.correct is not None}
    names = new.class_names or base.class_names
    shown = chosen(groups, estimators, levels, str(new.path))
    return Comparison(
        samples=samples,
        matching=matching,
        clean_accuracy=_clean(correct, matching, confidence),
        clean_unknown=len(skipped_labelled),
        groups=tuple(
            compare_group(groups[key], matching, names, below, confidence) for key in shown
        ),
    )


def _collector(base: Run, new: Run, pair: Pair, matching: Matching) -> Pairs:
    """An empty collection of the pairs of a pair's estimator and noise level."""
    old_quantity = base.quantities[pair[0].quantity]
    quantity = new.quantities[pair[1].quantity]
    # An estimator of a plugin may have changed its meaning between the runs.
    if old_quantity != quantity:
        where = f"{base.path} and {new.path}"
        what = (
            f"{pair[1].estimator!r} is {old_quantity.name} in one and {quantity.name} in the other"
        )
        raise RunError(where, what, "compare estimators of one quantity")
    return Pairs(GroupKey.from_row(pair[1]), quantity, matching)


def _clean(
    correct: Sequence[tuple[bool, bool]], matching: Matching, confidence: float
) -> Difference | None:
    """The change in accuracy without noise; None without labels.

    It is exact for these images. The interval for the population rests, as McNemar's test does, on
    the images that only one model gets right.
    """
    if not correct:
        return None
    table = np.array(correct)  # (samples, 2)
    before, now = table.mean(0)
    value = float(now) - float(before)
    base_right, new_right = table.T
    lost = int((base_right & ~new_right).sum())
    won = int((new_right & ~base_right).sum())
    if matching.same_model and not lost + won:
        population = _NO_CHANGE_OF_OTHERS
    else:
        lower, upper = paired_difference(lost, won, len(correct), confidence)
        population = Estimate.population(value, (float(lower), float(upper)), "paired images")
    return Difference(
        float(before),
        float(now),
        Estimate.measured(value, (value, value), Method.COUNTED),
        population,
    )


def _warn(matching: Matching) -> None:
    """Add warnings about samples that are left out, or whose label changed."""
    skipped = set(matching.skipped)
    only_base = [sample_id for sample_id in matching.only_base if sample_id not in skipped]
    for ids, reason in (
        (matching.skipped, "skipped by the new run"),
        (only_base, "only in the base run"),
        (matching.only_new, "only in the new run"),
        (matching.other_images, "another image in each run, and left out"),
    ):
        if ids:
            ellipsis = ", ..." if len(ids) > _SHOWN else ""
            count = f"{len(ids)} sample{' is' if len(ids) == 1 else 's are'}"
            matching.warnings.append(f"{count} {reason}: {', '.join(ids[:_SHOWN])}{ellipsis}")
    if matching.other_labels:
        matching.warnings.append(
            f"{matching.other_labels} samples have another label in each run; the labels of the "
            "new run name the classes"
        )


def compare_group(
    group: Group,
    matching: Matching,
    names: Sequence[str] | None,
    below: float | None,
    confidence: float,
) -> GroupComparison:
    """Compare the pairs of an estimator and noise level.

    Args:
        group: at least one pair.
        matching: how the runs match. If the model is the same and no draw differs, the difference
            is exactly 0.
        names: of the classes.
        below: the threshold of flagged samples. Default: the usual threshold.
        confidence: of the intervals.
    """
    if below is None:
        below = usual_threshold(group.quantity)
    else:
        check_threshold(below, group.quantity, THRESHOLD.words, str(group.key))
    # Without a discordant draw alone, the interval is about +- log(2 / alpha) / n: equal outcomes
    # of two models prove nothing. Only the same model has no difference.
    no_change = not group.changes.any() and not group.shared[:, 1:].any()
    same = matching.same_model and no_change
    everything = np.ones(len(group), dtype=np.bool_)
    shares_noise = group.paired and not group.other_noise
    how: Pairing = "common random numbers" if shares_noise else "unpaired"
    if same:
        how = "the same model"
    equal_draws = group.paired and bool((group.draws == group.draws[0]).all())
    lower, upper = sample_ends(group)
    sign = group.sign
    unknown = group.without
    unknown_classes = [label if group.by_label else predicted for label, predicted in unknown]
    fell = upper < 0
    rose = lower > 0
    worse, better = (fell, rose) if sign > 0 else (rose, fell)
    return GroupComparison(
        key=group.key,
        quantity=group.quantity,
        images=len(group),
        not_finite=len(unknown) - group.skipped,
        skipped=group.skipped,
        unknown=Counter(unknown_classes),
        why="" if how != "unpaired" else group.other_noise or group.why,
        cut=group.cut if equal_draws else None,
        counts=count_bounds(group, below, confidence, same_model=matching.same_model),
        draws=int(group.draws[0]) if equal_draws else None,
        how=how,
        mean=_mean(group, everything, same, confidence),
        noisy_accuracy=_noisy_accuracy(group, same, confidence),
        variance_saved=_saved(group),
        classes=_classes(group, same, names, confidence),
        threshold=below,
        worse=int(worse.sum()),
        better=int(better.sum()),
        declined=int((sign * group.changes < 0).sum()),
        compared=int((~np.isnan(lower)).sum()),
        approximate=group.approximate,
        voted=group.voted,
        changed=_changed(group, below, lower, upper, worse),
        confidence=confidence,
    )


def _mean(group: Group, mask: Mask, same: bool, confidence: float) -> Difference:
    """The difference of the means of selected samples; ``same``: it is exactly 0."""
    base = float(group.base.values[mask].mean())
    new = float(group.new.values[mask].mean())
    if same:
        return Difference(base, new, _NO_CHANGE, _NO_CHANGE_OF_OTHERS)
    # Both intervals are of one value, so a reader sees one difference with two intervals.
    population = _population(group, mask, confidence)
    measured = _same_value(_measured(group, mask, confidence), population)
    return Difference(base, new, measured, population)


def _measured(group: Group, mask: Mask, confidence: float) -> Estimate | None:
    """The mean change of these images with its interval; None where a row has no interval.

    The interval is from pooled discordant draws, or from the intervals of the two means.
    """
    if group.paired:
        return group.paired_change(mask, confidence)
    base = _mean_of(group.base.take(mask), group, confidence)
    new = _mean_of(group.new.take(mask), group, confidence)
    if not (base.has_interval and new.has_interval):
        return None
    return unpaired_difference(base, new, same_generator=group.same_generator)


def _mean_of(side: Columns, group: Group, confidence: float) -> Estimate:
    """The mean of one run's values; without an interval where an image has none."""
    images = side.images(group.quantity.low, group.quantity.high)
    value = float(side.values.mean())
    # Pooled votes need no intervals of the single images.
    if images.draws is None and side.bounded < len(side):
        return Estimate(value)
    bounds = opened(images, measured_mean(images, confidence))
    return Estimate.measured(value, bounds, images.method)


def _population(group: Group, mask: Mask, confidence: float) -> Estimate:
    """The mean change with its interval for the population
    (:func:`robaudit.numerics.image_intervals.population_mean`).

    Where the range of the differences is unbounded, it is Student's t, which trusts that no rare
    image carries the difference: one in a million may have changed by any amount. No gate relies on
    that.
    """
    base = group.base
    new = group.new
    span = group.quantity.high - group.quantity.low
    changes = group.changes[mask]
    lowers = new.ends[0][mask] - base.ends[1][mask]
    uppers = new.ends[1][mask] - base.ends[0][mask]
    # The spread of the changes includes their errors, so images without an interval count as exact.
    lowers = np.where(np.isnan(lowers), changes, lowers)
    uppers = np.where(np.isnan(uppers), changes, uppers)
    adaptive = base.adaptive or new.adaptive
    shared = (base.is_chained | new.is_chained)[mask]
    # A difference of two values of a range of this span lies between -span and span.
    images = MeasuredImages(changes, lowers, uppers, -span, span, adaptive=adaptive, shared=shared)
    if np.isinf(lowers).any() or np.isinf(uppers).any():
        remark = ": bounds"
    elif adaptive or shared.any():
        remark = ": mean of intervals"
    else:
        remark = "" if math.isfinite(span) else ": Student's t"
    bounds = opened(images, population_mean(images, confidence, light_tails=True))
    return Estimate.population(float(changes.mean()), bounds, f"paired images{remark}")


def _saved(group: Group) -> float | None:
    """The share of the measurement variance that the same noise saves; None without it.

    1 - Var[mean difference] / (Var[base mean] + Var[new mean]). The factor 1/n^2 of both means
    cancels.
    """
    if not (group.paired and not group.other_noise):
        return None
    draws, lost, won, half_lost, half_won = group.shared.T
    # An antithetic pair is one draw of the mean of its two copies.
    draws_a_unit = 2.0 if group.antithetic else 1.0
    # The mean square of a unit's change: 1 where all of it changed, 1/4 where half of it did.
    rates = draws_a_unit * (lost + won + (half_lost + half_won) / 4.0) / draws
    apart = 0.0
    for side in (group.base, group.new):
        split = side.split if group.antithetic else None
        apart = apart + float(share_variance(side.values, draws, split).sum())
    if not apart > 0:
        return None
    # Var[d] = (E[d^2] - E[d]^2) / number of units, for each image.
    variances = (rates - group.changes**2) * draws_a_unit / draws
    together = float(variances.sum())
    return 1 - together / apart


def _noisy_accuracy(group: Group, same: bool, confidence: float) -> Difference | None:
    """The change of accuracy under noise; None without labels or without votes."""
    labelled = (group.base.label >= 0) & (group.new.label >= 0)
    sides = (group.base, group.new)
    if not labelled.any():
        return None
    with_votes = [(side.share_draws[labelled] > 0).all() for side in sides]
    if not all(with_votes):
        return None
    shares = [side.hits[labelled] / side.label_draws[labelled] for side in sides]
    base, new = (float(share.mean()) for share in shares)
    # The same model and no discordant draw: hits are equal, too.
    if same:
        return Difference(base, new, _NO_CHANGE, _NO_CHANGE_OF_OTHERS)
    changes = shares[1] - shares[0]
    images = MeasuredImages(changes, changes, changes, -1.0, 1.0)
    bounds = population_mean(images, confidence)
    population = Estimate.population(new - base, bounds, "paired images")
    measured = _same_value(_noisy_measured(group, labelled, confidence), population)
    return Difference(base, new, measured, population)


def _same_value(measured: Estimate | None, population: Estimate) -> Estimate | None:
    """The measured change with exactly the population's value.

    Measured changes are weighted sums of parts, which differ from it by rounding.
    """
    return None if measured is None else replace(measured, value=population.value)


def _noisy_measured(group: Group, labelled: Mask, confidence: float) -> Estimate | None:
    """The change of accuracy under noise with its measurement interval.

    Where both models classify the image correctly, the draws that kept the class are the hits and
    can be paired; the other images cannot. The two parts are independent: their distances, weighted
    by their shares of the images, add in quadrature.
    """
    base_right = group.base.predicted == group.base.label
    new_right = group.new.predicted == group.new.label
    paired = np.zeros_like(labelled)
    # Votes for the labels are counted over all draws, so they cannot be paired on the first ones.
    if group.paired and group.cut is None:
        paired = labelled & base_right & new_right
    parts: list[tuple[float, Estimate]] = []
    if paired.any():
        change = replace(group.paired_change(paired, confidence), method=group.method)
        parts.append((paired.sum() / labelled.sum(), change))
    rest = labelled & ~paired
    if rest.any():
        base = _label_votes(group.base, rest, confidence)
        new = _label_votes(group.new, rest, confidence)
        if base is None or new is None:
            return None
        change = unpaired_difference(base, new, same_generator=group.same_generator)
        parts.append((rest.sum() / labelled.sum(), change))
    return mean_of_parts(parts, "; ".join(change.method for _, change in parts))


def _label_votes(side: Columns, mask: Mask, confidence: float) -> Estimate | None:
    """The mean share of votes for the labels of selected images.

    None where the images have different numbers of antithetic pairs, which cannot be pooled.
    """
    draws = side.label_draws[mask]
    pooled, split = pooled_votes(draws, side.label_split[mask])
    if pooled is None:
        return None
    shares = side.hits[mask] / draws
    images = MeasuredImages(shares, shares, shares, 0.0, 1.0, draws=pooled, split=split)
    bounds = measured_mean(images, confidence)
    return Estimate.measured(float(shares.mean()), bounds, images.method)


def _classes(
    group: Group, same: bool, names: Sequence[str] | None, confidence: float
) -> tuple[ClassChange, ...]:
    """The changes by label, or by the base run's prediction without labels; largest drop first."""
    indices = group.new.label if group.by_label else group.base.predicted
    present = [int(index) for index in np.unique(indices) if index >= 0]
    # Bonferroni: the intervals of all classes hold together.
    class_confidence = simultaneous(confidence, len(present))
    changes = []
    for index in present:
        mask = indices == index
        changes.append(
            ClassChange(
                index=index,
                name=known_name(index, names),
                images=int(mask.sum()),
                difference=_mean(group, mask, same, class_confidence),
            )
        )
    changes.sort(key=lambda change: group.sign * change.difference.value)
    return tuple(changes)


def _changed(
    group: Group, below: float, lower: Floats, upper: Floats, worse: Mask
) -> tuple[SampleChange, ...]:
    """The samples that are worse beyond their interval, newly flagged or fixed; worst first."""
    sign = group.sign
    sides = (group.base, group.new)
    edge = sign * below
    beyond = [sign * side.values < edge for side in sides]
    # The better end decides whether all of an interval is beyond the threshold, the worse end
    # whether all of it is within. NaN compares as false: without an interval nothing is certain.
    better_end = int(sign > 0)
    worse_end = int(sign < 0)
    wholly_beyond = [sign * side.ends[better_end] < edge for side in sides]
    wholly_within = [sign * side.ends[worse_end] >= edge for side in sides]
    newly = beyond[1] & ~beyond[0]
    fixed = beyond[0] & ~beyond[1]
    certainly_newly = newly & wholly_beyond[1] & wholly_within[0]
    certainly_fixed = fixed & wholly_beyond[0] & wholly_within[1]
    certain = certainly_newly | certainly_fixed
    places = np.flatnonzero(worse | newly | fixed)
    places = places[np.argsort(sign * group.changes[places], kind="stable")]
    confirmed = Certainty.APPROXIMATE if group.approximate else Certainty.CONFIRMED
    changes = []
    for i in places.tolist():
        bounds = float(lower[i]), float(upper[i])
        bounded = not math.isnan(bounds[0])
        flagged: Literal["newly flagged", "fixed", ""] = ""
        if newly[i]:
            flagged = "newly flagged"
        elif fixed[i]:
            flagged = "fixed"
        # A sample that is not flagged is here because its own interval shows that it is worse.
        certainty = confirmed if certain[i] or not flagged else Certainty.LIKELY
        label = int(group.new.label[i])
        difference = Estimate.measured(
            float(group.changes[i]), bounds if bounded else None, "95 % of the sample"
        )
        changes.append(
            SampleChange(
                id=group.ids[i],
                label=None if label < 0 else label,
                base_predicted=int(group.base.predicted[i]),
                predicted=int(group.new.predicted[i]),
                base=float(group.base.values[i]),
                new=float(group.new.values[i]),
                difference=difference,
                flagged=flagged,
                certainty=certainty if bounded else Certainty.NO_INTERVAL,
            )
        )
    return tuple(changes)


def unpaired_difference(base: Estimate, new: Estimate, *, same_generator: bool) -> Estimate:
    """New - base with its interval, from the interval of each run.

    The distances of independent measurements add in quadrature (MOVER). With noise from the same
    random numbers the errors may be correlated with either sign. The error of the difference is
    then at most the sum of both, so distances add. They also add where images stopped adaptively.

    Args:
        base, new: values with their intervals.
        same_generator: whether the noise of both is from the same random numbers, so that their
            errors may be correlated.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    value = new.value - base.value
    added = (
        value - (new.below + base.above),
        value + (new.above + base.below),
    )
    if MeanMethod.MEAN_OF_ENDS in (base.method, new.method):
        # Stopping biases the values: errors of one direction do not average out.
        return Estimate.measured(value, added, f"unpaired: {MeanMethod.MEAN_OF_ENDS}")
    if same_generator:
        # In quadrature, the interval of two models, each of which flips where the other does not,
        # covered in 84 % of the cases.
        return Estimate.measured(value, added, f"unpaired, distances added: {new.method}")
    # Zou and Donner 2008, the MOVER interval of a difference.
    joint = (
        value - float(np.hypot(new.below, base.above)),
        value + float(np.hypot(new.above, base.below)),
    )
    return Estimate.measured(value, joint, f"unpaired: {new.method}")
