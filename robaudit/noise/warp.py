"""Images sampled at other places: bilinear between pixels, reflected beyond the border."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor


class Mirror(Enum):
    """Where the image is reflected beyond its border, with NumPy's names of the padding."""

    REFLECT = "reflect"
    """At the centres of the outermost pixels, which are not repeated: c b | a b c | b a."""
    SYMMETRIC = "symmetric"
    """At the edge of the image: the outermost pixels are repeated: b a | a b c | c b."""


def unit(pixels: Tensor, side: int, mirror: Mirror) -> Tensor:
    """Coordinates in pixels (0 is the centre of the first one) as coordinates of ``grid_sample``,
    whose reflections are at -1 and 1."""
    # The centres of the outermost pixels are at -1 and 1; a single pixel has them in one place.
    if mirror is Mirror.REFLECT:
        return pixels * (2 / max(side - 1, 1)) - 1
    # The edges of the image are at -1 and 1.
    return pixels * (2 / side) + (1 / side - 1)


def sample(x: Tensor, grid: Tensor, mirror: Mirror) -> Tensor:
    """The images at other places.

    Args:
        x: (n, channels, height, width), or (1, ...) if all samples are of one image.
        grid: column and row of every new pixel as :func:`unit` gives them, (n, 2, height, width).
        mirror: the reflection that the coordinates were made for.

    Returns:
        (n, channels, height, width); a row's bits depend only on its image and coordinates.
    """
    images = x.expand(len(grid), *x.shape[1:])
    return torch.nn.functional.grid_sample(
        images,
        grid.permute(0, 2, 3, 1),
        mode="bilinear",
        padding_mode="reflection",
        align_corners=mirror is Mirror.REFLECT,
    )
