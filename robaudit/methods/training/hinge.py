"""`hinge`: the multi-class hinge loss."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from robaudit.methods.training.training_objective import Batch, Objective
from robaudit.numerics.margins import margins


class Hinge(Objective):
    """sum over i != y of max(0, d - (z_y - z_i)); the mean over the batch."""

    summary = "multi-class hinge loss: every margin below d counts"
    source = "Weston and Watkins 1999; Smoothed robustness analysis, section 3.5"

    d: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="the margin that counts as large enough"
    )

    def loss(self, batch: Batch) -> Tensor:
        """The mean of the sums."""
        shortfalls = (self.d - margins(batch.logits(), batch.labels)).relu()  # (n, classes - 1)
        return shortfalls.sum(1).mean()
