"""The normal distribution function is accurate far into the lower tail."""

from __future__ import annotations

import numpy as np
import torch
from scipy import special

from robaudit.numerics.normal import normal_cdf


def test_distribution_function_keeps_its_relative_accuracy() -> None:
    x = np.linspace(-37.0, 8.0, 10_001)
    logarithm = normal_cdf(torch.from_numpy(x)).log().numpy()
    assert np.abs(logarithm - special.log_ndtr(x)).max() <= 1e-12
