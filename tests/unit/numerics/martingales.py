"""The martingale behind the confidence sequences, by its definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from robaudit.numerics.sequences import Floats, deciding_marginals


def deciding_log_martingale(
    successes: ArrayLike, failures: ArrayLike, p: float, threshold: float
) -> Floats:
    """log M_t(p) of a deciding sequence."""
    s = np.asarray(successes, dtype=np.float64)
    f = np.asarray(failures, dtype=np.float64)
    below, above = deciding_marginals(s, f, threshold)
    found: Floats = (below if p < threshold else above) - xlogy(s, p) - xlog1py(f, -p)
    return found
