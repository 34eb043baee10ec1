"""What must hold between the results of an image: theorems, and what is expected of a good search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from robaudit.levels import GAUSSIAN, NO_NOISE, NoiseLevel
from robaudit.names import PartName
from robaudit.quantities import CERTIFIED, LOSS, RADIUS, TOLERANCE, IntervalKind
from robaudit.rows import Row
from robaudit.stats.attacks import ROUNDING, highest_loss, is_attack, not_missed, target_of
from robaudit.stats.claims import (
    Claim,
    End,
    NoiseFacts,
    Setting,
    approximate,
    certified_radius,
    fixed,
    interval_ends,
    is_vote,
    least_p_fail,
    most_p_fail,
    named,
    norm_of,
    p_lower_of,
    rounding_error,
    share_of_vote,
    theorem_radius,
    vote_flip,
    vote_radius,
    witnessed_radius,
)
from robaudit.stats.intervals import TAIL

_EXACT, _ATTACK = "radius_exact", "radius_attack"
_UNIFORM, _LAPLACE = "uniform", "laplace"
_SCALED = frozenset({GAUSSIAN, _UNIFORM, _LAPLACE, "gaussian_scaled", "gaussian_correlated", "gaussian_covariance", "speckle"})
"""Kinds that add a(level) e(x, z), a rising with the level: a draw moves along a ray from the image."""


class Verdict(StrEnum):
    """What it means that two results contradict each other."""

    VIOLATION = "violation"
    """One of them is wrong: a bug of an estimator."""
    APPROXIMATION = "approximation"
    """One of them is an approximation whose error no interval covers, and its error is larger than its interval."""
    DECLARED = "declared"
    """One of them hangs on something that the spec declares of the network, and that is not so."""
    MISSED = "missed"
    """A search has missed what another result of the run has found; no theorem says that it must find it."""


class Pair(NamedTuple):
    """Two results that bound a number from both sides.

    Attributes:
        number: what they bound, in a few words.
        least, most: what the number is at least by the one, and at most by the other.
        wrong: the result at fault if the bounds exclude each other; None: either.
    """

    number: str
    least: Claim
    most: Claim
    wrong: Row | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that must hold between the results of an image.

    Attributes:
        name: for tables.
        says: the statement.
        source: the theorem.
        allowance: what is granted besides the chance that intervals miss.
        relative, absolute: the allowance for rounding: least > most (1 + relative) + absolute contradicts.
        verdict: what a contradiction is, unless one of the results is an approximation.
        pairs: the comparisons among the results of an image.
    """

    name: str
    says: str
    source: str
    allowance: str
    relative: float
    absolute: float
    verdict: Verdict
    pairs: Callable[[Sequence[Row], Setting], Iterator[Pair]]


def norm_factor(first: float, second: float, pixels: int | None) -> float | None:
    """The smallest F with |v|_first <= F |v|_second for all v; None where it depends on an unknown number of pixels.

    1 for a norm of larger order, d^(1/first - 1/second) for one of smaller order (Hoelder's inequality).
    """
    if first >= second:
        return 1.0
    return None if pixels is None else pixels ** (1.0 / first - 1.0 / second)


