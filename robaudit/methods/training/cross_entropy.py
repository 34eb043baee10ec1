"""`cross_entropy`: ordinary training."""

from __future__ import annotations

from torch import Tensor

from robaudit.methods.training.training_objective import Batch, Objective


class CrossEntropy(Objective):
    """-log softmax(z)_y, the mean over the batch."""

    summary = "cross-entropy on the clean images"
    source = "standard"

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy."""
        return batch.cross_entropy()
