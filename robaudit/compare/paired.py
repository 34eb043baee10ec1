"""How sure are we of the difference of two proportions that were counted on the same draws, or on others?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.numerics.intervals import clopper_pearson

Floats = NDArray[np.float64]


class Ends(NamedTuple):
    """The ends of an interval, and how it was made."""

    lower: float
    upper: float
    method: str


def paired_difference(lost: ArrayLike, won: ArrayLike, draws: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The interval of p_new - p_base from n draws that both were tried on, of which ``lost`` held before only and ``won`` now only.

    With a = lost/n, b = won/n, their Clopper-Pearson intervals [l_a, u_a] and [l_b, u_b], and d = b - a:

        lower = d - sqrt((b - l_b)^2 + (u_a - a)^2 + 2 r (b - l_b)(u_a - a)),
        upper = d + sqrt((u_b - b)^2 + (a - l_a)^2 + 2 r (u_b - b)(a - l_a)),

    r = sqrt(a' b' / ((1 - a')(1 - b'))) the correlation of a multinomial's cells, with a' = (lost + 1/2)/(n + 1) and b' alike: the
    "method of variance estimates recovery" (MOVER) on exact limits. Without a single discordant draw it is +- log(2/alpha)/n, never
    zero wide. Where all draws are discordant it is the exact binomial interval.

    Coverage, computed by enumeration (``tests/compare/test_paired.py``): at least nominal wherever looked, .9543 at the least of a
    nominal .95, for n from 1 to infinity (Poisson) and any share of discordant draws. Draws of images with other probabilities may
    be pooled: their counts vary less than those of n equal draws.

    Args:
        lost, won, draws: counts, broadcast against each other; lost + won <= draws, draws >= 1.
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64, within [-1, 1].

    Source: Zou and Donner, Statistics in Medicine 27 (2008); the limits: Clopper and Pearson 1934.
    """
    k, m, n = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (lost, won, draws)))
    if not (np.all(k >= 0) and np.all(m >= 0) and np.all(k + m <= n) and np.all(n >= 1)):
        raise ValueError("paired_difference: needs 0 <= lost + won <= draws and a draw")
    (low_a, high_a), (low_b, high_b) = clopper_pearson(k, n, confidence), clopper_pearson(m, n, confidence)
    a, b = k / n, m / n
    near_a, near_b = (k + 0.5) / (n + 1), (m + 0.5) / (n + 1)
    r = np.sqrt(np.minimum(1.0, near_a * near_b / ((1 - near_a) * (1 - near_b))))
    below, above = _norm(b - low_b, high_a - a, r), _norm(high_b - b, a - low_a, r)
    return np.maximum(-1.0, b - a - below), np.minimum(1.0, b - a + above)


def unpaired_difference(base: tuple[float, Ends], new: tuple[float, Ends], *, same_noise: bool) -> Ends:
    """The interval of new - base from that of each.

    Independent measurements: distances add in quadrature (MOVER). Of the same noise the errors may go together or against each
    other, which makes the difference's up to the sum of both: distances add, as do those of ends that only bound.

    Args:
        base, new: value and interval.
        same_noise: whether both saw the same noise, so that their errors may be correlated.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    (b, of_b), (n, of_n) = base, new
    below, above = (n - of_n.lower, of_b.upper - b), (of_n.upper - n, b - of_b.lower)
    if "mean of intervals" in (of_b.method, of_n.method):
        return Ends(n - b - sum(below), n - b + sum(above), "unpaired: mean of intervals")
    if same_noise:
        return Ends(n - b - sum(below), n - b + sum(above), f"unpaired, distances added: {of_n.method}")
    return Ends(n - b - float(np.hypot(*below)), n - b + float(np.hypot(*above)), f"unpaired: {of_n.method}")


def _norm(x: Floats, y: Floats, r: Floats) -> Floats:
    found: Floats = np.sqrt(x * x + y * y + 2 * r * x * y)
    return found
