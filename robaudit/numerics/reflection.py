"""The effect of odd-order non-normality on the probability that margins are positive, from reflected antithetic pairs."""

from __future__ import annotations

from torch import Tensor, where

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import mean_over, variance_over

SOFTNESS = 0.25


def reflection_shift(even: Tensor, odd: Tensor, softness: float = SOFTNESS) -> Tensor:
    """P[g > 0] less the same for margins of opposite skewness, halved: what the normal fit of skewed margins misses.

    A pair is g = m + e +- o: the mean, the centred even part and the odd part. Reflected, m - e +- o, it has the same mean and
    covariance, while every cumulant of odd order changes sign: those of three margins are E[e_i e_j e_k] and the three
    E[e_i o_j o_k], the latter the skewness that networks have. So the normal fit lies in the middle of the two to second order
    in them, and

        D = E[v(m + e + o) + v(m + e - o) - v(m - e + o) - v(m - e - o)] / 4

    is how far P[g > 0] lies from it. This sees skewness of the *joint* distribution, which that of single margins hides. Cumulants
    of even order cancel, up to a bias of order 1 / pairs; D is 0 on average for normal margins, and exactly 0 for linear ones (e = 0).
    A vote v is soft, Phi(T / softness) of the smallest standardised margin T = min_i g_i / s_i. On networks that lowers the variance
    (what is linear in e has mean 0), and D itself by a factor of about (1 + softness^2)^(-3/2).

    Args:
        even, odd: (batch, pairs, k), at least 2 pairs.
        softness: in standard deviations of a margin, positive.

    Returns:
        D (batch,), in [-1/2, 1/2].

    Source: robaudit; for one margin, to third order, it is Edgeworth's skewness / 6 (z^2 - 1) phi(z).
    """
    mean = mean_over(even, 1)[:, None]
    scale = (variance_over(even, 1) + mean_over(odd.square(), 1)).sqrt()[:, None]
    scale = where(scale > 0, scale, 1.0)
    reflected = 2 * mean - even

    def votes(pair: Tensor) -> Tensor:
        """Both members of every pair together: (batch, pairs)."""
        plus, minus = ((part / scale).amin(2) for part in (pair + odd, pair - odd))
        return normal_cdf(plus / softness) + normal_cdf(minus / softness)

    return mean_over(votes(even) - votes(reflected), 1) / 4
