"""`augmentation`: cross-entropy on noisy copies."""

from __future__ import annotations

from torch import Tensor

from robaudit.methods.training.training_objective import Batch, NoisyObjective


class Augmentation(NoisyObjective):
    """The cross-entropy of one fresh noisy copy of each image."""

    summary = "cross-entropy on a fresh noisy copy of each image"
    source = "Cohen et al. 2019, section 3.3 (Gaussian)"

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy of the copies."""
        return batch.cross_entropy(self.noisy(batch.images, self.normals(batch.images)))
