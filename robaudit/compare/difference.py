"""Differences between two runs: of means, of classes, sample by sample, and counts of samples that changed.

The measurement error of a difference is computed from draws that both runs share, where there are any (:func:`paired_difference`),
else from the interval of each run (:func:`unpaired_difference`). Intervals of one run's means are those of
:mod:`robaudit.stats.intervals`.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robaudit.compare.matching import Common, Matching, Pair, common, match, other_images, pairs, why_unpaired
from robaudit.compare.result import (
    ClassChange,
    Comparison,
    Counts,
    Difference,
    GroupComparison,
    Limits,
    Pairing,
    SampleChange,
)
from robaudit.errors import NothingLeftError, RunError
from robaudit.gates.measure import Method
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.numerics.intervals import antithetic_difference, clopper_pearson, paired_difference, share_variance
from robaudit.quantities import Quantity
from robaudit.rows import Row
from robaudit.stats.flags import Certainty, check_threshold, usual_threshold
from robaudit.stats.frame import NO_CLASS, Columns, Draft, Ids, alike, antithetic
from robaudit.stats.groups import GroupKey
from robaudit.stats.intervals import (
    TAIL,
    Floats,
    MeanMethod,
    MeasuredImages,
    least_count,
    measured_mean,
    opened,
    population_mean,
    restated,
    simultaneous,
)
from robaudit.store.run import Run
from robaudit.text import known_name

Mask = NDArray[np.bool_]

_SAME = Limits(0.0, 0.0, Method.SAME_MODEL)
_BY_COUNTS = "counts of the samples' intervals"
_SHOWN = 3


class Side:
    """One run's results, in the order of the pairs.

    Args:
        columns: of the pairs with a finite value in both runs, restricted to the draws that are compared.

    Attributes:
        values, lowers, uppers: (n,); ends are infinite where an interval is open on that side, NaN where there is none.
        draws: that the value is a share of (n,); 0 where it is not such a share.
        hits, hit_draws: votes for the label, of all draws (n,); 0 draws where there is no label or no such draws.
        split, hit_split: antithetic pairs that disagree (n,); NaN where draws are independent.
        predicted, labels: classes (n,); a label is -1 where unknown.
        adaptive: whether the sampling of some rows stopped adaptively; ``approximate``: some intervals cover the draws only.
    """

    def __init__(self, columns: Columns) -> None:
        self.values, self.draws = columns.values, columns.share_draws
        self.lowers, self.uppers = columns.ends
        self.hits, self.hit_draws = columns.hits, np.where(self.draws > 0, columns.label_draws, 0)
        self.split, self.hit_split = columns.split, columns.label_split
        self.predicted, self.labels = columns.predicted, columns.label
        self.adaptive, self.approximate = columns.adaptive, columns.approximate > 0

    def ends(self, tail: float | None) -> tuple[Floats, Floats]:
        """Each image's interval that misses on a given side with a chance of at most ``tail``; None: its 95 % interval. NaN where there is
        none, as for stricter ones of images that stopped adaptively."""
        if tail is None:
            return self.lowers, self.uppers
        if self.adaptive:
            unbounded = np.full_like(self.values, np.nan)
            return unbounded, unbounded
        return restated(self.values, self.lowers, self.uppers, self.draws, tail, self.split)

    def mean_limits(self, of: Mask, quantity: Quantity, confidence: float) -> Limits | None:
        """The interval of the mean of these images' values (:func:`robaudit.stats.intervals.measured_mean`); None where an image has
        none."""
        pooled = alike(self.draws[of])
        if pooled is None and np.isnan(self.lowers[of]).any():
            return None
        split = None if pooled is None else antithetic(self.split[of])
        given = self.values[of], self.lowers[of], self.uppers[of]
        images = MeasuredImages(*given, quantity.low, quantity.high, draws=pooled, adaptive=self.adaptive, split=split)
        return Limits(*opened(images, measured_mean(images, confidence)), images.method)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The pairs of rows of one estimator and noise level with a finite value in both runs.

    Attributes:
        key, quantity: what was measured.
        ids: of the samples, in the order of the pairs (n,).
        base, new: both runs, restricted to the draws that both share; values that are approximations are replaced by their votes.
        shared: what both runs share of each sample (n, 5): draws, lost, won, half_lost, half_won, as in
            :class:`robaudit.compare.matching.Common`.
        same_noise: whether both runs gave each sample the same noise.
        why: why draws are not paired, where both have the same noise.
        cut: draws per image of the base run and of the new one, where one has more than are compared.
        voted: whether values are shares of votes where the rows have approximations.
        without: label and base prediction of the samples without a difference: those without a finite value in one of the runs, and those
            of the base run that the new one skipped.
        skipped: how many of these are skipped.
    """

    key: GroupKey
    quantity: Quantity
    ids: Sequence[str]
    base: Side
    new: Side
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
        return bool((self.new.labels >= 0).any())

    @property
    def adds(self) -> bool:
        """Whether distances add: adaptive stopping biases, and errors on the same noise may have opposite signs."""
        return self.base.adaptive or self.new.adaptive or self.same_noise

    def difference(self, shared: Floats, confidence: float) -> tuple[Floats, Floats]:
        """The interval of new minus base from sums, or single rows, of :attr:`shared`."""
        draws, lost, won, half_lost, half_won = np.moveaxis(shared, -1, 0)
        if self.antithetic:
            return antithetic_difference((half_lost, half_won), (lost, won), draws / 2.0, confidence)
        return paired_difference(lost, won, draws, confidence)

    def paired_limits(self, of: Mask, confidence: float) -> Limits:
        """The interval of the mean change of some samples from the draws that both runs share, pooled where there are equally many."""
        parts = []
        for draws in np.unique(self.draws[of]):
            some = of & (self.draws == draws)
            lower, upper = self.difference(self.shared[some].sum(0), confidence)
            limits = Limits(float(lower), float(upper), "paired draws:pooled")
            parts.append((some.sum() / of.sum(), float(self.changes[some].mean()), limits))
        return parts[0][-1] if len(parts) == 1 else _joined(parts, "paired draws:pooled by number")


