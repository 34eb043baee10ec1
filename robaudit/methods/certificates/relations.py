"""Relations of certificates to flips that were found and to votes, for ``robaudit verify``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial

from robaudit.levels import GAUSSIAN
from robaudit.methods.certificates.smoothing import p_lower
from robaudit.names import ResultName
from robaudit.quantities import CERTIFIED, RADIUS, IntervalKind
from robaudit.results import Certificate
from robaudit.runs.rows import Row
from robaudit.stats.relations import (
    PROBABILITY,
    BoundingPair,
    Claim,
    End,
    NoiseEntry,
    Relation,
    Setting,
    failure_claims,
    fixed,
    norm_factor,
    norm_of,
    rounding,
)

_UNIFORM = "uniform"
_LAPLACE = "laplace"
_RADII = (1e-3, 1e-6)  # relative and absolute rounding of radii


# --- what results claim


def _is_vote(row: Row) -> bool:
    """Whether a result is a certificate of the majority vote under noise."""
    return row.certificate is not None and row.certificate.p_lower is not None


def _certified(row: Row) -> float | None:
    """The lower bound on the radius from a certificate, or from a closed form less its rounding.

    None for other results.
    """
    if row.quantity == RADIUS.name and row.interval.kind is IntervalKind.EXACT:
        return max(0.0, row.value - rounding(row))
    return row.value if row.quantity == CERTIFIED.name and row.value > 0.0 else None


def _witnessed(row: Row) -> float | None:
    """The upper bound on the radius from an observed flip, or from a closed form plus its rounding.

    None for other results.
    """
    seen = row.interval.kind in (IntervalKind.UPPER_BOUND, IntervalKind.EXACT)
    return row.value + rounding(row) if row.quantity == RADIUS.name and seen else None


def _share(vote: Row) -> End:
    """The lower bound on the class probability in a majority vote's certificate.

    It is computed anew where the row has its counts, at any error probability.
    """
    proof = vote.certificate or Certificate()
    bound = proof.p_lower or 0.0
    kept = proof.kept
    draws = proof.draws
    if kept is None or draws is None:
        return lambda _: bound
    return lambda tail: min(bound, float(p_lower(kept, draws, tail)))


def leaving(noise: NoiseEntry, level: float, pixels: int, order: float, radius: float) -> float:
    """An upper bound of P[|e| > radius] for the noise e in a norm; 1 where nothing is known.

    Gaussian: |e|^2 / sigma^2 is chi-squared with d degrees of freedom, and the d values are
    independent. Laplace of standard deviation sigma: |e|_1 is gamma of shape d and scale sigma /
    sqrt 2. Uniform: shares of volumes. Balls of other norms contain a ball of one of these norms.
    Clipping moves no pixel away from the image, so it only helps.

    Args:
        noise: its entry in the spec.
        level: the noise level.
        pixels: d.
        order: of the norm.
        radius: of the ball.
    """
    from scipy.special import chdtrc, erfc, gammaincc

    def within(own: float) -> float:
        """The radius of the largest ball of another norm inside the ball."""
        return radius / (norm_factor(order, own, pixels) or 1.0)

    def any_outside(outside: float) -> float:
        """The chance 1 - (1 - outside)^d that any of d independent values is outside."""
        return -math.expm1(pixels * math.log1p(-outside)) if outside < 1.0 else 1.0

    # Two balls are inside for each kind; the better bound counts.
    if noise["kind"] == GAUSSIAN:
        by_length = float(chdtrc(pixels, (within(2.0) / level) ** 2))
        outside = float(erfc(within(math.inf) / level / math.sqrt(2.0)))
        by_values = any_outside(outside)
        return min(by_length, by_values)
    if noise["kind"] == _LAPLACE:
        scale = level / math.sqrt(2.0)
        by_length = float(gammaincc(pixels, within(1.0) / scale))
        by_values = any_outside(math.exp(-within(math.inf) / scale))
        return min(by_length, by_values)
    if noise["kind"] == _UNIFORM:
        inside = within(math.inf if noise.get("norm", "linf") == "linf" else 2.0)
        if level <= inside:
            return 0.0
        if noise.get("support") == "sphere":
            return 1.0
        # The volume of a ball grows with the power d of its radius.
        return -math.expm1(pixels * math.log(inside / level))
    return 1.0


# --- what is compared


def _radii(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    """Every lower bound of the network's radius with every upper bound, in any norms."""
    own = [row for row in rows if row.at.noise is None]
    lower_bounds = []
    upper_bounds = []
    for row in own:
        certified = _certified(row)
        if certified is not None:
            lower_bounds.append((row, certified))
        witnessed = _witnessed(row)
        if witnessed is not None:
            upper_bounds.append((row, witnessed))
    for (low, radius), (high, flip) in itertools.product(lower_bounds, upper_bounds):
        # An exact radius is in both lists.
        if low is high:
            continue
        # Hoelder's inequality compares radii in two norms, unless a norm is not known.
        factor = setting.factor(low, high)
        if factor is None:
            continue
        # A flip was observed, so if the two contradict each other, the certificate is wrong.
        wrong = low if high.interval.kind is IntervalKind.UPPER_BOUND else None
        yield BoundingPair(
            f"radius ({ResultName.parse(low.estimator).part})",
            fixed(low, radius),
            fixed(high, factor * flip),
            wrong,
        )


