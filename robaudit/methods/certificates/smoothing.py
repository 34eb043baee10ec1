"""Certified radii of a majority vote under noise, from the probability of the majority class.

The smoothed class at x is the class c with the largest P_c(x) = P[f(x + e) = c]. If P_c(x) >= p >
1/2, no perturbation of norm below R(p) brings P_c to 1/2, for any f. :class:`Theorem` gives R for
the three kinds of noise with a closed form; each is tight: some f with P_c(x) = p loses its
majority just beyond R. A count of draws bounds p from below (:func:`p_lower`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.numerics.sequences import deciding_sequence

Floats = NDArray[np.float64]

# With 9/10 of alpha left, 100,000 draws of Gaussian noise at alpha .001 certify .1 % less at most.
EARLY = 0.1
"""The share of alpha spent on answers before the last draw."""
# A question is answered no if all draws would answer yes with a smaller probability than this.
_NO_HOPE = 1e-4


@dataclass(frozen=True, slots=True)
class Theorem:
    """The radius that a probability above 1/2 certifies under a kind of noise.

    Attributes:
        norm: norm of the perturbations.
        unit_radius: p in [1/2, 1] -> the radius under noise of scale 1.
        unit_probability: inverse of ``unit_radius``; above 1 if no probability suffices.
        scale: scale of the noise per unit of level.
    """

    norm: Literal["l1", "l2"]
    unit_radius: Callable[[float], float]
    unit_probability: Callable[[float], float]
    scale: float = 1.0

    def radius(self, p: float, level: float) -> float:
        """The certified radius; 0 if p is at most 1/2."""
        return self.scale * level * self.unit_radius(p) if p > 0.5 else 0.0

    def probability(self, radius: float, level: float) -> float:
        """The smallest p that certifies a radius >= 0; above 1 if no probability does."""
        return self.unit_probability(radius / (self.scale * level))


def _normal_quantile(p: float) -> float:
    """Phi^-1(p)."""
    from scipy.special import ndtri

    return float(ndtri(p))


def _normal_probability(x: float) -> float:
    """Phi(x)."""
    from scipy.special import ndtr

    return float(ndtr(x))


GAUSSIAN = Theorem("l2", _normal_quantile, _normal_probability)
"""x + sigma z: R = sigma Phi^-1(p) in l2.

Source: Cohen, Rosenfeld and Kolter 2019, Certified adversarial robustness via randomized smoothing,
theorem 1 with p_B = 1 - p_A.
"""

BOX = Theorem(
    norm="l1",
    unit_radius=lambda p: 2.0 * p - 1.0,
    unit_probability=lambda r: 0.5 + 0.5 * r,
)
"""Uniform on [-eps, eps]^d: R = 2 eps (p - 1/2) in l1.

Source: Lee, Yuan, Chang and Jaakkola 2019, Tight certificates of adversarial robustness for
randomly smoothed classifiers; Yang et al. 2020, Randomized smoothing of all shapes and sizes.
"""

# The level is the standard deviation sigma; the scale b of the theorem is sigma / sqrt 2.
LAPLACE = Theorem(
    norm="l1",
    unit_radius=lambda p: -math.log(2.0 * (1.0 - p)) if p < 1.0 else math.inf,
    unit_probability=lambda r: 1.0 - 0.5 * math.exp(-r),
    scale=math.sqrt(0.5),
)
"""Independent Laplace variables of standard deviation sigma, with scale b = sigma / sqrt 2: R = -b
log(2 (1 - p)) in l1.

