"""`augmentation`: cross-entropy on noisy copies."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from robaudit.training.base import Batch, NoisyObjective


class Augmentation(NoisyObjective):
    """The cross-entropy of one fresh noisy copy of each image.

    Args:
        noise: its kind and level; Gaussian noise is ``{sigma: 0.25}``.
    """

    summary: ClassVar[str] = "cross-entropy on a fresh noisy copy of each image"
    source: ClassVar[str] = "Cohen et al. 2019, section 3.3 (Gaussian)"

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy of the copies."""
        return batch.cross_entropy(self.noisy(batch.images, self.normals(batch.images)))