class _Pairs:
    """The pairs of one estimator and noise level in the making."""

    def __init__(self, key: GroupKey, quantity: Quantity, matching: Matching) -> None:
        known = key.estimator in matching.paired
        self._key, self._quantity, self._same_noise, self._paired = key, quantity, matching.same_noise, matching.same_noise and known
        self._why = "" if known else "it is another estimator in each run"
        self._ids, self._shared = Ids(), array("d")
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
        """All of them; ``lost``: rows of the base run whose samples the new run skipped.

        Raises:
            NothingLeftError: no pair has finite values.
        """
        key, whole = self._key, [draft.columns() for draft in self._drafts]
        voted, whole = any(one.approximated.any() for one in whole), [one.by_votes() for one in whole]
        finite = np.isfinite(whole[0].values) & np.isfinite(whole[1].values)
        if not finite.any():
            raise NothingLeftError(where, f"{key.estimator} at {key.at} has no finite value in both")
        taken, table = [one.take(finite) for one in whole], np.frombuffer(self._shared, dtype=np.float64).reshape(-1, 9)[finite]
        draws, sides = table[:, 0].astype(np.int64), []
        for which, columns in enumerate(taken):
            cut = (draws > 0) & (draws < columns.draws)
            sides.append(Side(columns.of_votes(cut, table[:, 5 + which].astype(np.int64), draws, table[:, 7 + which])))
        longer = np.flatnonzero((draws > 0) & ((taken[0].draws > draws) | (taken[1].draws > draws)))[:1]
        cut_at = (int(taken[0].draws[longer[0]]), int(taken[1].draws[longer[0]])) if len(longer) else None
        skipped = [(NO_CLASS if row.label is None else row.label, row.predicted) for row in lost]
        left_out = zip(whole[1].label[~finite].tolist(), whole[0].predicted[~finite].tolist(), strict=True)
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


