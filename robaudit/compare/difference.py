"""Differences between two runs: of means, of classes, sample by sample, and counts of samples that
changed.

The measurement error of a difference comes from draws that both runs share, where there are any
(:func:`paired_difference`), else from the interval of each run (:func:`unpaired_difference`).
Intervals of the means of a single run are in :mod:`robaudit.numerics.image_intervals`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robaudit.compare.counts import counted, sample_ends
from robaudit.compare.matching import Matching, Pair, match, no_common_sample, other_images, pairs
from robaudit.compare.paired import Group, Pairs, joined
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
from robaudit.runs.table import Columns, alike, antithetic
from robaudit.settings import THRESHOLD
from robaudit.stats.flags import Certainty, check_threshold, usual_threshold
from robaudit.text import known_name

_NO_CHANGE = Estimate.measured(0.0, (0.0, 0.0), Method.SAME_MODEL)
_NO_CHANGE_OF_OTHERS = Estimate.population(0.0, (0.0, 0.0), Method.SAME_MODEL)
_SHOWN = 3


def compare(
    base: Run,
    new: Run,
    *,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
    below: float | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compare the results of two runs sample by sample and, where both have the same noise, draw by
    draw.

    Args:
        base, new: finished runs; to be paired by draws, read with their bits (``read_run(path,
            kept=True)``).
        estimators, levels: only these; all that both have by default.
        below: the threshold of flagged samples; the quantity's usual threshold by default.
        confidence: of the intervals; single samples have 95 % intervals.

    Raises:
        RunError: they differ in the noise, have no sample or no results in common, or an estimator
            has different quantities.
        NothingLeftError: a group has no pair of finite values.
    """
    matching = match(base, new)
    builders: dict[GroupKey, Pairs] = {}
    correct: list[tuple[bool, bool]] = []
    samples = 0
    for of_sample in pairs(base, new, matching):
        samples += 1
        if (
            of_sample
            and of_sample[0][0].correct is not None
            and of_sample[0][1].correct is not None
        ):
            correct.append((of_sample[0][0].correct, of_sample[0][1].correct))
        for pair in of_sample:
            key = GroupKey.of(pair[1])
            if key not in builders:
                builders[key] = _pairs(base, new, pair, matching)
            builders[key].add(pair)
    where = f"{base.path} and {new.path}"
    if not samples:
        if matching.other_images:
            raise other_images(base, new, matching.other_images[0])
        raise no_common_sample(base, new)
    if not builders:
        raise RunError(
            where,
            "have no estimator at a noise level in common",
            "compare runs with the same estimators and levels",
        )
    groups = {
        key: builder.group([row for row in matching.lost if GroupKey.of(row) == key], where)
        for key, builder in builders.items()
    }
    _warn(matching)
    names = new.class_names or base.class_names
    shown = chosen(groups, estimators, levels, str(new.path))
    return Comparison(
        samples=samples,
        matching=matching,
        clean_accuracy=_clean(correct, matching, confidence),
        clean_unknown=len({row.sample_id for row in matching.lost if row.correct is not None}),
        groups=tuple(compared(groups[key], matching, names, below, confidence) for key in shown),
    )


def _pairs(base: Run, new: Run, pair: Pair, matching: Matching) -> Pairs:
    before = base.quantities[pair[0].quantity]
    now = new.quantities[pair[1].quantity]
    if before != now:
        where = f"{base.path} and {new.path}"
        what = f"{pair[1].estimator!r} is {before.name} in one and {now.name} in the other"
        raise RunError(where, what, "compare estimators of one quantity")
    return Pairs(GroupKey.of(pair[1]), now, matching)


