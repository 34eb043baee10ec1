"""What results say of a number: that it is at least so much, or at most, at any confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from robaudit.names import Part, ResultName
from robaudit.numerics.intervals import antithetic_share, clopper_pearson
from robaudit.numerics.smoothing import BOX, GAUSSIAN, LAPLACE, p_lower
from robaudit.quantities import CERTIFIED, LOG10_P_FAIL, LOSS, P_ROBUST, RADIUS, IntervalKind
from robaudit.results import Votes
from robaudit.rows import Row
from robaudit.stats.intervals import TAIL

LEAST_DECADES = 1.0
"""How far above a bound that no repeat of splitting has reached the failure probability may be."""
_THEOREMS = {"gaussian": GAUSSIAN, "laplace": LAPLACE, "uniform": BOX}
_CDF = 1e-8
"""Accuracy of a probability that is computed rather than counted, near 1."""
_COUNTED = (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE)
_VOTED = (IntervalKind.CLOPPER_PEARSON, IntervalKind.ANTITHETIC)
_FEWEST_REPEATS = 4  # of the estimators that measure their error by repeats
_TRIES = 5  # points along its ray where a flip of the vote is tested, at the most
_PLAIN = ("fp32", "fp64")
_TOLD = {"radius_exact": ("linear",), "margin_radius": ("lipschitz",), "smoothed_margin": ("lipschitz",)}

End = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Claim:
    """A bound of a number that a result states.

    Attributes:
        row: the result.
        end: the bound as a function of the chance of missing it.
        random: whether that chance matters; otherwise the bound is a proof, or a flip that was seen.
        approximate: whether the result has an error of its own that no interval covers.
    """

    row: Row
    end: End
    random: bool = False
    approximate: bool = False


@dataclass(frozen=True, slots=True)
class NoiseFacts:
    """A noise of a run, as its spec states it."""

    kind: str
    clip: bool
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the comparison of a run's results needs to know besides them.

    Attributes:
        noises: by label.
        estimators: names by label.
        pixels: values in an image; None: unknown.
        plain: whether noisy passes are in the network's own precision.
        declared: labels of the estimators that were told something of the network which nobody checked.
    """

    noises: Mapping[str, NoiseFacts]
    estimators: Mapping[str, str]
    pixels: int | None
    plain: bool = True
    declared: frozenset[str] = frozenset()

    @staticmethod
    def of(info: Mapping[str, Any]) -> Setting:
        """That of a run, from its run.json."""
        spec, shape = info["spec"], info.get("image_shape")
        known = ("kind", "name", "clip")
        noises = {
            entry["name"]: NoiseFacts(entry["kind"], entry["clip"], {key: one for key, one in entry.items() if key not in known})
            for entry in spec.get("noise", ())
        }
        names = {str(one.get("options", {}).get("label") or one["name"]): str(one["name"]) for one in spec.get("estimators", ())}
        plain = spec.get("run", {}).get("precision", _PLAIN[0]) in _PLAIN
        told = frozenset(
            str(entry["options"].get("label") or entry["name"])
            for entry in spec.get("estimators", ())
            if any(entry.get("options", {}).get(option) for option in _TOLD.get(entry["name"], ()))
        )
        return Setting(noises, names, None if shape is None else math.prod(shape), plain, told)

    def declares(self, row: Row) -> bool:
        """Whether a result hangs on something that the spec declares of the network."""
        return named(row).estimator in self.declared

    def name_of(self, row: Row) -> str:
        """The name of the estimator behind a result."""
        label = named(row).estimator
        return self.estimators.get(label, label)


def named(row: Row) -> ResultName:
    """The estimator's label and the part of a result."""
    return _parsed(row.estimator)


@lru_cache(maxsize=1024)
def _parsed(name: str) -> ResultName:
    return ResultName.parse(name)


def norm_of(row: Row) -> float | None:
    """The order of the norm that a radius is measured in; None where its name does not say."""
    norm = named(row).norm
    return None if norm is None else norm.number


def fixed(row: Row, bound: float, *, approximate: bool = False) -> Claim:
    """A bound without a chance of missing it."""
    return Claim(row, lambda _: bound, approximate=approximate)


