"""Relations between the results of an image that hold by a theorem.

A :class:`Claim` is a lower or an upper bound on a number, from a result that measures or bounds it,
at a given chance of missing it. A :class:`Relation` pairs claims about the same number; families
register theirs under the entry-point group ``robaudit.relations``.
:func:`robaudit.stats.consistency.check` looks for pairs that exclude each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from robaudit.names import ResultName
from robaudit.numerics.image_intervals import TAIL, repeats_scale
from robaudit.numerics.intervals import antithetic_share, clopper_pearson
from robaudit.plugins import RELATIONS, load_object, names_in
from robaudit.quantities import LOG10_P_FAIL, LOSS, P_ROBUST, IntervalKind
from robaudit.results import Votes
from robaudit.runs.info import RunInfo
from robaudit.runs.rows import Row

_DECLARED = "lipschitz"
"""The option that declares a property of the network without a check."""
# How far the failure probability may exceed the bound of splitting, in powers of ten. No repeat
# reached the bound, which is an observation of a few repeats and not a proof.
_LEAST_DECADES = 1.0
# The accuracy of a probability near 1 that is computed from normal distributions, not counted.
_CDF = 1e-8
PROBABILITY = (1e-9, 1e-12)
"""Relative and absolute rounding of probabilities."""


class Verdict(StrEnum):
    """The meaning of a contradiction between two results."""

    VIOLATION = "violation"
    """One of them is wrong: a bug in an estimator."""
    APPROXIMATION = "approximation"
    """One of them is an approximation whose error is larger than its interval, which does not cover
    bias."""
    DECLARED = "declared"
    """One of them depends on a property that the spec declares of the network, and that is
    false."""


End = Callable[[float], float]
"""A bound as a function of the chance of missing it."""


class Claim(NamedTuple):
    """A bound on a number, from a result.

    Attributes:
        row: the result.
        end: the bound, as a function of the chance of missing it.
        random: whether it depends on that chance; otherwise it is a proof, or an observed flip.
        approximate: whether the result has an error that its interval does not cover.
    """

    row: Row
    end: End
    random: bool = False
    approximate: bool = False


class BoundingPair(NamedTuple):
    """Two results that bound a number from both sides.

    Attributes:
        number: the number that they bound, in a few words.
        least, most: the lower and the upper bound of the number.
        wrong: the result at fault if the bounds exclude each other; None: either.
    """

    number: str
    least: Claim
    most: Claim
    wrong: Row | None = None


class Relation(NamedTuple):
    """A relation that must hold between the results of an image.

    Attributes:
        name: name of the relation.
        says, source: the statement, and the theorem behind it.
        rounding: relative and absolute allowance for rounding. A pair is a contradiction if
            least > most (1 + relative) + absolute.
        pairs: finds the comparisons among the results of an image.
    """

    name: str
    says: str
    source: str
    rounding: tuple[float, float]
    pairs: Callable[[Sequence[Row], Setting], Iterator[BoundingPair]]

    def excludes(self, pair: BoundingPair, tail: float) -> bool:
        """Whether the bounds of a pair exclude each other, each at a chance ``tail`` of missing."""
        relative, absolute = self.rounding
        return pair.least.end(tail) > pair.most.end(tail) * (1.0 + relative) + absolute


# --- the run


NoiseEntry = Mapping[str, Any]
"""A noise of a run, as its spec states it: its kind and its options."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Properties of a run that the comparison of its results needs.

    Attributes:
        noises: the noises by label.
        pixels: number of values in an image; None: unknown.
        plain: whether noisy passes are in the network's own precision.
        declared: labels of the estimators that rely on a declared property of the network.
    """

    noises: Mapping[str, NoiseEntry]
    pixels: int | None
    plain: bool
    declared: frozenset[str]

    @staticmethod
    def from_info(info: RunInfo) -> Setting:
        """The setting of a run, from its run.json."""
        spec = info.spec
        shape = info.image_shape
        noises = {entry["name"]: entry for entry in spec.get("noise", ())}
        declared = frozenset(
            str(entry.get("label") or entry["name"])
            for entry in spec.get("estimators", ())
            if entry.get("options", {}).get(_DECLARED) is not None
        )
        # tf32 and bf16 round the logits of noisy passes so much that some copies change sides.
        plain = spec.get("run", {}).get("precision", "fp32") in ("fp32", "fp64")
        pixels = None if shape is None else math.prod(shape)
        return Setting(noises, pixels, plain, declared)

    def declares(self, row: Row) -> bool:
        """Whether a result depends on a property that the spec declares of the network."""
        return ResultName.parse(row.estimator).estimator in self.declared

    def factor(self, first: Row, second: Row) -> float | None:
        """The smallest F such that a radius r in the norm of the second row is at most F r in the
        norm of the first; None if unknown."""
        first_order = norm_of(first)
        second_order = norm_of(second)
        if first_order is None or second_order is None:
            return None
        factor = norm_factor(first_order, second_order, self.pixels)
        return None if factor is None or math.isinf(factor) else factor


def norm_of(row: Row) -> float | None:
    """The order of a radius's norm; None where its name does not say."""
    norm = ResultName.parse(row.estimator).norm
    return None if norm is None else norm.number


