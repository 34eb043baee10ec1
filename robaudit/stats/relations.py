"""Relations between the results of an image that hold by a theorem.

A :class:`Claim` is a lower or an upper bound on a number, from a result that measures or bounds it, at a given chance of missing it.
A :class:`Relation` pairs claims about the same number; :func:`robaudit.stats.consistency.check` looks for pairs that exclude each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from robaudit.levels import GAUSSIAN
from robaudit.methods.certificates import smoothing
from robaudit.methods.intermediate_q.losses import ROUNDING
from robaudit.names import PartName, ResultName
from robaudit.numerics.images import TAIL, repeats_scale
from robaudit.numerics.intervals import antithetic_share, clopper_pearson
from robaudit.quantities import CERTIFIED, LOG10_P_FAIL, LOSS, P_ROBUST, RADIUS, IntervalKind
from robaudit.results import Certificate
from robaudit.runs.info import RunInfo
from robaudit.runs.rows import Row

_UNIFORM, _LAPLACE = "uniform", "laplace"
_DECLARED = "lipschitz"
"""The option that declares a property of the network without a check."""
_LEAST_DECADES = 1.0  # how far the failure probability may exceed a bound that no repeat of splitting reached
_CDF = 1e-8  # accuracy of a probability near 1 that is computed rather than counted
_RADII, _PROBABILITY = (1e-3, 1e-6), (1e-9, 1e-12)  # relative and absolute rounding


class Verdict(StrEnum):
    """The meaning of a contradiction between two results."""

    VIOLATION = "violation"
    """One of them is wrong: a bug in an estimator."""
    APPROXIMATION = "approximation"
    """One of them is an approximation whose error is larger than its interval, which does not cover bias."""
    DECLARED = "declared"
    """One of them depends on a property that the spec declares of the network, and that is false."""


End = Callable[[float], float]
"""A bound as a function of the chance of missing it."""


class Claim(NamedTuple):
    """A bound on a number, from a result.

    Attributes:
        row: the result.
        end: the bound.
        random: whether it depends on the chance of missing it; otherwise it is a proof, or an observed flip.
        approximate: whether the result has an error that its interval does not cover.
    """

    row: Row
    end: End
    random: bool = False
    approximate: bool = False


class BoundingPair(NamedTuple):
    """Two results that bound a number from both sides.

    Attributes:
        number: what they bound, in a few words.
        least, most: the number is at least, and at most, this.
        wrong: the result at fault if the bounds exclude each other; None: either.
    """

    number: str
    least: Claim
    most: Claim
    wrong: Row | None = None


class Relation(NamedTuple):
    """A relation that must hold between the results of an image.

    Attributes:
        name, says, source: the statement, and the theorem behind it.
        rounding: least > most (1 + relative) + absolute contradicts.
        pairs: the comparisons among the results of an image.
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
        noises: by label.
        pixels: values in an image; None: unknown.
        plain: whether noisy passes are in the network's own precision.
        declared: labels of the estimators that rely on a declared property of the network.
    """

    noises: Mapping[str, NoiseEntry]
    pixels: int | None
    plain: bool
    declared: frozenset[str]

    @staticmethod
    def of(info: RunInfo) -> Setting:
        """The setting of a run, from its run.json."""
        spec, shape = info.spec, info.image_shape
        noises = {entry["name"]: entry for entry in spec.get("noise", ())}
        options = {str(entry.get("label") or entry["name"]): entry for entry in spec.get("estimators", ())}
        declared = frozenset(label for label, entry in options.items() if entry.get("options", {}).get(_DECLARED) is not None)
        plain = spec.get("run", {}).get("precision", "fp32") in ("fp32", "fp64")
        return Setting(noises, None if shape is None else math.prod(shape), plain, declared)

    def declares(self, row: Row) -> bool:
        """Whether a result depends on a property that the spec declares of the network."""
        return ResultName.parse(row.estimator).estimator in self.declared

    def factor(self, first: Row, second: Row) -> float | None:
        """The smallest F such that a radius r in the norm of the second row is at most F r in the norm of the first; None if unknown."""
        norms = norm_of(first), norm_of(second)
        if norms[0] is None or norms[1] is None:
            return None
        factor = norm_factor(norms[0], norms[1], self.pixels)
        return None if factor is None or math.isinf(factor) else factor


def norm_of(row: Row) -> float | None:
    """The order of a radius's norm; None where its name does not say."""
    norm = ResultName.parse(row.estimator).norm
    return None if norm is None else norm.number


