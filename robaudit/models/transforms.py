"""Translate a library's transform of images into the keys of a spec, and check the translation on
images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robaudit.datasets.decode import image_pixels
from robaudit.errors import SampleError
from robaudit.spec.model import ImageOptions

Transform = Callable[[Image.Image], Tensor]
"""From an image to the network's input (channels, height, width), normalised."""
_MOST_SIDE = 4096
_ROUNDING = 5e-7  # of float32, in normalised pixels
_TOLERANCE = 1e-3  # for pixels in [0, 1]; an 8-bit step is 4e-3


def translated(
    transform: Transform, candidates: Sequence[Mapping[str, Any]], channels: int
) -> dict[str, Any] | None:
    """The first candidate that gives the same pixels as the transform, with channels and the
    transform's mean and std.

    Args:
        transform: the library's.
        candidates: keys of `ImageOptions`, without channels.
        channels: of the network's input.

    Returns:
        The keys; mean and std are those of pixels in [0, 1] and include any rescale factor, and are
        left out where they change nothing. None if no candidate gives the same pixels, or a size
        exceeds 4096.
    """
    largest = max(_sides(candidates), default=1)
    if channels not in (1, 3) or largest > _MOST_SIDE:
        return None
    mode = "L" if channels == 1 else "RGB"
    # pixels are (x - mean) / std: -mean / std of black, (1 - mean) / std of white
    black, white = (
        _centre(transform(Image.new(mode, (64, 64), colour))) for colour in ("black", "white")
    )
    std = 1 / (white - black)
    mean = -black * std
    if not bool(torch.isfinite(mean).all()) or not bool((std > 0).all()):
        return None
    images = next(
        (
            keys
            for keys in candidates
            if _agree(transform, {**keys, "channels": channels}, mean, std, mode, largest)
        ),
        None,
    )
    if images is None:
        return None
    means, stds = (
        tuple(map(_shortest, values.tolist(), (_ROUNDING * std).tolist())) for values in (mean, std)
    )
    normalisation = {"mean": means, "std": stds} if any(means) or set(stds) != {1.0} else {}
    return {**normalisation, **images, "channels": channels}


def _sides(candidates: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """All heights and widths."""
    for candidate in candidates:
        for size in (candidate.get("resize"), candidate.get("crop")):
            yield from () if size is None else (size,) if isinstance(size, int) else size


def _centre(pixels: Tensor) -> Tensor:
    """The middle pixel, where no border reaches: (channels,)."""
    return pixels[:, pixels.shape[1] // 2, pixels.shape[2] // 2].double()


def _shortest(value: float, within: float) -> float:
    """The number with the fewest digits within this distance, for values rounded to float32: 0.485
    for 0.48500001."""
    return next(
        (short for digits in range(20) if abs((short := round(value, digits)) - value) <= within),
        value,
    )


def _agree(
    transform: Transform,
    images: Mapping[str, Any],
    mean: Tensor,
    std: Tensor,
    mode: str,
    largest: int,
) -> bool:
    """Whether the transform and the keys give the same pixels for a landscape and a portrait
    image."""
    try:
        options = ImageOptions(kind="images", **images)
        for width, height in ((largest + 51, largest + 14), (largest + 8, largest + 33)):
            image = _picture(width, height).convert(mode)
            expected = transform(image) * std.view(-1, 1, 1) + mean.view(-1, 1, 1)
            pixels = image_pixels(image, "a picture", options)
            if (
                pixels.shape != expected.shape
                or float((pixels - expected).abs().max()) > _TOLERANCE
            ):
                return False
    except (SampleError, ValueError):  # a value that no spec can have
        return False
    return True


def _picture(width: int, height: int) -> Image.Image:
    coarse = np.random.default_rng(width).integers(
        0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8
    )
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
