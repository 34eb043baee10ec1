"""What the tests of spatial transforms, corruptions and corrupted sets share."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.noise.base import Noise, Shape

SPLITS = ((0, 1), (1, 2), (2, 7), (6, 11), (3, 13), (12, 13))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(count: int, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Smooth images with some detail, on the grid of 8 bits, each with dark and bright places."""
    generator = seeded(seed)
    coarse = torch.rand(count, shape[0], 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=shape[1:], mode="bicubic", align_corners=False)
    detail = 0.1 * torch.randn(count, *shape, generator=generator)
    return ((smooth + detail).clamp(0, 1) * 255).round().to(dtype).div(255)


def latents(kind: Noise, count: int, shape: Shape, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, *kind.latent_shape(shape), generator=seeded(seed)).to(dtype)


def names(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def require_contract(kind: Noise, level: float, shape: Shape, dtype: torch.dtype = torch.float32, count: int = 13) -> Tensor:
    """Rows have the same bits in any batch, a single image serves all rows, inputs are left alone; returns the noisy rows."""
    x, z = photographs(count, shape, dtype=dtype), latents(kind, count, shape, dtype=dtype)
    before = x.clone(), z.clone()
    noisy = kind.noisy(x, z, level, ids=names(count))
    assert noisy.shape == x.shape
    assert noisy.dtype == dtype
    assert torch.equal(x, before[0])
    assert torch.equal(z, before[1])
    for start, stop in SPLITS:
        if stop <= count:
            part = kind.noisy(x[start:stop].clone(), z[start:stop].clone(), level, ids=names(count)[start:stop])
            assert torch.equal(part, noisy[start:stop])
    backwards = kind.noisy(x.flip(0), z.flip(0), level, ids=names(count)[::-1])
    assert torch.equal(backwards.flip(0), noisy)
    one = kind.noisy(x[:1], z, level, ids=["0"])
    many = kind.noisy(x[:1].repeat(count, 1, 1, 1), z, level, ids=["0"] * count)
    assert one.shape == (count, *shape)
    assert torch.equal(one, many)
    assert torch.equal(one[0], noisy[0])
    return noisy
