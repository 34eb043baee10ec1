"""`mcr`: the certified radius of the margin, as an objective."""

from __future__ import annotations

from torch import Tensor

from robaudit.methods.training.margin_moments import SQRT2, NetworkConstant, TargetRadius
from robaudit.methods.training.training_objective import Batch, Objective
from robaudit.numerics.margins import margins


class Mcr(Objective):
    """max(0, d - m / (sqrt(2) K)), m = z_y - max over i != y of z_i; the mean over the batch.

    m / (sqrt(2) K) is a radius in l2 within which no perturbation changes the class, if the network
    is K-Lipschitz.
    """

    summary = "margin certified radius (MCR): radii below d count"
    source = "Smoothed robustness analysis, equation 10"

    d: TargetRadius = 1.0
    lipschitz: NetworkConstant = 1.0

    def loss(self, batch: Batch) -> Tensor:
        """The mean shortfall."""
        margin = margins(batch.logits(), batch.labels).amin(1)
        radius = margin / (SQRT2 * self.lipschitz)  # equation 10
        return (self.d - radius).relu().mean()