def _clean(
    correct: Sequence[tuple[bool, bool]], matching: Matching, confidence: float
) -> Difference | None:
    """The change in accuracy: exact for these images; for the population by McNemar's test, from
    images that only one model gets right."""
    if not correct:
        return None
    table = np.array(correct)
    before, now = table.mean(0)
    value = float(now) - float(before)
    lost = int((table[:, 0] & ~table[:, 1]).sum())
    won = int((table[:, 1] & ~table[:, 0]).sum())
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
    skipped = set(matching.skipped)
    for ids, which in (
        (matching.skipped, "skipped by the new run"),
        (
            [sample_id for sample_id in matching.only_base if sample_id not in skipped],
            "only in the base run",
        ),
        (matching.only_new, "only in the new run"),
        (matching.other_images, "another image in each run, and left out"),
    ):
        if ids:
            more = ", ..." if len(ids) > _SHOWN else ""
            count = f"{len(ids)} sample{' is' if len(ids) == 1 else 's are'}"
            matching.warnings.append(f"{count} {which}: {', '.join(ids[:_SHOWN])}{more}")
    if matching.other_labels:
        matching.warnings.append(
            f"{matching.other_labels} samples have another label in each run; the labels of the "
            "new run name the classes"
        )


def compared(
    group: Group,
    matching: Matching,
    names: Sequence[str] | None,
    below: float | None,
    confidence: float,
) -> GroupComparison:
    """Compare the pairs of one group.

    Args:
        group: at least one pair.
        matching: how the runs match; if the model is the same and no draw differs, the difference
            is exactly 0.
        names: of the classes.
        below: the threshold of flagged samples; None: the usual threshold.
        confidence: of the intervals.
    """
    if below is None:
        below = usual_threshold(group.quantity)
    else:
        check_threshold(below, group.quantity, THRESHOLD.words, str(group.key))
    no_change = not group.changes.any() and not group.shared[:, 1:].any()
    same = matching.same_model and no_change
    everything = np.ones(len(group), dtype=np.bool_)
    how: Pairing = (
        "the same model" if same else "common random numbers" if group.paired else "unpaired"
    )
    equal = bool(group.paired and (group.draws == group.draws[0]).all())
    lower, upper = sample_ends(group)
    sign = group.sign
    by_label = group.by_label
    unknown = group.without
    worse, better = (upper < 0, lower > 0) if sign > 0 else (lower > 0, upper < 0)
    return GroupComparison(
        key=group.key,
        quantity=group.quantity,
        images=len(group),
        not_finite=len(unknown) - group.skipped,
        skipped=group.skipped,
        unknown=Counter(label if by_label else predicted for label, predicted in unknown),
        why="" if how != "unpaired" else matching.why_not or group.why,
        cut=group.cut if equal else None,
        counts=counted(group, below, confidence, same_model=matching.same_model),
        draws=int(group.draws[0]) if equal else None,
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
    base = float(group.base.values[mask].mean())
    new = float(group.new.values[mask].mean())
    if same:
        return Difference(base, new, _NO_CHANGE, _NO_CHANGE_OF_OTHERS)
    population = _population(group, mask, confidence)
    return Difference(
        base, new, _same_value(_measured(group, mask, confidence), population), population
    )


def _measured(group: Group, mask: Mask, confidence: float) -> Estimate | None:
    """The mean change of these images with its interval: from pooled discordant draws, or from the
    two means' intervals."""
    if group.paired:
        return group.paired_change(mask, confidence)
    base, new = (_mean_of(side.take(mask), group, confidence) for side in (group.base, group.new))
    return (
        unpaired_difference(base, new, same_noise=group.same_noise)
        if base.has_interval and new.has_interval
        else None
    )


def _mean_of(side: Columns, group: Group, confidence: float) -> Estimate:
    """The mean of one run's values; without an interval where an image has none."""
    images = side.images(group.quantity.low, group.quantity.high)
    value = float(side.values.mean())
    if images.draws is None and side.bounded < len(side):
        return Estimate(value)
    return Estimate.measured(
        value, opened(images, measured_mean(images, confidence)), images.method
    )


def _population(group: Group, mask: Mask, confidence: float) -> Estimate:
    """The mean change with its interval for the population
    (:func:`robaudit.numerics.image_intervals.population_mean`).

    Where the range of the differences is unbounded it is Student's t, which trusts that no rare
    image carries the difference: one in a million may have changed by any amount. No gate relies on
    that.
    """
    base = group.base
    new = group.new
    span = group.quantity.high - group.quantity.low
    changes = group.changes[mask]
    lowers = new.ends[0][mask] - base.ends[1][mask]
    uppers = new.ends[1][mask] - base.ends[0][mask]
    lowers = np.where(np.isnan(lowers), changes, lowers)
    uppers = np.where(np.isnan(uppers), changes, uppers)
    adaptive = base.adaptive or new.adaptive
    images = MeasuredImages(changes, lowers, uppers, -span, span, adaptive=adaptive)
    one_sided = bool(np.isinf(lowers).any() or np.isinf(uppers).any())
    remark = (
        ": bounds"
        if one_sided
        else ": mean of intervals"
        if adaptive
        else ""
        if math.isfinite(span)
        else ": Student's t"
    )
    bounds = opened(images, population_mean(images, confidence, light_tails=True))
    return Estimate.population(float(changes.mean()), bounds, f"paired images{remark}")


def _saved(group: Group) -> float | None:
    """1 - Var[mean difference] / (Var[base mean] + Var[new mean]), for the measurement error."""
    if not group.paired:
        return None
    draws, lost, won, half_lost, half_won = group.shared.T
    unit = 2.0 if group.antithetic else 1.0  # draws
    rates = unit * (lost + won + (half_lost + half_won) / 4.0) / draws
    sides = (group.base, group.new)
    apart = sum(
        float(share_variance(side.values, draws, side.split if group.antithetic else None).sum())
        for side in sides
    )
    return (
        1 - float(((rates - group.changes**2) * unit / draws).sum()) / apart if apart > 0 else None
    )


def _noisy_accuracy(group: Group, same: bool, confidence: float) -> Difference | None:
    labelled = (group.base.label >= 0) & (group.new.label >= 0)
    sides = (group.base, group.new)
    if not labelled.any() or not all((side.share_draws[labelled] > 0).all() for side in sides):
        return None
    shares = [side.hits[labelled] / side.label_draws[labelled] for side in sides]
    base, new = (float(share.mean()) for share in shares)
    if same:
        return Difference(base, new, _NO_CHANGE, _NO_CHANGE_OF_OTHERS)
    changes = shares[1] - shares[0]
    bounds = population_mean(MeasuredImages(changes, changes, changes, -1.0, 1.0), confidence)
    population = Estimate.population(new - base, bounds, "paired images")
    return Difference(
        base, new, _same_value(_noisy_measured(group, labelled, confidence), population), population
    )


def _same_value(measured: Estimate | None, population: Estimate) -> Estimate | None:
    """The measured change with the value of the other, from which a weighted sum of its parts
    differs by rounding."""
    return None if measured is None else replace(measured, value=population.value)


def _noisy_measured(group: Group, labelled: Mask, confidence: float) -> Estimate | None:
    """The change of accuracy under noise with its measurement interval.

    Where both models classify the image correctly, the draws that kept the class are the hits and
    can be paired; the other images cannot. The two parts are independent: their distances, weighted
    by their shares of the images, add in quadrature.
    """
    right = (
        labelled
        & (group.base.predicted == group.base.label)
        & (group.new.predicted == group.new.label)
    )
    paired = right if group.paired and group.cut is None else np.zeros_like(labelled)
    parts: list[tuple[float, Estimate]] = []
    if paired.any():
        parts.append(
            (
                paired.sum() / labelled.sum(),
                replace(group.paired_change(paired, confidence), method="paired draws"),
            )
        )
    rest = labelled & ~paired
    if rest.any():
        sides = []
        for side in (group.base, group.new):
            draws = side.label_draws[rest]
            if (number := alike(draws)) is None:
                return None
            shares = side.hits[rest] / draws
            images = MeasuredImages(
                shares,
                shares,
                shares,
                0.0,
                1.0,
                draws=number,
                split=antithetic(side.label_split[rest]),
            )
            sides.append(
                Estimate.measured(
                    float(shares.mean()), measured_mean(images, confidence), images.method
                )
            )
        parts.append(
            (rest.sum() / labelled.sum(), unpaired_difference(*sides, same_noise=group.same_noise))
        )
    return joined(parts, "; ".join(change.method for _, change in parts))


def _classes(
    group: Group, same: bool, names: Sequence[str] | None, confidence: float
) -> tuple[ClassChange, ...]:
    """The changes by label, or by the base run's prediction without labels; largest drop first.
    Bonferroni over the classes."""
    indices = group.new.label if group.by_label else group.base.predicted
    present = [int(index) for index in np.unique(indices) if index >= 0]
    each = simultaneous(confidence, len(present))
    changes = []
    for index in present:
        mask = indices == index
        changes.append(
            ClassChange(
                index, known_name(index, names), int(mask.sum()), _mean(group, mask, same, each)
            )
        )
    return tuple(sorted(changes, key=lambda change: group.sign * change.difference.value))


def _changed(
    group: Group, below: float, lower: Floats, upper: Floats, worse: Mask
) -> tuple[SampleChange, ...]:
    """The samples that are worse beyond their interval, newly flagged or fixed; worst first."""
    sign = group.sign
    beyond = [sign * side.values < sign * below for side in (group.base, group.new)]
    # NaN compares as false: without an interval nothing is certain
    wholly_beyond = [
        sign * side.ends[int(sign > 0)] < sign * below for side in (group.base, group.new)
    ]
    wholly_within = [
        sign * side.ends[int(sign < 0)] >= sign * below for side in (group.base, group.new)
    ]
    newly = beyond[1] & ~beyond[0]
    fixed = beyond[0] & ~beyond[1]
    certain = (newly & wholly_beyond[1] & wholly_within[0]) | (
        fixed & wholly_beyond[0] & wholly_within[1]
    )
    places = np.flatnonzero(worse | newly | fixed)
    places = places[np.argsort(sign * group.changes[places], kind="stable")]
    confirmed = Certainty.APPROXIMATE if group.approximate else Certainty.CONFIRMED
    changes = []
    for i in places.tolist():
        bounds = float(lower[i]), float(upper[i])
        bounded = not math.isnan(bounds[0])
        certainty = confirmed if certain[i] or not (newly[i] or fixed[i]) else Certainty.LIKELY
        label = int(group.new.label[i])
        changes.append(
            SampleChange(
                id=group.ids[i],
                label=None if label < 0 else label,
                base_predicted=int(group.base.predicted[i]),
                predicted=int(group.new.predicted[i]),
                base=float(group.base.values[i]),
                new=float(group.new.values[i]),
                difference=Estimate.measured(
                    float(group.changes[i]), bounds if bounded else None, "95 % of the sample"
                ),
                flagged="newly flagged" if newly[i] else "fixed" if fixed[i] else "",
                certainty=certainty if bounded else Certainty.NO_INTERVAL,
            )
        )
    return tuple(changes)


def unpaired_difference(base: Estimate, new: Estimate, *, same_noise: bool) -> Estimate:
    """New - base with its interval, from the interval of each run.

    Independent measurements: distances add in quadrature (MOVER). With the same noise the errors
    may be correlated with either sign, so the error of the difference is at most the sum of both:
    distances add, as they do for adaptive stopping.

    Args:
        base, new: values with their intervals.
        same_noise: whether both have the same noise, so that their errors may be correlated.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    value = new.value - base.value
    added = value - (new.below + base.above), value + (new.above + base.below)
    if MeanMethod.MEAN_OF_ENDS in (base.method, new.method):
        return Estimate.measured(value, added, f"unpaired: {MeanMethod.MEAN_OF_ENDS}")
    if same_noise:
        return Estimate.measured(value, added, f"unpaired, distances added: {new.method}")
    joint = (
        value - float(np.hypot(new.below, base.above)),
        value + float(np.hypot(new.above, base.below)),
    )
    return Estimate.measured(value, joint, f"unpaired: {new.method}")
