"""Translate a library's transform of images into keys of a spec, and check this on images."""

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
_MOST_SIDE = 4096  # pixels: a configuration of a stranger could ask for giant trial images
_ROUNDING = 5e-7  # of float32, in normalised pixels
_TOLERANCE = 1e-3  # for pixels in [0, 1]; an 8-bit step is 4e-3


def translated(
    transform: Transform, candidates: Sequence[Mapping[str, Any]], channels: int
) -> dict[str, Any] | None:
    """The keys of a spec that prepare images as a transform does.

    They are the first candidate that gives the same pixels, with the channels and the transform's
    mean and std.

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
    # A pixel x becomes (x - mean) / std: black -mean / std, white (1 - mean) / std. No resize or
    # crop changes a plain image.
    black = _centre(transform(Image.new(mode, (64, 64), "black")))
    white = _centre(transform(Image.new(mode, (64, 64), "white")))
    std = 1 / (white - black)
    mean = -black * std
    if not bool(torch.isfinite(mean).all()) or not bool((std > 0).all()):
        return None
    for candidate in candidates:
        images = {**candidate, "channels": channels}
        if _agree(transform, images, mean, std, mode, largest):
            return {**_normalisation(mean, std), **images}
    return None


def _normalisation(mean: Tensor, std: Tensor) -> dict[str, Any]:
    """The keys for mean and std (channels,); none if they change nothing."""
    # The library's decimal numbers were rounded to float32 on their way here.
    within = (_ROUNDING * std).tolist()
    means = tuple(map(_shortest, mean.tolist(), within))
    stds = tuple(map(_shortest, std.tolist(), within))
    if not any(means) and set(stds) == {1.0}:
        return {}
    return {"mean": means, "std": stds}


def _sides(candidates: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """All heights and widths."""
    for candidate in candidates:
        for size in (candidate.get("resize"), candidate.get("crop")):
            if isinstance(size, int):
                yield size
            elif size is not None:
                yield from size


def _centre(pixels: Tensor) -> Tensor:
    """The middle pixel, where no border reaches: (channels,)."""
    _, height, width = pixels.shape
    return pixels[:, height // 2, width // 2].double()


def _shortest(value: float, within: float) -> float:
    """The number with the fewest digits within this distance: 0.485 for 0.48500001."""
    for digits in range(20):  # more than a float has
        rounded = round(value, digits)
        if abs(rounded - value) <= within:
            return rounded
    return value


def _agree(
    transform: Transform,
    images: Mapping[str, Any],
    mean: Tensor,
    std: Tensor,
    mode: str,
    largest: int,
) -> bool:
    """Whether the transform and the keys give the same pixels for two images.

    Args:
        transform: the library's.
        images: keys of `ImageOptions`.
        mean, std: of the transform (channels,).
        mode: of the images, in Pillow.
        largest: the largest height or width in any candidate.
    """
    std_by_channel = std.view(-1, 1, 1)
    mean_by_channel = mean.view(-1, 1, 1)
    # Larger than any size: all candidates make them smaller.
    landscape = (largest + 51, largest + 14)
    portrait = (largest + 8, largest + 33)
    try:
        options = ImageOptions(kind="images", **images)
        for width, height in (landscape, portrait):
            image = _picture(width, height).convert(mode)
            expected = transform(image) * std_by_channel + mean_by_channel
            pixels = image_pixels(image, "a picture", options)
            if pixels.shape != expected.shape:
                return False
            if float((pixels - expected).abs().max()) > _TOLERANCE:
                return False
    # ValueError: a value that no spec can have.
    except (SampleError, ValueError):
        return False
    return True


def _picture(width: int, height: int) -> Image.Image:
    """A random picture with details of about 8 pixels, in which another filter or crop shows."""
    rng = np.random.default_rng(width)
    coarse_shape = (height // 8 + 2, width // 8 + 2, 3)
    coarse = rng.integers(0, 256, coarse_shape, dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