def approximate(row: Row) -> bool:
    """Whether its error is more than its interval covers."""
    return row.interval.kind is IntervalKind.NONE or not row.interval.covers_bias


# --- radii


def certified_radius(row: Row) -> Claim | None:
    """At least the radius of a certificate, or of a closed form; None for other results."""
    exact = row.quantity == RADIUS.name and row.interval.kind is IntervalKind.EXACT
    if exact:
        return fixed(row, max(0.0, row.value - rounding_error(row)))
    return fixed(row, row.value) if row.quantity == CERTIFIED.name and row.value > 0.0 else None


def witnessed_radius(row: Row) -> Claim | None:
    """At most the norm of a flip that was seen, or that a closed form places; None for other results."""
    seen = row.interval.kind in (IntervalKind.UPPER_BOUND, IntervalKind.EXACT)
    return fixed(row, row.value + rounding_error(row)) if row.quantity == RADIUS.name and seen else None


def rounding_error(row: Row) -> float:
    """How far the value may be off by the rounding of the network's passes; 0 where the row does not say."""
    return 0.0 if row.search is None or row.search.rounding is None else row.search.rounding


def is_vote(row: Row) -> bool:
    """Whether it is a certificate of the majority vote under noise."""
    return p_lower_of(row) is not None


def p_lower_of(row: Row) -> float | None:
    """The lower bound of the probability of the class of a majority vote's certificate; None for other results."""
    return None if row.certificate is None else row.certificate.p_lower


def share_of_vote(row: Row) -> End:
    """At least this is the probability of the class of a majority vote's certificate; restated where the row has its counts."""
    assert row.certificate is not None  # noqa: S101  is_vote
    bound, kept, draws = row.certificate.p_lower or 0.0, row.certificate.kept, row.certificate.draws
    if kept is None or draws is None:
        return lambda _: bound
    return lambda tail: min(bound, float(p_lower(kept, draws, tail)))


def vote_radius(row: Row, setting: Setting) -> Claim:
    """At least the radius of a majority vote's certificate, shortened as its probability is at another confidence."""
    stated = theorem_radius(row, setting, p_lower_of(row) or 0.0)
    if not stated:
        return fixed(row, row.value)
    share = share_of_vote(row)
    return Claim(row, lambda tail: row.value * min(1.0, (theorem_radius(row, setting, share(tail)) or 0.0) / stated), random=True)


def vote_flip(row: Row, radius: float, certificate: Row, setting: Setting) -> Claim:
    """At most the radius that a flip of the majority vote allows a certificate, lengthened as its test is at another confidence.

    At the flip the class has the probability u at most, the upper bound of its share of the copies of the two classes ahead. What p
    certifies is then at most the flip's norm and what u itself certifies, for the theorems bound how fast a function of the probability
    changes (of Gaussian noise, Phi^-1).

    Args:
        row: the flip.
        radius: its norm, in that of the certificate.
        certificate: a row of the same noise level and class.
        setting: of the run.
    """
    kept, other = (None, None) if row.search is None else (row.search.kept, row.search.other)
    if kept is None or other is None or kept + other < 1:
        return fixed(row, radius)

    def end(tail: float) -> float:
        upper = 1.0 - float(p_lower(other, kept + other, tail / _TRIES))
        return radius + (theorem_radius(certificate, setting, upper) or 0.0)

    return Claim(row, end, random=True)


def theorem_radius(row: Row, setting: Setting, p: float) -> float | None:
    """What a probability of the class certifies under the noise of a row; None where no theorem is known."""
    noise = setting.noises.get(row.at.noise)
    theorem = None if noise is None else _THEOREMS.get(noise.kind)
    if noise is None or theorem is None or Part.norm(theorem.norm).number != norm_of(row):
        return None
    if noise.kind == "uniform" and noise.options.get("norm", "linf") != "linf":
        return None  # the theorem is about the box
    return theorem.radius(p, row.at.level)


# --- failure probabilities


