"""Noise that is uniform in a box, value by value, or in a ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable

from robaudit.levels import LevelName
from robaudit.noise.base import AdditiveNoise, Ball, Shape
from robaudit.numerics.grams import diagonal_gram
from robaudit.numerics.rowwise import total

_SHORTEST = 1e-6  # no draw is as short; z = 0 is the image itself


class Uniform(AdditiveNoise):
    """x + e, with e uniform in the box [-eps, eps]^d, or in the ball of radius eps of the Euclidean norm, d = C H W.

    The level is eps, so the support is that of the usual adversarial perturbations, and the probability is the share of their volume
    that keeps the class. In the box, e = eps (2 Phi(z) - 1) = eps erf(z / sqrt 2), value by value. In the ball, e = eps times the first d
    coordinates of z / |z| for d + 2 normal variables: a point on the sphere in d + 2 dimensions without two of its coordinates is
    uniform in the ball. Both maps are smooth. Variances: eps^2 / 3 and eps^2 / (d + 2).

    Source: Barthe et al. (2005), Ann. Probab. 33, corollary 4, for the ball.
    """

    level_name: ClassVar[LevelName] = LevelName.EPS
    least: ClassVar[float] = 1e-6
    most: ClassVar[float] = 1e3
    differentiable: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    normal: ClassVar[bool] = False
    summary: ClassVar[str] = "x + e, e uniform in [-eps, eps] on every value, or in the l2 ball of radius eps"
    prefer: ClassVar[str] = "quantisation, or the share of an adversary's ball that keeps the class"
    source: ClassVar[str] = "Barthe et al. 2005, corollary 4 (ball)"

    norm: Literal["linf", "l2"] = Field("linf", description="linf: every value in [-eps, eps]; l2: uniform in the ball of radius eps")

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """That of the image, or d + 2 variables for the ball."""
        return shape if self.norm == "linf" else (math.prod(shape) + 2,)

    def ball(self, level: float) -> Ball:
        """Its support."""
        return Ball(self.norm, level)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str], out: Tensor | None = None) -> Tensor:
        """x + eps erf(z / sqrt 2), or x + eps (z_1 ... z_d) / |z|."""
        if self.norm == "linf":
            if z.requires_grad and torch.is_grad_enabled():
                offset: Tensor = _Box.apply(z, level)
                return offset.add_(x)
            return torch.mul(z, math.sqrt(0.5), out=out).erf_().mul_(level).add_(x)
        length = total(z.double().square()).sqrt().clamp_min(_SHORTEST).unsqueeze(1)  # in this order, whatever the number of rows
        inside: Tensor = (z[:, :-2] * (level / length).to(z.dtype)).unflatten(1, x.shape[1:])
        return inside + x

    def derivative(self, z: Tensor, level: float) -> Tensor | None:
        """2 eps phi(z) in the box."""
        return _density(z, level) if self.norm == "linf" else None

    def amplitude(self, level: float, shape: Shape) -> float:
        """The standard deviation of a value: eps / sqrt(3), or eps / sqrt(d + 2)."""
        return level / math.sqrt(3.0 if self.norm == "linf" else math.prod(shape) + 2.0)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """U U^T."""
        return diagonal_gram(gradients)


class _Box(torch.autograd.Function):
    """eps erf(z / sqrt 2) with a backward pass of three operations in place of the recorded one's nine."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, level: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.level = level
        return torch.mul(z, math.sqrt(0.5)).erf_().mul_(level)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return _density(z, ctx.level).mul_(gradient), None


def _density(z: Tensor, level: float) -> Tensor:
    """2 eps phi(z)."""
    return torch.addcmul(z.new_tensor(math.log(level * math.sqrt(2 / math.pi))), z, z, value=-0.5).exp_()
