"""Multiplicative Gaussian noise: as strong as the pixel is bright."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robaudit.noise.noise import SigmaNoise
from robaudit.numerics.rowwise import diagonal_gram


class Speckle(SigmaNoise):
    """x (1 + sigma z): the noise of a value is normal with standard deviation sigma x; black stays
    black.

    The level is the standard deviation relative to the pixel.

    Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness (speckle noise);
        Goodman (2007), Speckle Phenomena in Optics, for many looks.
    """

    summary = "x (1 + sigma z), independent on every value"
    prefer = "radar, ultrasound and laser images; gain that fluctuates"
    source = "Hendrycks and Dietterich 2019"

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """X (1 + sigma z)."""
        return torch.mul(z, level).mul_(x).add_(x)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """(U x) (U x)^T."""
        return diagonal_gram(gradients, x.flatten(1))
