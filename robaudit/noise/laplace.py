"""Independent Laplace noise: heavier tails than normal noise of the same variance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from robaudit.noise.noise import SigmaNoise
from robaudit.numerics.rowwise import diagonal_gram

_SQRT_HALF = math.sqrt(0.5)


class Laplace(SigmaNoise):
    """x + e, with independent e of density exp(-sqrt 2 |e| / sigma) / (sqrt 2 sigma).

    The level is the standard deviation; the scale of the density is b = sigma / sqrt 2. A standard
    normal z becomes the value of the same probability, e = -sign(z) b log(2 Phi(-|z|)) = -sign(z) b
    log erfc(t) with t = |z| / sqrt 2. Computed as log1p(-erf t) up to t = 1 and as log erfcx(t) -
    t^2 beyond, it is accurate around 0 and has no limit in the tails.

    Source: density and quantile: Johnson, Kotz and Balakrishnan (1995), Continuous Univariate
        Distributions 2, chapter 24.
    """

    summary = "x + e, e Laplace of standard deviation sigma on every value"
    prefer = "occasional large errors; privacy mechanisms"
    source = "Johnson, Kotz and Balakrishnan 1995, chapter 24"

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x - sign(z) sigma / sqrt 2 log erfc(|z| / sqrt 2)."""
        size = torch.full_like(z, level * _SQRT_HALF)
        # log erfc is negative, so the product has the sign of z.
        return _log_erfc(z.abs() * _SQRT_HALF) * torch.copysign(size, -z) + x

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """U U^T."""
        return diagonal_gram(gradients)


def _log_erfc(t: Tensor) -> Tensor:
    """log erfc(t) for t >= 0. Each branch is clamped where it overflows: gradients pass through
    both."""
    near = t.clamp_max(1.0)
    far = t.clamp_min(1.0)
    # log(1 - erf t) is exact for small t. Beyond, erfc(t) = exp(-t^2) erfcx(t) does not underflow.
    near_value = torch.log1p(-torch.erf(near))
    far_value = torch.special.erfcx(far).log() - far * far
    return torch.where(t < 1.0, near_value, far_value)