def least_p_fail(row: Row, setting: Setting) -> Claim | None:
    """The failure probability that a measurement leaves at least; None for other results."""
    ends = _p_fail(row)
    return None if ends is None else _measured(row, ends[0], setting)


def most_p_fail(row: Row, setting: Setting) -> Claim | None:
    """The failure probability that a measurement leaves at most; None for other results."""
    ends = _p_fail(row)
    return None if ends is None else _measured(row, ends[1], setting)


def _measured(row: Row, end: End, setting: Setting) -> Claim:
    return Claim(row, end, row.interval.kind is not IntervalKind.EXACT, approximate(row) or not setting.plain)


def _p_fail(row: Row) -> tuple[End, End] | None:
    """The ends of 1 - p_robust, from below and from above."""
    if row.quantity == LOG10_P_FAIL.name:
        return _of_log10(row)
    return _of_share(row) if row.quantity == P_ROBUST.name else None


def _of_log10(row: Row) -> tuple[End, End]:
    if row.interval.kind is IntervalKind.UPPER_BOUND:
        return lambda _: 0.0, lambda _: 10.0 ** min(0.0, row.value + LEAST_DECADES)
    ends = interval_ends(row)
    return lambda tail: 10.0 ** min(0.0, ends[0](tail)), lambda tail: 10.0 ** min(0.0, ends[1](tail))


def _of_share(row: Row) -> tuple[End, End]:
    kind = row.interval.kind
    if kind in _VOTED and row.votes is not None and row.votes.draws:
        return _of_votes(row.value, row.votes, 0), _of_votes(row.value, row.votes, 1)
    ends = interval_ends(row)
    error = 0.0 if kind is IntervalKind.EXACT else _CDF
    return lambda tail: max(0.0, 1.0 - ends[1](tail) - error), lambda tail: min(1.0, 1.0 - ends[0](tail) + error)


def _of_votes(value: float, votes: Votes, side: int) -> End:
    """The interval of the share of copies that fail."""
    draws, split = votes.draws, votes.split
    failed = float(round((1.0 - value) * draws))
    if split is not None:
        return lambda tail: float(antithetic_share(failed, split, draws, 1.0 - 2.0 * tail)[side])
    return lambda tail: float(clopper_pearson(failed, draws, 1.0 - 2.0 * tail)[side])


# --- any measured value


def interval_ends(row: Row) -> tuple[End, End]:
    """The ends of a row's 95 % interval for smaller tails; infinite where it is open, the value where there is none.

    Distances from the value grow as fast as those of any interval of the kind: with the logarithm of the tail where copies were counted
    (a normal error's grow more slowly, a rare failure's just so), else as the quantiles of Student's t with three degrees of freedom, the
    fewest repeats that estimators make being four. A loss is restated on the scale of its logarithm, as it is measured.
    """
    on_logs = row.quantity == LOSS.name and row.value > 0.0 and (row.lower is None or row.lower > 0.0)
    number = math.log if on_logs else float
    value, none = number(row.value), approximate_value(row)

    def end(given: float | None, sign: float) -> End:
        if none or row.interval.kind is IntervalKind.EXACT:
            return lambda _: row.value
        if given is None or math.isinf(given):
            return lambda _: sign * math.inf
        distance = number(given) - value

        def at(tail: float) -> float:
            moved = value + distance * widening(row.interval.kind, tail)
            return math.exp(min(moved, 700.0)) if on_logs else moved

        return at

    return end(row.lower, -1.0), end(row.upper, 1.0)


def approximate_value(row: Row) -> bool:
    """Whether there is a value and nothing else."""
    return row.lower is None and row.upper is None


def widening(kind: IntervalKind, tail: float) -> float:
    """The width of an interval that misses on a given side with a chance of at most ``tail``, relative to the 95 % interval's."""
    from scipy.special import stdtrit

    if tail >= TAIL:
        return 1.0
    if kind in _COUNTED:
        return math.log(tail) / math.log(2.0 * TAIL)
    return float(stdtrit(_FEWEST_REPEATS - 1, 1.0 - tail) / stdtrit(_FEWEST_REPEATS - 1, 1.0 - TAIL))
