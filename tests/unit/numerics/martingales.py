"""The martingales behind the confidence sequences, by their definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from robaudit.numerics.sequences import JEFFREYS, Floats, Prior, deciding_marginals, log_marginal


def log_martingale(
    successes: ArrayLike, failures: ArrayLike, p: ArrayLike, prior: Prior = JEFFREYS
) -> Floats:
    """log M_t(p) of a confidence sequence; inf where p = 0 or 1 is impossible."""
    found: Floats = (
        log_marginal(successes, failures, prior)
        - xlogy(successes, p)
        - xlog1py(failures, np.negative(p))
    )
    return found


def deciding_log_martingale(
    successes: ArrayLike, failures: ArrayLike, p: float, threshold: float
) -> Floats:
    """log M_t(p) of a deciding sequence."""
    s = np.asarray(successes, dtype=np.float64)
    f = np.asarray(failures, dtype=np.float64)
    below, above = deciding_marginals(s, f, threshold)
    found: Floats = (below if p < threshold else above) - xlogy(s, p) - xlog1py(f, -p)
    return found