def norm_factor(first: float, second: float, pixels: int | None) -> float | None:
    """The smallest F with |v|_first <= F |v|_second for all v.

    It is 1 if the first order is not smaller, else d^(1/first - 1/second) for d values (Hoelder's
    inequality). None if d is needed and unknown.
    """
    if first >= second:
        return 1.0  # norms decrease with their order
    return None if pixels is None else pixels ** (1.0 / first - 1.0 / second)


def approximate(row: Row) -> bool:
    """Whether the error of a result is more than its interval covers."""
    return row.interval.kind is IntervalKind.NONE or not row.interval.covers_bias


def rounding(row: Row) -> float:
    """The largest error of a radius due to rounding."""
    return 0.0 if row.search is None else row.search.rounding or 0.0


def fixed(row: Row, bound: float) -> Claim:
    """A claim that involves no chance: a proof, or an observed flip."""
    return Claim(row, lambda _: bound)


# --- what results claim


def interval_ends(row: Row) -> tuple[End, End]:
    """The ends of a row's 95 % interval as functions of a smaller tail.

    They are infinite where the interval is open, and the value where there is none. Distances from
    the value grow as fast as for any interval of the kind (:func:`widening`). The interval of a
    loss is widened on the scale of its logarithm, as it is measured.
    """
    positive = row.value > 0.0 and (row.lower is None or row.lower > 0.0)
    on_logs = row.quantity == LOSS.name and positive
    number = math.log if on_logs else float
    value = number(row.value)
    kind = row.interval.kind
    has_none = row.lower is None and row.upper is None
    is_value = has_none or kind is IntervalKind.EXACT

    def end(bound: float | None, sign: float) -> End:
        if is_value:
            return lambda _: row.value
        if bound is None or math.isinf(bound):
            return lambda _: sign * math.inf
        distance = number(bound) - value

        def at(tail: float) -> float:
            moved = value + distance * widening(kind, tail)
            # exp of more than 709.8 overflows a float64
            return math.exp(min(moved, 700.0)) if on_logs else moved

        return at

    return end(row.lower, -1.0), end(row.upper, 1.0)


def widening(kind: IntervalKind, tail: float) -> float:
    """The width of an interval that misses on a given side with a chance of at most ``tail``,
    relative to the 95 % interval's.

    It grows as the logarithm of the tail where copies were counted, else as an interval of few
    repeats (:func:`robaudit.numerics.image_intervals.repeats_scale`).
    """
    if tail < TAIL and kind in (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE):
        # Without a failure among n copies the upper end is -log(tail) / n; the distance of a normal
        # error grows more slowly. A confidence sequence bounds both sides together, hence 2 TAIL.
        return math.log(tail) / math.log(2.0 * TAIL)
    return repeats_scale(tail)


def failure_claims(row: Row, setting: Setting) -> tuple[Claim, Claim] | None:
    """The lower and the upper bound of a measurement on the failure probability; None for other
    results and without a noise level."""
    if row.at.level is None or row.quantity not in (LOG10_P_FAIL.name, P_ROBUST.name):
        return None
    on_logs = row.quantity == LOG10_P_FAIL.name
    lower, upper = _failure_from_log10(row) if on_logs else _failure_from_share(row)
    random = row.interval.kind is not IntervalKind.EXACT
    loose = approximate(row) or not setting.plain
    return Claim(row, lower, random, loose), Claim(row, upper, random, loose)


def _failure_from_log10(row: Row) -> tuple[End, End]:
    """Bounds on the failure probability from its logarithm."""
    if row.interval.kind is IntervalKind.UPPER_BOUND:
        return lambda _: 0.0, lambda _: 10.0 ** min(0.0, row.value + _LEAST_DECADES)
    low, high = interval_ends(row)

    # A probability is at most 1, its logarithm at most 0.
    return lambda tail: 10.0 ** min(0.0, low(tail)), lambda tail: 10.0 ** min(0.0, high(tail))


def _failure_from_share(row: Row) -> tuple[End, End]:
    """Bounds on the failure probability from the probability of keeping the class."""
    kind = row.interval.kind
    votes = row.votes if kind in (IntervalKind.CLOPPER_PEARSON, IntervalKind.ANTITHETIC) else None
    if votes is not None and votes.draws:
        return _failure_from_votes(1.0 - row.value, votes)
    low, high = interval_ends(row)
    error = 0.0 if kind is IntervalKind.EXACT else _CDF

    def lower(tail: float) -> float:
        return max(0.0, 1.0 - high(tail) - error)

    def upper(tail: float) -> float:
        return min(1.0, 1.0 - low(tail) + error)

    return lower, upper


def _failure_from_votes(share: float, votes: Votes) -> tuple[End, End]:
    """Bounds on the failure probability from the share of copies that changed class; they are
    recomputed for each tail, which is exact."""
    draws = votes.draws
    split = votes.split
    failed = float(round(share * draws))

    def bound(tail: float, side: int) -> float:
        level = 1.0 - 2.0 * tail
        if split is None:
            ends = clopper_pearson(failed, draws, level)
        else:
            ends = antithetic_share(failed, split, draws, level)
        return float(ends[side])

    return lambda tail: bound(tail, 0), lambda tail: bound(tail, 1)


# --- the installed relations


def installed_relations() -> tuple[Relation, ...]:
    """The relations of all installed plugins, in alphabetical order of their entry points.

    Raises:
        RobauditError: a plugin does not import.
    """
    return tuple(load_object(RELATIONS, "relation", name, Relation) for name in names_in(RELATIONS))