def compare(
    base: Run,
    new: Run,
    *,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
    below: float | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compare the results of two runs sample by sample and, where both have the same noise, draw by draw.

    Args:
        base, new: finished runs; to be paired by draws, read with their bits (``read_run(path, kept=True)``).
        estimators, levels: only these; all that both have by default.
        below: the threshold of flagged samples; the usual one of the quantity by default.
        confidence: of the intervals; those of single samples are 95 % intervals.

    Raises:
        RunError: they differ in the noise, have no sample or no results in common, or one estimator gives different quantities.
        NothingLeftError: a group without a pair of finite values.
    """
    matching = match(base, new)
    made: dict[tuple[str, NoiseLevel], _Pairs] = {}
    correct: list[tuple[bool, bool]] = []
    samples = 0
    for of_sample in pairs(base, new, matching):
        samples += 1
        if of_sample and of_sample[0][0].correct is not None and of_sample[0][1].correct is not None:
            correct.append((of_sample[0][0].correct, of_sample[0][1].correct))
        for pair in of_sample:
            key = pair[1].estimator, pair[1].at
            if key not in made:
                made[key] = _pairs(base, new, pair, matching)
            made[key].add(pair)
    where = f"{base.path} and {new.path}"
    if not samples:
        if matching.other_images:
            raise other_images(base, new, matching.other_images[0])
        raise RunError(where, "have no sample in common", "compare runs on the same data, prepared alike")
    if not made:
        raise RunError(where, "have no estimator at a noise level in common", "compare runs with the same estimators and levels")
    groups = {key: one.group([row for row in matching.lost if (row.estimator, row.at) == key], where) for key, one in made.items()}
    chosen = new.chosen(groups, estimators, levels)
    _warn(matching)
    names = new.class_names or base.class_names
    return Comparison(
        matching,
        samples,
        _clean(correct, matching, confidence),
        len({row.sample_id for row in matching.lost if row.correct is not None}),
        tuple(compared(groups[key], matching, names, below, confidence) for key in chosen),
    )


def _pairs(base: Run, new: Run, pair: Pair, matching: Matching) -> _Pairs:
    before, now = base.quantities[pair[0].quantity], new.quantities[pair[1].quantity]
    if before != now:
        where, what = f"{base.path} and {new.path}", f"{pair[1].estimator!r} is {before.name} in one and {now.name} in the other"
        raise RunError(where, what, "compare estimators of one quantity")
    return _Pairs(GroupKey.of(pair[1]), now, matching)


def _clean(correct: Sequence[tuple[bool, bool]], matching: Matching, confidence: float) -> Difference | None:
    """Exact for these images; for the population, from those that only one model classifies correctly (McNemar's test)."""
    if not correct:
        return None
    table = np.array(correct)
    before, now = table.mean(0)
    value = float(now) - float(before)
    lost, won = int((table[:, 0] & ~table[:, 1]).sum()), int((table[:, 1] & ~table[:, 0]).sum())
    if matching.same_model and not lost + won:
        population = _SAME
    else:
        lower, upper = paired_difference(lost, won, len(correct), confidence)
        population = Limits(float(lower), float(upper), "paired images")
    return Difference(float(before), float(now), value, Limits(value, value, Method.COUNTED), population)


def _warn(matching: Matching) -> None:
    skipped = set(matching.skipped)
    for ids, which in (
        (matching.skipped, "skipped by the new run"),
        ([one for one in matching.only_base if one not in skipped], "only in the base run"),
        (matching.only_new, "only in the new run"),
        (matching.other_images, "another image in each run, and left out"),
    ):
        if ids:
            more = ", ..." if len(ids) > _SHOWN else ""
            count = f"{len(ids)} sample{' is' if len(ids) == 1 else 's are'}"
            matching.warnings.append(f"{count} {which}: {', '.join(ids[:_SHOWN])}{more}")
    if matching.other_labels:
        matching.warnings.append(f"{matching.other_labels} samples have another label in each run; those of the new run name the classes")


def compared(group: Group, matching: Matching, names: Sequence[str] | None, below: float | None, confidence: float) -> GroupComparison:
    """Compare the pairs of one group.

    Args:
        group: at least one pair.
        matching: how the runs match; if the model is the same and no draw differs, the difference is exactly 0.
        names: of the classes.
        below: the threshold of flagged samples; None: the usual one.
        confidence: of the intervals.
    """
    if below is None:
        below = usual_threshold(group.quantity)
    else:
        check_threshold(below, group.quantity, "--threshold", str(group.key))
    no_change = not group.changes.any() and not group.shared[:, 1:].any()
    same, everything = matching.same_model and no_change, np.ones(len(group), dtype=np.bool_)
    how: Pairing = "the same model" if same else "common random numbers" if group.paired else "unpaired"
    equal = bool(group.paired and (group.draws == group.draws[0]).all())
    lower, upper = sample_ends(group)
    sign, by_label, unknown = group.sign, group.by_label, group.without
    worse, better = (upper < 0, lower > 0) if sign > 0 else (lower > 0, upper < 0)
    return GroupComparison(
        key=group.key,
        unit=group.quantity.unit,
        higher_is_better=group.quantity.higher_is_better,
        images=len(group),
        not_finite=len(unknown) - group.skipped,
        skipped=group.skipped,
        unknown=Counter(label if by_label else predicted for label, predicted in unknown),
        unknown_labelled=sum(label >= 0 for label, _ in unknown),
        span=group.quantity.high - group.quantity.low,
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
        approximate=group.base.approximate or group.new.approximate,
        voted=group.voted,
        changed=_changed(group, below, lower, upper, worse),
        confidence=confidence,
    )


def _mean(group: Group, of: Mask, same: bool, confidence: float) -> Difference:
    base, new = float(group.base.values[of].mean()), float(group.new.values[of].mean())
    if same:
        return Difference(base, new, 0.0, _SAME, _SAME)
    value = float(group.changes[of].mean())
    return Difference(base, new, value, _measured(group, of, confidence), _population(group, of, confidence))


def _measured(group: Group, of: Mask, confidence: float) -> Limits | None:
    """The interval for the measurement of these images: from pooled discordant draws, or from the two means' intervals."""
    if group.paired:
        return group.paired_limits(of, confidence)
    sides = [(float(side.values[of].mean()), side.mean_limits(of, group.quantity, confidence)) for side in (group.base, group.new)]
    (base, before), (new, now) = sides
    if before is None or now is None:
        return None
    return unpaired_difference((base, before), (new, now), same_noise=group.same_noise)


def _population(group: Group, of: Mask, confidence: float) -> Limits:
    """The interval for the choice of the images: :func:`robaudit.stats.intervals.population_mean` of the samples' differences. Where
    their range is unbounded it is Student's t, which trusts that no rare image carries the difference: one in a million may have changed
    by any amount. No gate rests on that."""
    base, new, span = group.base, group.new, group.quantity.high - group.quantity.low
    changes = group.changes[of]
    lowers, uppers = new.lowers[of] - base.uppers[of], new.uppers[of] - base.lowers[of]
    lowers, uppers = np.where(np.isnan(lowers), changes, lowers), np.where(np.isnan(uppers), changes, uppers)
    adaptive = base.adaptive or new.adaptive
    images = MeasuredImages(changes, lowers, uppers, -span, span, adaptive=adaptive)
    one_sided = bool(np.isinf(lowers).any() or np.isinf(uppers).any())
    remark = ": bounds" if one_sided else ": mean of intervals" if adaptive else "" if math.isfinite(span) else ": Student's t"
    return Limits(*opened(images, population_mean(images, confidence, light_tails=True)), f"paired images{remark}")


def _saved(group: Group) -> float | None:
    """1 - Var[mean difference] / (Var[base mean] + Var[new mean]), of the measurement error."""
    if not group.paired:
        return None
    draws, lost, won, half_lost, half_won = group.shared.T
    unit = 2.0 if group.antithetic else 1.0  # draws
    rates = unit * (lost + won + (half_lost + half_won) / 4.0) / draws
    sides = (group.base, group.new)
    apart = sum(float(share_variance(side.values, draws, side.split if group.antithetic else None).sum()) for side in sides)
    return 1 - float(((rates - group.changes**2) * unit / draws).sum()) / apart if apart > 0 else None


def _noisy_accuracy(group: Group, same: bool, confidence: float) -> Difference | None:
    of = (group.base.labels >= 0) & (group.new.labels >= 0)
    sides = group.base, group.new
    if not of.any() or not all((side.hit_draws[of] > 0).all() for side in sides):
        return None
    shares = [side.hits[of] / side.hit_draws[of] for side in sides]
    base, new = (float(share.mean()) for share in shares)
    if same:
        return Difference(base, new, 0.0, _SAME, _SAME)
    changes = shares[1] - shares[0]
    population = population_mean(MeasuredImages(changes, changes, changes, -1.0, 1.0), confidence)
    return Difference(base, new, new - base, _noisy_measured(group, of, confidence), Limits(*population, "paired images"))


def _noisy_measured(group: Group, of: Mask, confidence: float) -> Limits | None:
    """The measurement interval of accuracy under noise. Where both models classify the image correctly, the draws that kept the class
    are the hits and can be paired; the other images cannot. The two parts are independent: their distances, weighted by their shares of
    the images, add in quadrature."""
    right = of & (group.base.predicted == group.base.labels) & (group.new.predicted == group.new.labels)
    paired = right if group.paired and group.cut is None else np.zeros_like(of)
    parts: list[tuple[float, float, Limits]] = []
    if paired.any():
        limits = replace(group.paired_limits(paired, confidence), method="paired draws")
        parts.append((paired.sum() / of.sum(), float(group.changes[paired].mean()), limits))
    rest = of & ~paired
    if rest.any():
        sides = []
        for side in (group.base, group.new):
            hits, all_draws = side.hits[rest], side.hit_draws[rest]
            if (number := alike(all_draws)) is None:
                return None
            shares = hits / all_draws
            images = MeasuredImages(shares, shares, shares, 0.0, 1.0, draws=number, split=antithetic(side.hit_split[rest]))
            sides.append((float(shares.mean()), Limits(*measured_mean(images, confidence), images.method)))
        parts.append((rest.sum() / of.sum(), sides[1][0] - sides[0][0], unpaired_difference(*sides, same_noise=group.same_noise)))
    return _joined(parts, "; ".join(ends.method for _, _, ends in parts))


def _joined(parts: Sequence[tuple[float, float, Limits]], method: str) -> Limits:
    """The interval of a mean made of independent parts: share of the samples, change and interval of each (MOVER)."""
    value = sum(share * change for share, change, _ in parts)
    below = math.hypot(*(share * (change - ends.lower) for share, change, ends in parts))
    above = math.hypot(*(share * (ends.upper - change) for share, change, ends in parts))
    return Limits(value - below, value + above, method)


def _classes(group: Group, same: bool, names: Sequence[str] | None, confidence: float) -> tuple[ClassChange, ...]:
    """By label where there are any, else by the base run's prediction; largest drop first. Bonferroni over the classes."""
    indices = group.new.labels if group.by_label else group.base.predicted
    present = [int(index) for index in np.unique(indices) if index >= 0]
    each = simultaneous(confidence, len(present))
    changes = []
    for index in present:
        of = indices == index
        changes.append(ClassChange(index, known_name(index, names), int(of.sum()), _mean(group, of, same, each)))
    return tuple(sorted(changes, key=lambda one: group.sign * one.difference.value))


def _changed(group: Group, below: float, lower: Floats, upper: Floats, worse: Mask) -> tuple[SampleChange, ...]:
    """Samples that are worse beyond their interval, newly flagged or fixed; worst first."""
    sign = group.sign
    beyond = [sign * side.values < sign * below for side in (group.base, group.new)]
    # NaN compares as false: without an interval nothing is certain
    wholly_beyond = [sign * (side.uppers if sign > 0 else side.lowers) < sign * below for side in (group.base, group.new)]
    wholly_within = [sign * (side.lowers if sign > 0 else side.uppers) >= sign * below for side in (group.base, group.new)]
    newly, fixed = beyond[1] & ~beyond[0], beyond[0] & ~beyond[1]
    certain = (newly & wholly_beyond[1] & wholly_within[0]) | (fixed & wholly_beyond[0] & wholly_within[1])
    places = np.flatnonzero(worse | newly | fixed)
    places = places[np.argsort(sign * group.changes[places], kind="stable")]
    sure = Certainty.APPROXIMATE if group.base.approximate or group.new.approximate else Certainty.CONFIRMED
    changes = []
    for i in places.tolist():
        bounded = not math.isnan(lower[i])
        certainty = sure if certain[i] or not (newly[i] or fixed[i]) else Certainty.LIKELY
        label = int(group.new.labels[i])
        changes.append(
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
                certainty=certainty if bounded else Certainty.NO_INTERVAL,
            )
        )
    return tuple(changes)


def sample_ends(group: Group, tail: float | None = None) -> tuple[Floats, Floats]:
    """Each sample's interval of the difference; NaN where there is none.

    Args:
        group: the pairs.
        tail: the chance that an interval misses on a given side; None: that of the rows' own 95 % intervals.
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

    def bounds(yes: Shown, no: Shown) -> tuple[int, int, str]:
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


class Shown(NamedTuple):
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


def _worse(group: Group, strict: float) -> tuple[Shown, Shown]:
    """The samples that are worse, and that are not."""
    tail = sum(_tails(group)) if group.adds and not group.paired else TAIL
    masks = []
    for each in (None, strict):
        lower, upper = sample_ends(group, each)
        masks.append((upper < 0, lower >= 0) if group.sign > 0 else (lower > 0, upper <= 0))
    (yes, no), (strictly, strictly_no) = masks
    return Shown(yes, strictly, tail), Shown(no, strictly_no, tail)


def _flagged(group: Group, below: float, strict: float) -> tuple[Shown, Shown]:
    """The samples that are newly flagged, and that are not."""
    edge, masks = group.sign * below, []
    for tail in (None, strict):
        ends = [side.ends(tail) for side in (group.base, group.new)]
        (worst, best), (new_worst, new_best) = ends if group.sign > 0 else [(-upper, -lower) for lower, upper in ends]
        masks.append(((worst >= edge) & (new_best < edge), (best < edge) | (new_worst >= edge)))
    (yes, no), (strictly, strictly_no) = masks
    return Shown(yes, strictly, max(_tails(group))), Shown(no, strictly_no, sum(_tails(group)))


def unpaired_difference(base: tuple[float, Limits], new: tuple[float, Limits], *, same_noise: bool) -> Limits:
    """The interval of new - base from the interval of each.

    Independent measurements: distances add in quadrature (MOVER). With the same noise the errors may be correlated with
    either sign, so that the error of the difference is at most the sum of both: distances add, as they do for adaptive stopping.

    Args:
        base, new: value and interval.
        same_noise: whether both have the same noise, so that their errors may be correlated.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    (b, of_b), (n, of_n) = base, new
    below, above = (n - of_n.lower, of_b.upper - b), (of_n.upper - n, b - of_b.lower)
    if MeanMethod.MEAN_OF_ENDS in (of_b.method, of_n.method):
        return Limits(n - b - sum(below), n - b + sum(above), f"unpaired: {MeanMethod.MEAN_OF_ENDS}")
    if same_noise:
        return Limits(n - b - sum(below), n - b + sum(above), f"unpaired, distances added: {of_n.method}")
    return Limits(n - b - float(np.hypot(*below)), n - b + float(np.hypot(*above)), f"unpaired: {of_n.method}")