def norm_factor(first: float, second: float, pixels: int | None) -> float | None:
    """The smallest F with |v|_first <= F |v|_second for all v; None where it depends on an unknown number of pixels.

    1 if the first order is not smaller, else d^(1/first - 1/second) (Hoelder's inequality).
    """
    if first >= second:
        return 1.0
    return None if pixels is None else pixels ** (1.0 / first - 1.0 / second)


def approximate(row: Row) -> bool:
    """Whether the error of a result is more than its interval covers."""
    return row.interval.kind is IntervalKind.NONE or not row.interval.covers_bias


def _is_vote(row: Row) -> bool:
    """Whether a result is a certificate of the majority vote under noise."""
    return row.certificate is not None and row.certificate.p_lower is not None


def _rounding(row: Row) -> float:
    """The largest error of a radius due to rounding."""
    return 0.0 if row.search is None else row.search.rounding or 0.0


def _fixed(row: Row, bound: float) -> Claim:
    return Claim(row, lambda _: bound)


# --- what results claim


def interval_ends(row: Row) -> tuple[End, End]:
    """The ends of a row's 95 % interval at smaller tails; infinite where it is open, the value where there is none.

    Distances from the value grow as fast as for any interval of the kind (:func:`widening`). The interval of a loss is widened on the scale
    of its logarithm, as it is measured.
    """
    on_logs = row.quantity == LOSS.name and row.value > 0.0 and (row.lower is None or row.lower > 0.0)
    number = math.log if on_logs else float
    value, kind = number(row.value), row.interval.kind
    none = (row.lower is None and row.upper is None) or kind is IntervalKind.EXACT

    def end(bound: float | None, sign: float) -> End:
        if none:
            return lambda _: row.value
        if bound is None or math.isinf(bound):
            return lambda _: sign * math.inf
        distance = number(bound) - value

        def at(tail: float) -> float:
            moved = value + distance * widening(kind, tail)
            return math.exp(min(moved, 700.0)) if on_logs else moved

        return at

    return end(row.lower, -1.0), end(row.upper, 1.0)


def widening(kind: IntervalKind, tail: float) -> float:
    """The width of an interval that misses on a given side with a chance of at most ``tail``, relative to the 95 % interval's.

    With the logarithm of the tail where copies were counted (a normal error's grows more slowly), else as few repeats
    (:func:`robaudit.numerics.images.repeats_scale`).
    """
    if tail < TAIL and kind in (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE):
        return math.log(tail) / math.log(2.0 * TAIL)
    return repeats_scale(tail)


def _p_fail(row: Row, setting: Setting) -> tuple[Claim, Claim] | None:
    """The lower and the upper bound of a measurement on the failure probability; None for other results and without a noise level."""
    if row.at.level is None or row.quantity not in (LOG10_P_FAIL.name, P_ROBUST.name):
        return None
    ends = _of_log10(row) if row.quantity == LOG10_P_FAIL.name else _of_share(row)
    random, loose = row.interval.kind is not IntervalKind.EXACT, approximate(row) or not setting.plain
    return Claim(row, ends[0], random, loose), Claim(row, ends[1], random, loose)


def _of_log10(row: Row) -> tuple[End, End]:
    low, high = interval_ends(row)
    if row.interval.kind is IntervalKind.UPPER_BOUND:
        return lambda _: 0.0, lambda _: 10.0 ** min(0.0, row.value + _LEAST_DECADES)
    return lambda tail: 10.0 ** min(0.0, low(tail)), lambda tail: 10.0 ** min(0.0, high(tail))