def leaving(noise: NoiseFacts, level: float, pixels: int, order: float, radius: float) -> float:
    """An upper bound of P[|e| > radius] of the noise e in a norm; 1 where nothing is known.

    Gaussian: |e|^2 / sigma^2 is chi-squared with d degrees of freedom, and the d values are independent. Laplace of standard deviation
    sigma: |e|_1 is gamma of shape d and scale sigma / sqrt 2. Uniform: shares of volumes. Balls of other norms contain one of these.
    Clipping moves no pixel away from the image, so it only helps.
    """
    from scipy.special import chdtrc, erfc, gammaincc

    def within(own: float) -> float:
        """The radius of the ball of another norm that the ball contains."""
        return radius / (norm_factor(order, own, pixels) or 1.0)

    def each(outside: float) -> float:
        """The chance that one of d values is outside."""
        return -math.expm1(pixels * math.log1p(-outside)) if outside < 1.0 else 1.0

    if noise.kind == GAUSSIAN:
        return min(float(chdtrc(pixels, (within(2.0) / level) ** 2)), each(float(erfc(within(math.inf) / level / math.sqrt(2.0)))))
    if noise.kind == _LAPLACE:
        scale = level / math.sqrt(2.0)
        return min(float(gammaincc(pixels, within(1.0) / scale)), each(math.exp(-within(math.inf) / scale)))
    if noise.kind == _UNIFORM:
        inside = within(math.inf if noise.options.get("norm", "linf") == "linf" else 2.0)
        if noise.options.get("support") == "sphere":
            return 0.0 if level <= inside else 1.0
        return 0.0 if level <= inside else -math.expm1(pixels * math.log(inside / level))
    return 1.0


def usual_length(noise: NoiseFacts, level: float, pixels: int) -> float | None:
    """The root mean square of the l2 norm of the noise, before clipping; None for kinds whose pixels it depends on."""
    if noise.kind in (GAUSSIAN, _LAPLACE):
        return level * math.sqrt(pixels)
    if noise.kind != _UNIFORM:
        return None
    if noise.options.get("support") == "sphere":
        return level
    if noise.options.get("norm", "linf") == "linf":
        return level * math.sqrt(pixels / 3.0)
    return level * math.sqrt(pixels / (pixels + 2.0))


# --- radii of the network itself


