"""Isotropic Gaussian noise, x + sigma z with z ~ N(0, I)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robaudit.noise.noise import SigmaNoise
from robaudit.numerics.rowwise import gram


class Gaussian(SigmaNoise):
    """x + sigma z: independent normal noise of one standard deviation on every value.

    Source: Han et al., Average-case robustness, section 3.
    """

    summary = "x + sigma z, independent on every value"
    prefer = "amplifier and thermal noise; the reference of the literature"
    source = "Han et al., section 3"
    scales_only = True

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x + sigma z."""
        return torch.add(x, z, alpha=level)

    @property
    def by_row(self) -> bool:
        """True."""
        return True

    def noisy_rows(self, x: Tensor, z: Tensor, levels: Tensor) -> Tensor:
        """x + sigma z."""
        return torch.addcmul(x, z, levels)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """U U^T."""
        # On the CPU one image at a time, which bounds the float64 copies.
        step = 1 if gradients.device.type == "cpu" else len(gradients)
        return torch.cat([gram(part.double()) for part in gradients.split(step)])
