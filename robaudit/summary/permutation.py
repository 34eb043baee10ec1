"""How far apart would class means lie if the class said nothing about the value?

The null: the class labels are dealt out to the images at random, class sizes kept. It asks nothing of the values'
distribution, which is bounded and piled up at one end, so that Welch's t with a few images a class is far off its level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCK = 1 << 20  # values shuffled at a time: 8 MiB


@dataclass(frozen=True, slots=True)
class Null:
    """What chance alone does.

    Attributes:
        p_values: (classes,), two-sided, class against the rest.
        gap_p_value: P[largest minus smallest class mean >= the one seen].
        gap_mean, gap_q95: mean and 95 % quantile of that gap under the null.
    """

    p_values: Floats
    gap_p_value: float
    gap_mean: float
    gap_q95: float


def permutation_null(values: Floats, sizes: NDArray[np.int64], permutations: int, seed: int) -> Null:
    """Shuffle the values over the classes many times and compare.

    p-values are (1 + #{as extreme}) / (1 + permutations), which is exact in level. That cannot go below 1/(1 + permutations),
    too coarse for Holm over hundreds of classes, so where fewer than 10 shuffles are as extreme, the tail of the Pearson III
    curve through the exact first three moments of the null takes over, kept within the Clopper-Pearson interval of the count.

    Args:
        values: (images,), sorted by class: the first ``sizes[0]`` belong to the first class, and so on.
        sizes: (classes,), each >= 1, two classes or more.
        permutations: how many shuffles.
        seed: of the shuffles; the result is a function of the arguments alone.

    Source: Phipson and Smyth, "Permutation p-values should never be zero" (2010); Mielke and Berry on Pearson III.
    """
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    centred = values - values.mean()
    slack = 1e-10 * (float(np.abs(centred).max()) or 1.0)  # sums of the same values in another order differ in the last digits
    observed = np.add.reduceat(centred, starts) / sizes
    gap = float(np.ptp(observed))
    generator = np.random.default_rng(seed)
    pool = np.tile(centred, (max(1, min(permutations, BLOCK // centred.size)), 1))  # (block, images)
    extreme = np.zeros(sizes.size, dtype=np.int64)
    gaps = np.empty(permutations)
    for begin in range(0, permutations, len(pool)):
        block = pool[: permutations - begin]
        generator.permuted(block, axis=1, out=block)
        means = np.add.reduceat(block, starts, axis=1) / sizes  # (block, classes)
        extreme += np.count_nonzero(np.abs(means) >= np.abs(observed) - slack, axis=0)
        gaps[begin : begin + len(block)] = np.ptp(means, axis=1)
    return Null(
        p_values=_p_values(extreme, permutations, observed, centred, sizes),
        gap_p_value=(1 + int(np.count_nonzero(gaps >= gap - slack))) / (1 + permutations),
        gap_mean=float(gaps.mean()),
        gap_q95=float(np.quantile(gaps, 0.95)),
    )


def holm(p_values: Floats) -> Floats:
    """Holm's step-down adjusted p-values: reject all that are <= alpha, and the chance of any false rejection is <= alpha.

    p_(i) sorted: adjusted_(i) = min(1, max_{j <= i} (K - j + 1) p_(j)). Valid under any dependence.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _p_values(extreme: NDArray[np.int64], permutations: int, observed: Floats, centred: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Monte-Carlo p-values, with the moment tail where the count is too small to resolve them."""
    from scipy.special import betaincinv

    counted = (1.0 + extreme) / (1.0 + permutations)
    floor = np.where(extreme == 0, 0.0, betaincinv(np.maximum(extreme, 1.0), permutations - extreme + 1.0, 0.025))
    tail = np.array([_moment_tail(abs(t), centred, int(n)) for t, n in zip(observed, sizes, strict=True)])
    return np.where(extreme < 10, np.clip(tail, floor, counted), counted)


def _moment_tail(t: float, centred: Floats, n: int) -> float:
    """P[|mean of n of the values drawn without replacement| >= t] by Pearson III on its exact mean, variance and skewness."""
    from scipy.special import gammainc, gammaincc, ndtr

    N = centred.size
    m2, m3 = float(np.mean(centred**2)), float(np.mean(centred**3))
    variance = m2 / n * (N - n) / (N - 1)
    if variance <= 0.0 or N < 3:
        return 1.0
    skew = m3 * (N - n) * (N - 2 * n) / (n**2 * (N - 1) * (N - 2)) / variance**1.5
    z = t / variance**0.5
    if abs(skew) < 1e-4:
        return float(2.0 * ndtr(-z))
    shape = 4.0 / skew**2  # z = (G - shape) / sqrt(shape) * sign(skew), G ~ Gamma(shape)
    right = float(gammaincc(shape, shape + z * shape**0.5))
    return right + float(gammainc(shape, max(0.0, shape - z * shape**0.5)))
