"""`mscr`: the certified radius of the smoothed margin, as an objective."""

from __future__ import annotations

from torch import Tensor

from robaudit.methods.training.margin_moments import (
    SQRT2,
    LogitMoments,
    NetworkConstant,
    SmoothedObjective,
    TargetRadius,
    ranked_others,
    value_at_label,
)
from robaudit.numerics.normal_moments import mean_of_larger


class Mscr(SmoothedObjective):
    """max(0, d + SM / (sqrt(2) K)), SM = E[max over i != y of z_i - z_y] under Gaussian noise; the
    mean over the batch.

    The mean of the largest is Clark's for the two logits with the largest means, independent and
    normal; the 2 pi in the paper's equation 12 has to be a 2.
    """

    summary = "margin smoothed certified radius (MSCR): radii below d count"
    source = "Smoothed robustness analysis, equations 6, 9 and 12 (corrected)"

    d: TargetRadius = 1.0
    lipschitz: NetworkConstant = 1.0

    def from_moments(self, logits: LogitMoments, labels: Tensor) -> Tensor:
        """The mean shortfall."""
        others = logits.mean.shape[1] - 1
        means, classes = ranked_others(logits.mean, labels, min(2, others))
        if others >= 2:
            # equation 12, corrected: T^2 = s_1^2 + s_2^2 for independent logits
            spread = logits.variance.gather(1, classes).sum(1).sqrt()
            largest = mean_of_larger(means[:, 0], means[:, 1], spread)
        else:
            largest = means[:, 0]
        # SM of equation 6, negative where the label wins
        negative_margin = largest - value_at_label(logits.mean, labels)
        return (self.d + negative_margin / (SQRT2 * self.lipschitz)).relu().mean()