def _of_share(row: Row) -> tuple[End, End]:
    kind, votes = row.interval.kind, row.votes
    if kind in (IntervalKind.CLOPPER_PEARSON, IntervalKind.ANTITHETIC) and votes is not None and votes.draws:
        draws, split = votes.draws, votes.split
        failed = float(round((1.0 - row.value) * draws))

        def counted(tail: float, side: int) -> float:
            level = 1.0 - 2.0 * tail
            ends = clopper_pearson(failed, draws, level) if split is None else antithetic_share(failed, split, draws, level)
            return float(ends[side])

        return lambda tail: counted(tail, 0), lambda tail: counted(tail, 1)
    (low, high), error = interval_ends(row), 0.0 if kind is IntervalKind.EXACT else _CDF
    return lambda tail: max(0.0, 1.0 - high(tail) - error), lambda tail: min(1.0, 1.0 - low(tail) + error)


def _certified(row: Row) -> float | None:
    """The lower bound on the radius by a certificate, or by a closed form less its rounding; None for other results."""
    if row.quantity == RADIUS.name and row.interval.kind is IntervalKind.EXACT:
        return max(0.0, row.value - _rounding(row))
    return row.value if row.quantity == CERTIFIED.name and row.value > 0.0 else None


def _witnessed(row: Row) -> float | None:
    """The upper bound on the radius by an observed flip, or by a closed form plus its rounding; None for other results."""
    seen = row.interval.kind in (IntervalKind.UPPER_BOUND, IntervalKind.EXACT)
    return row.value + _rounding(row) if row.quantity == RADIUS.name and seen else None


def _share(vote: Row) -> End:
    """The lower bound on the class probability in a majority vote's certificate; recomputed where the row has its counts."""
    proof = vote.certificate or Certificate()
    bound, kept, draws = proof.p_lower or 0.0, proof.kept, proof.draws
    if kept is None or draws is None:
        return lambda _: bound
    return lambda tail: min(bound, float(smoothing.p_lower(kept, draws, tail)))


def leaving(noise: NoiseEntry, level: float, pixels: int, order: float, radius: float) -> float:
    """An upper bound of P[|e| > radius] of the noise e in a norm; 1 where nothing is known.

    Gaussian: |e|^2 / sigma^2 is chi-squared with d degrees of freedom, and the d values are independent. Laplace of standard deviation
    sigma: |e|_1 is gamma of shape d and scale sigma / sqrt 2. Uniform: shares of volumes. Balls of other norms contain one of these.
    Clipping moves no pixel away from the image, so it only helps.
    """
    from scipy.special import chdtrc, erfc, gammaincc

    def within(own: float) -> float:
        """The radius of the largest ball of another norm inside the ball."""
        return radius / (norm_factor(order, own, pixels) or 1.0)

    def each(outside: float) -> float:
        """The chance that any of d values is outside."""
        return -math.expm1(pixels * math.log1p(-outside)) if outside < 1.0 else 1.0

    if noise["kind"] == GAUSSIAN:
        return min(float(chdtrc(pixels, (within(2.0) / level) ** 2)), each(float(erfc(within(math.inf) / level / math.sqrt(2.0)))))
    if noise["kind"] == _LAPLACE:
        scale = level / math.sqrt(2.0)
        return min(float(gammaincc(pixels, within(1.0) / scale)), each(math.exp(-within(math.inf) / scale)))
    if noise["kind"] == _UNIFORM:
        inside = within(math.inf if noise.get("norm", "linf") == "linf" else 2.0)
        if noise.get("support") == "sphere":
            return 0.0 if level <= inside else 1.0
        return 0.0 if level <= inside else -math.expm1(pixels * math.log(inside / level))
    return 1.0


# --- what is compared


