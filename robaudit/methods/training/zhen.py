"""`zhen`: the certified radius of randomized smoothing in closed form, as an objective."""

from __future__ import annotations

from torch import Tensor

from robaudit.methods.training.margin_moments import (
    LogitMoments,
    SmoothedObjective,
    TargetRadius,
    ranked_others,
    value_at_label,
)


class Zhen(SmoothedObjective):
    """max(0, d - sigma (mu_y - mu_1) / sqrt(s_y^2 + s_1^2)); the mean over the batch.

    mu and s^2 are the means and variances of the logits under Gaussian noise; class 1 has the
    largest mean besides the label's.
    """

    summary = (
        "certified radius of the majority vote under Gaussian noise, in closed form "
        "(Zhen): radii below d count"
    )
    source = "Zhen et al. 2021; Smoothed robustness analysis, equation 15"

    d: TargetRadius = 1.0

    def from_moments(self, logits: LogitMoments, labels: Tensor) -> Tensor:
        """The mean shortfall."""
        largest, other = ranked_others(logits.mean, labels, 1)  # (n, 1) each
        other_variance = logits.variance.gather(1, other)[:, 0]
        spread = (value_at_label(logits.variance, labels) + other_variance).sqrt()
        margin = value_at_label(logits.mean, labels) - largest[:, 0]
        radius = self.sigma * margin / spread  # equation 15
        return (self.d - radius).relu().mean()
