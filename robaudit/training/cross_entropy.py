"""`cross_entropy`: ordinary training."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from robaudit.training.base import Batch, Objective


class CrossEntropy(Objective):
    """-log softmax(z)_y, the mean over the batch."""

    summary: ClassVar[str] = "cross-entropy on the clean images"
    source: ClassVar[str] = "standard"

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy."""
        return batch.cross_entropy()