def _radii(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    own = [row for row in rows if row.at == NO_NOISE]
    yield from _across(own, "radius", setting)
    for row in own:
        if row.quantity == CERTIFIED.name and row.value > 0 and row.certified_class not in (None, row.predicted):
            yield Pair("radius of the certified class", fixed(row, row.value), fixed(row, 0.0), row)


def _across(rows: Sequence[Row], number: str, setting: Setting) -> Iterator[Pair]:
    """Every lower bound of a radius beside every upper one, whatever their norms."""
    least = [(norm, claim) for row in rows if (claim := certified_radius(row)) and (norm := norm_of(row)) is not None]
    most = [(norm, claim) for row in rows if (claim := witnessed_radius(row)) and (norm := norm_of(row)) is not None]
    for (first, low), (second, high) in itertools.product(least, most):
        factor = norm_factor(first, second, setting.pixels)
        if low.row is high.row or factor is None or factor == math.inf:
            continue
        about = f"{number} ({named(low.row).part})"
        wrong = low.row if high.row.interval.kind is IntervalKind.UPPER_BOUND else None
        yield Pair(about, low, fixed(high.row, factor * high.end(TAIL)), wrong)


def _votes(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    for at in _levels(rows):
        here = [row for row in rows if row.at == at and (is_vote(row) or row.quantity == RADIUS.name)]
        for pair in _across(here, "radius of the majority vote", setting):
            if pair.least.row.certified_class == pair.most.row.certified_class:  # else the flip is of another class
                flip, vote = pair.most, pair.least.row
                yield pair._replace(least=vote_radius(vote, setting), most=vote_flip(flip.row, flip.end(TAIL), vote, setting))
    for vote in rows:
        p = p_lower_of(vote)
        allowed = None if p is None else theorem_radius(vote, setting, p)
        if allowed is not None and vote.value > 0.0:
            yield Pair("radius that p_lower certifies", fixed(vote, vote.value), fixed(vote, allowed), vote)


def _searches(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    """Every attack beside every other flip, whose own norm says how far it is at most in the attack's."""
    own = [row for row in rows if row.at == NO_NOISE and row.quantity == RADIUS.name]
    flips = [(norm, row) for row in own if witnessed_radius(row) is not None and (norm := norm_of(row)) is not None]
    for attack in (row for row in own if setting.name_of(row) == _ATTACK):
        first = norm_of(attack)
        for second, other in flips:
            factor = None if first is None else norm_factor(first, second, setting.pixels)
            if other is not attack and factor is not None and factor != math.inf:
                yield Pair(f"radius ({named(attack).part})", fixed(attack, attack.value), fixed(other, factor * other.value), attack)


# --- failure probabilities


def _ball(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    if setting.pixels is None:
        return
    certified = [
        (norm, claim)
        for row in rows
        if row.at == NO_NOISE
        and (claim := certified_radius(row))
        and row.certified_class in (None, row.predicted)
        and (norm := norm_of(row)) is not None
    ]
    for row in rows:
        noise = setting.noises.get(row.at.noise)
        if noise is None or row.at.levelless or (failing := least_p_fail(row, setting)) is None:
            continue
        for order, proof in certified:
            radius = proof.end(TAIL) / (1.0 + RADII.relative) - RADII.absolute
            bound = leaving(noise, row.at.level, setting.pixels, order, radius) if radius > 0 else 1.0
            if bound < 1.0:
                yield Pair(f"p_fail at {row.at}", failing, fixed(proof.row, bound), proof.row if bound == 0.0 else None)


def _half_space(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    from scipy.special import ndtr

    for exact in _linear(rows, setting):
        if norm_of(exact) != 2.0:
            continue
        for row in rows:
            noise = setting.noises.get(row.at.noise)
            if noise is None or noise.kind != GAUSSIAN or noise.clip or row.at.levelless:
                continue
            if (failing := most_p_fail(row, setting)) is not None:
                bound = float(ndtr(-exact.value * (1.0 + RADII.relative) / row.at.level))
                yield Pair(f"p_fail at {row.at}", fixed(exact, bound), failing)


def _of_vote(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    for vote in rows:
        if not is_vote(vote) or vote.certified_class is None:
            continue
        share = share_of_vote(vote)
        for row in rows:
            if row.at != vote.at:
                continue
            if vote.certified_class == row.predicted and (least := least_p_fail(row, setting)) is not None:
                yield Pair(f"p_fail at {row.at}", least, Claim(vote, partial(_others, share), random=True))
            elif vote.certified_class != row.predicted and (most := most_p_fail(row, setting)) is not None:
                yield Pair(f"p_fail at {row.at}", Claim(vote, share, random=True), most)


def _others(share: End, tail: float) -> float:
    """What is left for the other classes."""
    return 1.0 - share(tail)


def _concentration(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    proofs = {  # the same for every norm
        (named(row).estimator, row.at): (row, row.certificate.p_error)
        for row in rows
        if row.certificate is not None and row.certificate.p_error is not None
    }
    for proof, p_error in proofs.values():
        if proof.value <= 0 or proof.certified_class not in (None, proof.predicted):
            continue
        for row in rows:
            if row.at == proof.at and (failing := least_p_fail(row, setting)) is not None:
                yield Pair(f"p_fail at {row.at}", failing, fixed(proof, p_error))


def _agreement(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    """Measurements of the same probability by different estimators, approximations left out: they are known to differ."""
    measured = [row for row in rows if not approximate(row) and least_p_fail(row, setting) is not None]
    for one, other in itertools.combinations(measured, 2):
        if one.at == other.at and not one.at.levelless:
            yield from _at_most(one, other, setting)
            yield from _at_most(other, one, setting)


def _at_most(one: Row, other: Row, setting: Setting) -> Iterator[Pair]:
    """The failure probability of one measurement below that of another."""
    least, most = least_p_fail(one, setting), most_p_fail(other, setting)
    if least is not None and most is not None:
        yield Pair(f"p_fail at {one.at}", least, most)


def _weaker(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    if not _linear(rows, setting):
        return
    measured = [row for row in rows if not approximate(row) and not row.at.levelless and _along_rays(row.at, setting)]
    for weak, strong in itertools.permutations(measured, 2):
        if weak.at.noise == strong.at.noise and weak.at.strength < strong.at.strength:
            yield from _at_most(weak, strong, setting)


def _tolerance(rows: Sequence[Row], setting: Setting) -> Iterator[Pair]:
    if not _linear(rows, setting):
        return
    for tolerance in rows:
        kept = None if tolerance.search is None else tolerance.search.p
        if tolerance.quantity != TOLERANCE.name or kept is None:
            continue
        low, high = interval_ends(tolerance)
        for row in rows:
            if row.at.noise != tolerance.at.noise or row.at.levelless or not _along_rays(row.at, setting) or approximate(row):
                continue
            least, most, level = least_p_fail(row, setting), most_p_fail(row, setting), row.at.level
            if least is None or most is None:
                continue
            number = f"p_fail at {row.at}"
            if level < tolerance.value:
                yield Pair(number, least, Claim(tolerance, partial(_below_tolerance, low, level, kept), random=True))
            elif not tolerance.censored:
                yield Pair(number, Claim(tolerance, partial(_above_tolerance, high, level, kept), random=True), most)


def _below_tolerance(lower: End, level: float, kept: float, tail: float) -> float:
    """The failure probability is at most this where the whole interval of the tolerance is above the level."""
    return 1.0 - kept if level <= lower(tail) else 1.0


def _above_tolerance(upper: End, level: float, kept: float, tail: float) -> float:
    """The failure probability is at least this where the whole interval of the tolerance is below the level."""
    return 1.0 - kept if level >= upper(tail) else 0.0


def _linear(rows: Sequence[Row], setting: Setting) -> list[Row]:
    """The exact radii of a linear network; empty where it is not known to be one, or rounding may decide the class of the image."""
    return [
        row
        for row in rows
        if row.interval.kind is IntervalKind.EXACT
        and setting.name_of(row) == _EXACT
        and not setting.declares(row)
        and rounding_error(row) <= RADII.relative * row.value
    ]


def _along_rays(at: NoiseLevel, setting: Setting) -> bool:
    noise = setting.noises.get(at.noise)
    return noise is not None and noise.kind in _SCALED and not noise.clip


def _levels(rows: Sequence[Row]) -> list[NoiseLevel]:
    return list(dict.fromkeys(row.at for row in rows if not row.at.levelless))


# --- losses


def _orders(rows: Sequence[Row], _: Setting) -> Iterator[Pair]:
    series: dict[object, list[tuple[float, Row]]] = {}
    for row in rows:
        name = named(row)
        if row.quantity == LOSS.name and name.part is not None and name.part.name is PartName.Q:
            series.setdefault((name.estimator, row.at, target_of(row)), []).append((name.part.number, row))
    for norms in series.values():
        ascending = [row for _, row in sorted(norms, key=itemgetter(0))]
        for low, high in itertools.combinations(ascending, 2):
            first, second = interval_ends(low)[0], interval_ends(high)[1]
            yield Pair(f"loss at {low.at}", Claim(low, first, random=True), Claim(high, second, random=True))


def _worst_losses(rows: Sequence[Row], _: Setting) -> Iterator[Pair]:
    attacks = [row for row in rows if is_attack(row)]
    for row in rows:
        for attack in attacks:
            if row.quantity == LOSS.name and not is_attack(row) and row.at == attack.at and target_of(row) == target_of(attack):
                met, low = highest_loss(row), interval_ends(row)[0]
                claim = Claim(row, partial(_met, low, met), random=not_missed(row) > met)
                yield Pair(f"largest loss at {row.at}", claim, fixed(attack, attack.value), attack)


def _met(lower: End, highest: float, tail: float) -> float:
    """The largest loss is at least this."""
    return max(highest, lower(tail))


# --- all of them

RADII = Relation(
    "certified <= witnessed",
    "no flip is nearer than a certificate of the network, or its exact radius, allows: r_inf <= r_2 <= r_1, r_p <= d^(1/p - 1/q) r_q",
    "definition of a certificate; Hoelder's inequality between norms",
    "rounding: 0.1 % and 1e-6, and what an exact radius says of its own",
    1e-3,
    1e-6,
    Verdict.VIOLATION,
    _radii,
)
VOTES = Relation(
    "certified <= witnessed (majority vote)",
    "no image nearer than the certificate of the majority vote under noise has another majority",
    "Cohen et al. 2019, theorem 1; Teng et al. 2020; Yang et al. 2020",
    "rounding: 0.1 % and 1e-6; simultaneous intervals for the certificate and the flip",
    1e-3,
    1e-6,
    Verdict.VIOLATION,
    _votes,
)
SEARCHES = Relation(
    "attacked <= other flips",
    "radius_attack finds the nearest flip of all searches, in any norm: norm_p(v) <= d^(1/p - 1/q) norm_q(v)",
    "expected of a good search, no theorem",
    "1 %, the usual tolerance of the bisection along random directions",
    1e-2,
    1e-6,
    Verdict.MISSED,
    _searches,
)
BALL = Relation(
    "noise within the certified ball",
    "p_fail <= P[the noise leaves the certified ball]: 0 where it cannot",
    "definition of a certificate; chi-squared, gamma and volumes for the noise",
    "simultaneous intervals; the radius less 0.1 %",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _ball,
)
HALF_SPACE = Relation(
    "half-space beyond the boundary",
    "p_fail >= Phi(-r / sigma) of a linear network under Gaussian noise, r its exact l2 radius",
    "the half-space beyond the nearest boundary is of other classes",
    "simultaneous intervals; the radius plus 0.1 %",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _half_space,
)
VOTE_SHARE = Relation(
    "p_lower <= p_robust",
    "the share of noisy copies with the certified class is at least the bound of its certificate",
    "both are about the same probability",
    "simultaneous intervals, also for the bound",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _of_vote,
)
CONCENTRATION = Relation(
    "p_fail <= p_error",
    "p_fail <= exp(-eps^2 / (2 sigma^2)), eps the smoothed margin",
    "concentration of Lipschitz functions of normal variables (Borell; Tsirelson, Ibragimov and Sudakov)",
    "simultaneous intervals; the bound itself fails with the probability alpha of its estimator",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _concentration,
)
AGREEMENT = Relation(
    "p_robust = 1 - p_fail",
    "estimators of the same probability agree",
    "both are about the same probability",
    "simultaneous intervals",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _agreement,
)
WEAKER = Relation(
    "p_robust falls with the level",
    "of a linear network, under unclipped noise that scales with its level",
    "its decision regions are convex, so a draw that keeps the class at a level keeps it at every smaller one",
    "simultaneous intervals",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _weaker,
)
TOLERATED = Relation(
    "noise_tolerance and p_robust",
    "of a linear network, p_robust is above the tolerance's probability below it, and under it above",
    "as for the levels",
    "simultaneous intervals",
    1e-9,
    1e-12,
    Verdict.VIOLATION,
    _tolerance,
)
ORDERS = Relation(
    "Z_q rises with q",
    "norms of the same losses",
    "Lyapunov's inequality",
    "simultaneous intervals, and 0.01 %",
    ROUNDING,
    0.0,
    Verdict.VIOLATION,
    _orders,
)
WORST_LOSSES = Relation(
    "Z_q <= adversarial loss",
    "the attack finds a loss as large as every norm, and as the largest that a sampler met",
    "expected of a good search: what it finds is a lower bound of the largest loss",
    "simultaneous intervals, and 0.01 %",
    ROUNDING,
    0.0,
    Verdict.MISSED,
    _worst_losses,
)
RELATIONS = (
    RADII,
    VOTES,
    SEARCHES,
    BALL,
    HALF_SPACE,
    VOTE_SHARE,
    CONCENTRATION,
    AGREEMENT,
    WEAKER,
    TOLERATED,
    ORDERS,
    WORST_LOSSES,
)