Source: Teng, Lee and Yuan 2020, l1 adversarial robustness certificates: a randomized smoothing
approach, with p_B = 1 - p_A.
"""


def p_lower(kept: ArrayLike, draws: ArrayLike, alpha: float) -> Floats:
    """The one-sided Clopper-Pearson bound: P[p_lower > p] <= alpha, for every p and number of
    draws.

    BetaInv(alpha; k, n - k + 1), 0 at k = 0 and alpha^(1/n) at k = n.

    Args:
        kept: k, any shape.
        draws: n >= 1, broadcast against ``kept``.
        alpha: in (0, 1).

    Returns:
        float64 of the broadcast shape.

    Source: Clopper and Pearson, Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    k, n = np.broadcast_arrays(
        np.asarray(kept, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    )
    counts_fit = np.all(k >= 0) and np.all(k <= n) and np.all(n >= 1)
    if not (counts_fit and 0.0 < alpha < 1.0):
        raise ValueError("p_lower: needs 0 <= kept <= draws, draws >= 1 and alpha between 0 and 1")
    # Clopper and Pearson 1934: BetaInv(alpha; k, n - k + 1). np.where discards the values of the
    # clamp.
    inside: Floats = betaincinv(np.maximum(k, 1.0), n - k + 1.0, alpha)
    all_kept = alpha ** (1.0 / n)
    return np.where(k == 0, 0.0, np.where(k == n, all_kept, inside))


def largest_radius(theorem: Theorem, level: float, draws: int, alpha: float) -> float:
    """The largest radius that can be certified, if every draw keeps the class."""
    return theorem.radius(float(p_lower(draws, draws, alpha)), level)


def fewest_draws(alpha: float, p: float = 0.5) -> int | None:
    """The smallest n for which a bound above p is possible, alpha^(1/n) > p.

    None if p is 1 or more.
    """
    if p >= 1.0:
        return None
    n = max(1, math.ceil(math.log(alpha) / math.log(p)))
    # Where the quotient is a whole number, rounding decides whether the bound exceeds p.
    return n if alpha ** (1.0 / n) > p else n + 1


def last_alpha(alpha: float) -> float:
    """The share of alpha left for the last draw."""
    return (1.0 - EARLY) * alpha


def needed(theorem: Theorem, level: float, radius: float, draws: int, alpha: float) -> int | None:
    """The smallest count k of n draws that certifies a radius > 0; None if all n do not suffice."""
    if largest_radius(theorem, level, draws, alpha) < radius:
        return None
    # By bisection: the bound grows with k.
    few = 0
    enough = draws
    while enough - few > 1:
        middle = (few + enough) // 2
        certified = theorem.radius(float(p_lower(middle, draws, alpha)), level) >= radius
        if certified:
            enough = middle
        else:
            few = middle
    return enough


@dataclass(frozen=True)
class Question:
    """Decides whether the certified radius is at least r, at the latest after all n draws.

    The answer is *yes* before the last draw if a confidence sequence at level alpha / 10
    (:func:`robaudit.numerics.sequences.deciding_sequence`) lies above the probability p* that r
    requires. Otherwise it is given at the last draw, by Clopper-Pearson at 9/10 alpha; this *yes*
    may be certain earlier, because enough draws have kept the class. The answer is *no* if it is
    nearly certain that the last draw would say no.

    The reported lower bound is above p with probability at most alpha, for any n, r and times of
    analyses. The sequence is above p at *any* time with probability alpha / 10 at most (Ville), and
    the bound at the last draw with probability 9/10 alpha. The reported bound is one of these two,
    or the second with all missing draws counted as lost, which is smaller still. So the stopping
    time may depend on everything, and stopping for *no* in particular needs no proof.

    Stopping for *no* may lose a certificate, though. An image is given up once P[K >= k* - k] <=
    1e-4 for K ~ Binomial(n - t, U), where U is the upper end of the sequence and k* the count that
    the last draw requires. P[yes at the last draw | the first t draws] is a martingale, so an image
    that the last draw would have certified is given up with probability at most 1e-4, plus alpha /
    10 for a U that is too small.

    Args:
        theorem: the theorem for the noise.
        level: the noise level.
        radius: r > 0.
        draws: n.
        alpha: the error probability of the certificate.
    """

    theorem: Theorem
    level: float
    radius: float
    draws: int
    alpha: float
    needed: int = field(init=False)
    _p: float = field(init=False)

    def __post_init__(self) -> None:
        count = needed(self.theorem, self.level, self.radius, self.draws, self._last)
        if count is None:
            raise ValueError("no number of draws kept certifies this radius")
        # Fields of a frozen dataclass that follow from the others.
        object.__setattr__(self, "needed", count)
        object.__setattr__(self, "_p", self.theorem.probability(self.radius, self.level))

    @staticmethod
    def beyond(theorem: Theorem, level: float, radius: float, draws: int, alpha: float) -> str:
        """The reason if the answer can only be no, in a few words; else empty."""
        last = last_alpha(alpha)
        if needed(theorem, level, radius, draws, last) is not None:
            return ""
        most = largest_radius(theorem, level, draws, last)
        reason = f"{draws} copies certify {most:.4g} at most, and decide is {radius:g}"
        enough = fewest_draws(last, theorem.probability(radius, level))
        return reason if enough is None else f"{reason}, which takes {enough}"

    @property
    def _last(self) -> float:
        """The error probability of the bound at the last draw."""
        return last_alpha(self.alpha)

    def analyse(self, kept: Floats, draws: int) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Analyse some images after ``draws`` draws.

        Args:
            kept: number of draws that kept the class (n,).
            draws: number of draws so far.

        Returns:
            Whether each image stops (n,), its lower bound of p, and its certified radius (n,), at
            least r if that is certain.
        """
        lower, upper = deciding_sequence(kept, draws - kept, self._p, 1.0 - EARLY * self.alpha)
        # The bound at the last draw, if all draws to come are lost.
        least = p_lower(kept, self.draws, self._last)
        early = lower >= self._p
        certain = kept >= self.needed
        last = draws >= self.draws
        stop = early | certain | last | self._hopeless(kept, draws, upper)
        # Both bounds are above p with probability alpha in all, so the larger one may be reported.
        p = np.maximum(lower, least)
        radii = [self.theorem.radius(bound, self.level) for bound in p.tolist()]
        radius = np.array(radii)
        # p* is the probability that r requires: at it rounding must not give a smaller radius.
        at_least_r = np.where(p > self._p, np.maximum(radius, self.radius), self.radius)
        return stop, p, np.where(early, at_least_r, radius)

    def _hopeless(self, kept: Floats, draws: int, upper: Floats) -> NDArray[np.bool_]:
        """Whether the last draw would hardly say yes, even with p at the upper end (n,)."""
        from scipy.special import betainc

        left = self.draws - draws
        lacking = self.needed - kept
        if left <= 0:
            return np.ones(kept.shape, dtype=np.bool_)
        # P[Binomial(left, u) >= lacking] = BetaInc(lacking, left - lacking + 1; u).
        probability = betainc(
            np.maximum(lacking, 1.0),
            np.maximum(left - lacking + 1.0, 1.0),
            np.clip(upper, 0.0, 1.0),
        )
        impossible = lacking > left
        unlikely = (lacking > 0) & (probability <= _NO_HOPE)
        hopeless: NDArray[np.bool_] = impossible | unlikely
        return hopeless
