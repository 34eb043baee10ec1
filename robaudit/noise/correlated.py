"""Gaussian noise that neighbouring pixels share: stationary, with a correlation length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from robaudit.noise.arrays import Placed
from robaudit.noise.noise import Shape, SigmaNoise
from robaudit.numerics.rowwise import gram, product
from robaudit.spec.fields import Positive


class CorrelatedGaussian(SigmaNoise):
    """x + sigma e, with normal e of variance 1 and correlation exp(-r^2 / (2 length^2)) between
    values at a distance of r pixels.

    The level is the standard deviation of every value. Channels are independent, or all have the
    same e. The covariance of the pixels of a channel is a product over rows and columns, K = Kh (x)
    Kw, so e = Kh^1/2 Z Kw^1/2 for independent Z: two small products, exact up to the edges, and no
    matrix of pixels by pixels. The roots come from the eigenvalues, in float64: for lengths of a
    few pixels Kh and Kw are singular to rounding, and negative eigenvalues (about -1e-15) are set
    to zero.

    Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, section 4.2.1
        (squared exponential covariance).
    """

    summary = "x + sigma e, e normal with correlation exp(-r^2 / 2 length^2)"
    prefer = "noise after demosaicing, resizing or compression; blotches and stains"
    source = "Rasmussen and Williams 2006, section 4.2.1"

    length: Positive = Field(
        description="correlation length in pixels: neighbours at this distance have a "
        "correlation of 0.61"
    )
    channels: Literal["independent", "shared"] = Field(
        "independent", description="each channel has its own noise, or all have the same"
    )

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape of the image, with a single channel if the channels share their noise."""
        return (1, *shape[1:]) if self.channels == "shared" else shape

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x + sigma Kh^1/2 Z Kw^1/2 for every channel."""
        return _smoothed(z, self.length).mul(level) + x

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """V V^T with V = Kh^1/2 U Kw^1/2, in float64."""
        # On the CPU one image at a time, which bounds the float64 copies.
        step = 1 if gradients.device.type == "cpu" else max(1, len(gradients))
        grams = []
        for u in gradients.split(step):
            # (images, margins, channels, height, width)
            maps = u.double().unflatten(2, x.shape[1:])
            if self.channels == "shared":
                # The same noise in every channel meets the sum of their gradients.
                maps = maps.sum(2, keepdim=True)
            smooth = _smoothed(maps.flatten(0, 1), self.length)
            v = smooth.unflatten(0, u.shape[:2]).flatten(2)  # (images, margins, pixels)
            grams.append(gram(v))
        return torch.cat(grams)


def _smoothed(z: Tensor, length: float) -> Tensor:
    """Kh^1/2 Z Kw^1/2 of every channel of (n, channels, height, width)."""
    height, width = z.shape[2:]
    left = _root(height, length).like(z)
    right = _root(width, length).like(z)
    planes = z.flatten(0, 1)
    left_product = product(left, planes)
    smooth = product(left_product, right.expand(len(planes), -1, -1))
    planes_of_images: Tensor = smooth.unflatten(0, z.shape[:2])
    return planes_of_images


@lru_cache(maxsize=32)
def _root(side: int, length: float) -> Placed:
    """The symmetric root of the correlation matrix of ``side`` pixels in a line."""
    # Cached, so it must also serve passes with gradients.
    with torch.inference_mode(False):
        place = torch.arange(side, dtype=torch.float64)
        distance = place[:, None] - place
        # Squared exponential: Rasmussen and Williams 2006, equation 4.9.
        correlation = torch.exp(-0.5 * (distance / length).square())
        values, vectors = torch.linalg.eigh(correlation)
        root = (vectors * values.clamp_min(0.0).sqrt()) @ vectors.T
        return Placed(root)
