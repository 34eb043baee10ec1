"""Coupled standard normal draws: each is exactly normal, and their mean varies less where
neighbouring pixels interact."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 48
"""Draws in a block, and values in a patch."""

_PATCHES = {
    1: (1, 8, 6),
    2: (2, 6, 4),
    3: (3, 4, 4),
    4: (4, 4, 3),
    6: (6, 4, 2),
    12: (12, 2, 2),
    16: (16, 3, 1),
    24: (24, 2, 1),
    48: (48, 1, 1),
}
_AT_ONCE = 16  # patches: on the CPU faster than all at once, and the float64 copies stay small
_LARGEST = 3 * 2**17  # values of an image: a block is 48 of them


def patch_of(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Channels, height and width of a patch of 48 values; None for images without blocks."""
    if len(shape) != 3 or math.prod(shape) > _LARGEST:
        return None
    return _PATCHES.get(shape[0], _PATCHES[1])


def orthogonal_block(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """48 draws z_1 ... z_48 of an image's standard noise; each is exactly N(0, I), and they are
    coupled.

    The image is cut, at a random offset, into patches of 48 values (4 x 4 x 3 with three channels);
    one that leaves the image on a side goes on at the other. In each patch the directions of the 48
    draws are the rows of a Haar-distributed orthogonal matrix, one per patch, and their lengths are
    independent chi_48. A row of a Haar matrix has a uniform direction, and patches are independent,
    so each z_i is normal. But the 48 directions of a patch are orthogonal: u_1 u_1^T + ... + u_48
    u_48^T = I, so terms quadratic in the values of one patch nearly cancel in the mean over a
    block. That is half of the even part of a convolutional network's margins; antithetic signs
    remove the odd part.

    It never costs much. The covariance of two draws of a function is sum_l w_l C_l, w_l the
    variance of its harmonics of degree l in a patch and C_l = Gegenbauer's polynomial at 0 over
    that at 1: 0 for odd l, -1/47 for l = 2 (the sum over the 47 other draws cancels it), 3 / (47 *
    49) for l = 4 and less above. So the variance of a mean is at most 1.06 times that of
    independent draws for any network; products over patches are smaller still.

    Args:
        shape: channels, height, width.
        generator: on the device of the draws.

    Returns:
        (48, *shape), float32.

    Source: robaudit; orthogonal draws in full dimension: Yu et al. 2016, Orthogonal random features
    (no gain at these dimensions).
    """
    patch = patch_of(shape)
    if patch is None:
        raise ValueError(f"no blocks for images of shape {shape}")
    (channels, height, width) = shape
    (per, tall, wide) = patch
    groups = -(-channels // per)
    down = -(-height // tall)
    across = -(-width // wide)
    draws = _blocks_of(groups * down * across, generator).view(
        groups, down, across, BLOCK, per, tall, wide
    )
    canvas = draws.permute(3, 0, 4, 1, 5, 2, 6).reshape(
        BLOCK, groups * per, down * tall, across * wide
    )
    top, left = _offset(generator, tall, wide)
    return canvas.roll((-top, -left), (2, 3))[:, :channels, :height, :width].contiguous()


def _offset(generator: torch.Generator, tall: int, wide: int) -> tuple[int, int]:
    """The offset of the grid of patches. On CUDA it comes from the generator's seed, because
    reading a draw would synchronise."""
    if generator.device.type == "cpu":
        top, left = (int(torch.randint(side, (1,), generator=generator)) for side in (tall, wide))
        return top, left
    seed = generator.initial_seed()
    return seed % tall, (seed // 2**16) % wide


def _blocks_of(count: int, generator: torch.Generator) -> Tensor:
    """Blocks of single patches (count, 48, 48), float32: D L^-1 G of normal G with G G^T = L L^T,
    in float64, D the lengths of G's rows.

    G = L Q, where Q = L^-1 G is Haar-distributed and independent of L. So are the lengths of G's
    rows, which are those of L's: independent chi_48.
    """
    matrices = torch.randn(count, BLOCK, BLOCK, generator=generator, device=generator.device)
    for part in matrices.split(_AT_ONCE if generator.device.type == "cpu" else count):
        normal = part.double()
        product = normal @ normal.transpose(1, 2)
        # a singular G (probability about 1e-13) gives non-finite copies, which count as lost
        factor, _ = torch.linalg.cholesky_ex(product)
        factor /= product.diagonal(dim1=1, dim2=2).sqrt().unsqueeze(1)
        part.copy_(torch.linalg.solve_triangular(factor, normal, upper=False))
    return matrices
