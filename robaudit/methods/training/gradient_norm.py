"""`gradient_norm`: cross-entropy with a penalty on its gradient with respect to the pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from robaudit.methods.training.training_objective import Batch, Objective


class GradientNorm(Objective):
    """l + weight |grad_x l|^2, l the cross-entropy of an image and x its pixels; the mean over the
    batch.

    Han et al. give the weights (0, 0.0001, 0.001, 0.01), but not the formula; this is Drucker and
    LeCun's.
    """

    summary = "cross-entropy and its squared gradient with respect to the pixels"
    source = "Drucker and LeCun 1992; Han et al., appendix A.3, for the weights"

    weight: float = Field(
        0.01, ge=0, allow_inf_nan=False, description="lambda, the weight of the squared gradient"
    )

    def loss(self, batch: Batch) -> Tensor:
        """The mean of both terms."""
        images = batch.images.detach().requires_grad_(True)
        losses = F.cross_entropy(batch.logits(images), batch.labels, reduction="none")
        # The gradient of the sum is the gradient of each image's own loss. It stays in the graph,
        # so that the penalty itself has a gradient with respect to the weights.
        (gradient,) = torch.autograd.grad(losses.sum(), images, create_graph=True)
        penalty = gradient.square().sum() / len(images)
        return losses.mean() + self.weight * penalty