def _ball(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    """Every probability of failure with the chance that the noise leaves a certified ball."""
    proofs = []
    for row in rows:
        radius = _ball_radius(row)
        if radius is not None:
            proofs.append((row, radius))
    for row in rows:
        noise = setting.noises.get(row.noise)
        measured = failure_claims(row, setting)
        if noise is None or measured is None or setting.pixels is None:
            continue
        for proof, radius in proofs:
            bound = 1.0
            if radius > 0:
                order = norm_of(proof) or 2.0
                bound = leaving(noise, row.level, setting.pixels, order, radius)
            if bound < 1.0:
                # Noise that cannot leave the ball cannot fail: then the certificate is wrong.
                yield BoundingPair(
                    f"p_fail at {row.at}",
                    measured[0],
                    fixed(proof, bound),
                    proof if bound == 0.0 else None,
                )


def _ball_radius(row: Row) -> float | None:
    """The radius within which the network keeps its prediction, less rounding.

    None for results that are not about the prediction of the network itself.
    """
    if row.at.noise is not None or row.certified_class not in (None, row.predicted):
        return None
    bound = _certified(row)
    if not bound or norm_of(row) is None:
        return None
    return bound / (1.0 + _RADII[0]) - _RADII[1]


def _of_vote(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    """Every certificate of the vote with the probabilities of failure at its noise level."""
    for vote in rows:
        if not _is_vote(vote) or vote.certified_class is None:
            continue
        for row in rows:
            measured = failure_claims(row, setting) if row.at == vote.at else None
            if measured is None:
                continue
            number = f"p_fail at {row.at}"
            # Copies of another certified class have all failed.
            if vote.certified_class == row.predicted:
                others = Claim(vote, partial(_others, _share(vote)), random=True)
                yield BoundingPair(number, measured[0], others)
            else:
                yield BoundingPair(number, Claim(vote, _share(vote), random=True), measured[1])


def _others(share: End, tail: float) -> float:
    """The remaining probability, of the other classes."""
    return 1.0 - share(tail)


WITNESSED = Relation(
    "certified <= witnessed",
    "no flip is nearer than a certificate of the network, or its exact radius, allows: r_inf <= "
    "r_2 <= r_1, r_p <= d^(1/p - 1/q) r_q",
    "definition of a certificate; Hoelder's inequality between norms",
    _RADII,
    _radii,
)

BALL = Relation(
    "noise within the certified ball",
    "p_fail <= P[the noise leaves the certified ball]: 0 where it cannot",
    "definition of a certificate; chi-squared, gamma and volumes for the noise",
    PROBABILITY,
    _ball,
)

VOTE = Relation(
    "p_lower <= p_robust",
    "the share of noisy copies with the certified class is at least the bound of its certificate",
    "both are about the same probability",
    PROBABILITY,
    _of_vote,
)
