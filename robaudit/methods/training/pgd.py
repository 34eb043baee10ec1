"""`pgd`: adversarial training."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from robaudit.methods.training.training_objective import Batch, Objective
from robaudit.noise.noise import shape_of
from robaudit.noise.uniform import Uniform
from robaudit.numerics.attack import Ball, ascend


class Pgd(Objective):
    """The cross-entropy at the worst point that projected gradient ascent finds in a ball about
    each image.

    The attack of `adversarial_loss`, from a single start drawn uniformly in the ball.
    """

    summary = "cross-entropy at the worst point of a ball about each image that an attack finds"
    source = "Madry et al. 2018"

    eps: float = Field(
        gt=0, le=1e3, allow_inf_nan=False, description="radius of the ball, in pixel units ([0, 1])"
    )
    norm: Literal["linf", "l2"] = "linf"
    steps: int = Field(10, ge=1, le=10**4, description="gradient steps")
    clip: bool = Field(True, description="keep the pixels in [0, 1]")

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy at the points of the attack."""
        x = batch.images
        noise = Uniform(norm=self.norm)
        latent_shape = noise.latent_shape(shape_of(x))
        z = torch.randn((len(x), *latent_shape), dtype=x.dtype, device=x.device)
        # One start at random in the ball, as in Madry et al.
        start = noise.noisy(x, z, self.eps, ids=[""] * len(x))
        ball = Ball(self.norm, self.eps, self.clip)

        def slopes(image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
            """log l and its gradient with respect to the pixels."""
            points = pixels.detach().requires_grad_(True)
            log_loss = batch.log_loss(points, image)
            (slope,) = torch.autograd.grad(log_loss.sum(), points)
            return log_loss.detach(), slope

        with batch.searching():
            attack = ascend(slopes, x, start[:, None], ball, self.steps)
        # The points are constants: the weights are trained at them, not through the attack.
        return batch.cross_entropy(attack.points)
