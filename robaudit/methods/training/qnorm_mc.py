"""`qnorm_mc`: the q-norm of the loss under noise, from noisy copies."""

from __future__ import annotations

import math

from pydantic import Field
from torch import Tensor

from robaudit.methods.training.training_objective import Batch, NoisyObjective
from robaudit.spec.fields import SAMPLES_ARE_DRAWS


class QNormMc(NoisyObjective):
    """Z_q = (mean over m copies of l^q)^(1/q) of each image, computed as logsumexp(q log l); the
    mean over the batch.

    q = 1 is the mean loss under noise, q -> infinity the largest of the m copies.
    """

    summary = "q-norm of the loss under noise, from noisy copies"
    source = "Rice et al., equation 6 and section 4.3"

    q: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="the order of the norm")
    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(50, ge=1, le=10**5, description="noisy copies of each image")

    def loss(self, batch: Batch) -> Tensor:
        """The mean of Z_q over the images."""
        image = batch.rows(self.draws)
        images = batch.images[image]
        copies = self.noisy(images, self.normals(images))
        log_loss = batch.log_loss(copies, image).view(-1, self.draws)  # (images, draws)
        # equation 6: log Z = (log sum_i l_i^q - log m) / q
        log_sum = (self.q * log_loss).logsumexp(1)
        log_norm = log_sum.sub(math.log(self.draws)) / self.q
        return log_norm.exp().mean()
