"""What the tests of spatial transforms, corruptions and corrupted sets share."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.noise.noise import Noise, Shape


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(
    count: int, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Smooth images with some detail, on the grid of 8 bits, each with dark and bright places."""
    generator = seeded(seed)
    coarse = torch.rand(count, shape[0], 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(
        coarse, size=shape[1:], mode="bicubic", align_corners=False
    )
    detail = 0.1 * torch.randn(count, *shape, generator=generator)
    return ((smooth + detail).clamp(0, 1) * 255).round().to(dtype).div(255)


def latents(
    kind: Noise, count: int, shape: Shape, seed: int = 1, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.randn(count, *kind.latent_shape(shape), generator=seeded(seed)).to(dtype)
