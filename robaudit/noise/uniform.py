"""Noise that is uniform in a box, value by value, or in a ball or on its surface."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from robaudit.errors import SpecError
from robaudit.levels import LevelName
from robaudit.noise.noise import AdditiveNoise, Shape
from robaudit.numerics.attack import Ball
from robaudit.numerics.rowwise import diagonal_gram, total

# Shorter than any draw. A search may come to z = 0, which is the image itself.
_SHORTEST = 1e-6


class Uniform(AdditiveNoise):
    """x + e, with e uniform in the box [-eps, eps]^d, or in the ball of radius eps of the Euclidean
    norm or on its sphere, d = C H W.

    The level is eps, so the support is the set of the usual adversarial perturbations, and the
    probability is the share of its volume that keeps the class. In the box, e = eps (2 Phi(z) - 1)
    = eps erf(z / sqrt 2), value by value. In the ball, e = eps times the first d coordinates of z /
    |z| for d + 2 normal variables: a point on the sphere in d + 2 dimensions without two of its
    coordinates is uniform in the ball. On the sphere, e = eps z / |z| for d normal variables: every
    draw has the same norm. These maps are smooth. Variances of a value: eps^2 / 3, eps^2 / (d + 2)
    and eps^2 / d.

    Source: Barthe et al. (2005), Ann. Probab. 33, corollary 4, for the ball; Muller (1959), Commun.
        ACM 2, for the sphere.
    """

    level_name = LevelName.EPS
    least = 1e-6
    most = 1e3
    differentiable = bounded = True
    summary = (
        "x + e, e uniform in [-eps, eps] on every value, or in the l2 ball of radius eps "
        "or on its sphere"
    )
    prefer = (
        "quantisation, the share of an adversary's ball that keeps the class, or noise of a "
        "given norm"
    )
    source = "Barthe et al. 2005, corollary 4 (ball); Muller 1959 (sphere)"

    norm: Literal["linf", "l2"] = Field(
        "linf",
        description="linf: every value in [-eps, eps]; l2: uniform in the ball of radius eps",
    )
    support: Literal["ball", "sphere"] = Field(
        "ball", description="sphere: only the surface of the l2 ball: every draw has the norm eps"
    )

    @model_validator(mode="after")
    def _sphere_of_a_norm(self) -> Uniform:
        if self.support == "sphere" and self.norm != "l2":
            raise ValueError("support: sphere needs norm: l2")
        return self

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Refuse noise of a given norm that clipping would shorten in every direction.

        Raises:
            SpecError: a level is above the diagonal of the pixel range, sqrt(d), and the pixels are
                clipped.
        """
        if not (self.support == "sphere" and self.clip):
            return
        longest = math.sqrt(math.prod(shape))
        for level in levels:
            if level > longest:
                what = (
                    f"{level:g} is longer than any difference of two images in [0, 1], "
                    f"{longest:.4g}, so no clipped copy has this norm"
                )
                raise SpecError("eps", what, "give smaller levels, or leave clip out")

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape of the image, or d + 2 variables for the ball."""
        if self.norm == "linf" or self.support == "sphere":
            return shape
        return (math.prod(shape) + 2,)

    @property
    def uniform_variables(self) -> bool:
        """Whether the support is the box."""
        return self.norm == "linf"

    def ball(self, level: float) -> Ball | None:
        """The ball of radius eps about the image; None for the sphere."""
        return None if self.support == "sphere" else Ball(self.norm, level)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x + eps erf(z / sqrt 2), or x + eps (z_1 ... z_d) / |z|, with two more variables in |z|
        for the ball."""
        if self.norm == "linf":
            return torch.mul(z, math.sqrt(0.5)).erf_().mul_(level).add_(x)
        # The squares are summed in one order for any number of rows.
        squares = z.flatten(1).double().square()
        length = total(squares).sqrt().clamp_min(_SHORTEST)
        factor = (level / length).to(z.dtype)
        if self.support == "sphere":
            return z * factor[:, None, None, None] + x
        # Without its last two coordinates, a point of the sphere is uniform in the ball.
        inside: Tensor = (z[:, :-2] * factor.unsqueeze(1)).unflatten(1, x.shape[1:])
        return inside + x

    @property
    def by_row(self) -> bool:
        """Whether the support is the box."""
        return self.norm == "linf"

    def noisy_rows(self, x: Tensor, z: Tensor, levels: Tensor) -> Tensor:
        """x + eps erf(z / sqrt 2)."""
        return torch.mul(z, math.sqrt(0.5)).erf_().mul_(levels).add_(x)

    def amplitude(self, level: float, shape: Shape) -> float:
        """The standard deviation of a value: eps / sqrt(3), eps / sqrt(d + 2), or eps / sqrt(d) on
        the sphere."""
        pixels = math.prod(shape)
        if self.norm == "linf":
            return level / math.sqrt(3.0)
        if self.support == "sphere":
            return level / math.sqrt(pixels)
        return level / math.sqrt(pixels + 2.0)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """U U^T."""
        return diagonal_gram(gradients)
