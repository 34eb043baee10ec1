"""Rank correlation of two results on the same images."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's rank correlation: Pearson's correlation of the ranks, equal values sharing their
    mean rank.

    Pairs with a value that is not finite are left out.

    Args:
        a, b: values of the same images, in the same order (images,).

    Returns:
        In [-1, 1]; None with fewer than two pairs, or where either side is constant.

    Source: Spearman, American Journal of Psychology 15 (1904) 72.
    """
    # scipy.stats has the same function, but takes two seconds to import.
    x = np.asarray(a, dtype=np.float64)
    y = np.asarray(b, dtype=np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 2:
        return None
    u = _centred_ranks(x[both])
    v = _centred_ranks(y[both])
    norm = math.sqrt(float(u @ u) * float(v @ v))
    if not norm:
        return None  # equal values have no ranking
    # Pearson's formula for the ranks; rounding may put it just beyond 1.
    return max(-1.0, min(1.0, float(u @ v) / norm))


def _centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks minus their mean (images,)."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    # Counted from 0, c equal values that end before place e have the ranks e - c to e - 1, and the
    # mean rank e - (c + 1) / 2. All ranks together have the mean (n - 1) / 2.
    middle = np.cumsum(counts) - (counts + 1) / 2
    ranks: NDArray[np.float64] = middle[place] - (len(values) - 1) / 2
    return ranks
