"""The delete-one-group jackknife on a transformed scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.rowwise import hypot, mean_over, variance_over

_EDGE = 1e-15  # probabilities stay this far from 0 and 1, where the scale is infinite


class Spread(NamedTuple):
    """Jackknife intervals (95 %) and standard errors, (n,) each."""

    lower: Tensor
    upper: Tensor
    std_error: Tensor

    def widened(self, error: Tensor) -> Spread:
        """Add a numerical error (n,), 3 standard errors, that leaving out groups does not show."""
        return Spread(
            (self.lower - error).clamp_min(0),
            (self.upper + error).clamp_max(1),
            hypot(self.std_error, error / 3),
        )


def logit(p: Tensor) -> Tensor:
    """log(p / (1 - p))."""
    return torch.log(p / (1 - p))


def logit_inverse(y: Tensor) -> Tensor:
    """1 / (1 + exp(-y)); not torch.sigmoid, whose last bits depend on the place in a batch."""
    return 1 / (1 + torch.exp(-y))


def jackknife(
    value: Tensor,
    left_out: Sequence[Tensor],
    scale: Callable[[Tensor], Tensor],
    inverse: Callable[[Tensor], Tensor],
) -> Spread:
    """Delete-one-group jackknife with Student's t on a transformed scale, widened by its own
    estimate of the bias.

    With g groups, y the transformed estimate and y_j the same without group j: se_y^2 = (g - 1)/g
    sum_j (y_j - mean y)^2, and (g - 1)(mean y - y) estimates the finite-sample bias, y minus its
    limit for infinitely many draws, up to order 1/n^2. The interval contains both Tukey's interval,
    with a bias-corrected centre, and the interval around the estimate itself:

        inverse([min(y, y') - t_{g-1} se_y, max(y, y') + t_{g-1} se_y]),
        y' = y - (g - 1)(mean y - y)

    std_error is the same formula on the plain scale. The groups count as equally large (they differ
    by at most one draw or pair).

    Args:
        value: estimates in [0, 1] (n,).
        left_out: the estimates without each of two or more groups (n,).
        scale, inverse: the transformation, such as torch.special.ndtri (probit) or :func:`logit`,
            and its inverse.

    Returns:
        95 % bounds that contain the value, and its standard error.

    Source: Quenouille, Biometrika 43 (1956) for the bias; Tukey, Annals of Mathematical Statistics
    29 (1958) for the interval.
    """
    from scipy.special import stdtrit

    groups = len(left_out)
    quantile = float(stdtrit(groups - 1, (1 + 0.95) / 2))
    p = torch.stack([p.clamp(_EDGE, 1 - _EDGE) for p in left_out])  # (groups, n)
    y = scale(p)
    # Tukey 1958: (g - 1) / g times a sum of squares, which is g - 1 times the sample variance
    factor = (groups - 1) / groups * (groups - 1)
    se_y = (factor * variance_over(y, 0)).sqrt()
    se_p = (factor * variance_over(p, 0)).sqrt()
    centre = scale(value.clamp(_EDGE, 1 - _EDGE))
    # Quenouille 1956
    corrected = centre - (groups - 1) * (mean_over(y, 0) - centre)
    lower = inverse(torch.minimum(centre, corrected) - quantile * se_y)
    upper = inverse(torch.maximum(centre, corrected) + quantile * se_y)
    # Clamped values may leave the interval by rounding: it must contain them.
    return Spread(torch.minimum(lower, value), torch.maximum(upper, value), se_p)