def _radii(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    """Every lower bound of the network's radius with every upper bound, in any norms."""
    own = [row for row in rows if row.at.noise is None]
    least = [(row, bound) for row in own if (bound := _certified(row)) is not None]
    most = [(row, bound) for row in own if (bound := _witnessed(row)) is not None]
    for (low, radius), (high, flip) in itertools.product(least, most):
        if low is not high and (factor := setting.factor(low, high)) is not None:
            wrong = low if high.interval.kind is IntervalKind.UPPER_BOUND else None
            yield BoundingPair(f"radius ({ResultName.parse(low.estimator).part})", _fixed(low, radius), _fixed(high, factor * flip), wrong)


def _ball(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    certified = [
        (row, bound / (1.0 + _RADII[0]) - _RADII[1])
        for row in rows
        if row.at.noise is None and row.certified_class in (None, row.predicted) and (bound := _certified(row)) and norm_of(row) is not None
    ]
    for row in rows:
        noise, measured = setting.noises.get(row.noise), _p_fail(row, setting)
        if noise is None or measured is None or setting.pixels is None:
            continue
        for proof, radius in certified:
            bound = leaving(noise, row.level, setting.pixels, norm_of(proof) or 2.0, radius) if radius > 0 else 1.0
            if bound < 1.0:
                yield BoundingPair(f"p_fail at {row.at}", measured[0], _fixed(proof, bound), proof if bound == 0.0 else None)


def _of_vote(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    for vote in rows:
        if not _is_vote(vote) or vote.certified_class is None:
            continue
        for row in rows:
            if row.at == vote.at and (measured := _p_fail(row, setting)) is not None:
                number = f"p_fail at {row.at}"
                if vote.certified_class == row.predicted:
                    yield BoundingPair(number, measured[0], Claim(vote, partial(_others, _share(vote)), random=True))
                else:
                    yield BoundingPair(number, Claim(vote, _share(vote), random=True), measured[1])


def _others(share: End, tail: float) -> float:
    """The remaining probability, of the other classes."""
    return 1.0 - share(tail)


def _agreement(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    """Measurements of the same probability by different estimators, except approximations, which are known to differ."""
    measured = [(row, ends) for row in rows if not approximate(row) and (ends := _p_fail(row, setting)) is not None]
    for (row, first), (other, second) in itertools.permutations(measured, 2):
        if row.at == other.at:
            yield BoundingPair(f"p_fail at {row.at}", first[0], second[1])


def _orders(rows: Sequence[Row], _: Setting) -> Iterator[BoundingPair]:
    """Norms of one estimator by ascending order, and norms of the same order by two estimators, which may have missed a bad region."""
    named = [(ResultName.parse(row.estimator), row) for row in rows if row.quantity == LOSS.name]
    norms = [(name, name.part.number, row) for name, row in named if name.part is not None and name.part.name is PartName.Q]
    for (first, q, low), (second, order, high) in itertools.permutations(norms, 2):
        same = first.estimator == second.estimator
        about = [(row.at, row.loss and row.loss.target) for row in (low, high)]
        if about[0] == about[1] and (q < order if same else q == order):
            least, most = interval_ends(low)[0], interval_ends(high)[1]
            loose = [not same and approximate(row) for row in (low, high)]
            yield BoundingPair(f"loss at {low.at}", Claim(low, least, True, loose[0]), Claim(high, most, True, loose[1]))


RELATIONS = (
    Relation(
        "certified <= witnessed",
        "no flip is nearer than a certificate of the network, or its exact radius, allows: r_inf <= r_2 <= r_1, r_p <= d^(1/p - 1/q) r_q",
        "definition of a certificate; Hoelder's inequality between norms",
        _RADII,
        _radii,
    ),
    Relation(
        "noise within the certified ball",
        "p_fail <= P[the noise leaves the certified ball]: 0 where it cannot",
        "definition of a certificate; chi-squared, gamma and volumes for the noise",
        _PROBABILITY,
        _ball,
    ),
    Relation(
        "p_lower <= p_robust",
        "the share of noisy copies with the certified class is at least the bound of its certificate",
        "both are about the same probability",
        _PROBABILITY,
        _of_vote,
    ),
    Relation(
        "p_robust = 1 - p_fail",
        "estimators of the same probability agree",
        "both are about the same probability",
        _PROBABILITY,
        _agreement,
    ),
    Relation(
        "Z_q rises with q",
        "norms of the same losses rise with their order, and estimators of the same norm agree",
        "Lyapunov's inequality",
        (ROUNDING, 0.0),
        _orders,
    ),
)
