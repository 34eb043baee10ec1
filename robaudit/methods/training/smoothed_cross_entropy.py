"""`smoothed_cross_entropy`: the cross-entropy of the mean logits under noise (SC-SCE)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from robaudit.methods.training.margin_moments import LogitMoments, SmoothedObjective


class SmoothedCrossEntropy(SmoothedObjective):
    """-log softmax(mu)_y, mu the means of the logits under Gaussian noise."""

    summary = "cross-entropy of the mean logits under Gaussian noise (SC-SCE)"
    source = "Smoothed robustness analysis, section 3.5"

    def from_moments(self, logits: LogitMoments, labels: Tensor) -> Tensor:
        """The mean cross-entropy of the mean logits; their variances do not enter."""
        # -log softmax(mu)_y: section 3.5 (SC-SCE)
        return F.cross_entropy(logits.mean, labels)
