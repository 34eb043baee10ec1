"""The decoded image files of a data set, for noise that is added before resize and crop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robaudit.datasets.dataset import Dataset
from robaudit.datasets.decode import image_pixels
from robaudit.datasets.open_dataset import open_whole
from robaudit.datasets.select import choose
from robaudit.spec.model import ImageOptions

_EIGHT_BITS = 255
_SIXTEEN_BITS = 65535


@dataclass(frozen=True, slots=True)
class Photo:
    """A decoded image file.

    A noisy copy holds whole numbers again, of as many bits as the file. From there on it is
    prepared as any file is, so that a copy without noise has the pixels of the sample to the bit.

    Attributes:
        pixels: in [0, 1], float64 (channels, height, width).
        where: the sample, for messages.
        options: how the file is prepared.
    """

    pixels: Tensor
    where: str
    options: ImageOptions

    def prepared(self, noisy: Tensor) -> Tensor:
        """The network's input of noisy copies (n, channels, height, width): resized and cropped,
        float64 on the CPU."""
        white = self._white
        steps = (noisy * white).round().clamp(0, white).to("cpu", torch.int32)
        copies = [image_pixels(_image(copy, white), self.where, self.options) for copy in steps]
        return torch.stack(copies)

    @property
    def _white(self) -> int:
        """The value of white: of 8 bits, or of 16 for a grey file with values between theirs."""
        steps = (self.pixels * _EIGHT_BITS).round().div(_EIGHT_BITS)
        is_deep = len(self.pixels) == 1 and not torch.equal(steps, self.pixels)
        return _SIXTEEN_BITS if is_deep else _EIGHT_BITS


def _image(steps: Tensor, white: int) -> Image.Image:
    """An image of whole numbers (channels, height, width) up to white."""
    values = steps.numpy().astype(np.uint8 if white == _EIGHT_BITS else np.uint16)
    # Pillow takes grey images without the dimension of channels.
    return Image.fromarray(values[0] if len(values) == 1 else np.moveaxis(values, 0, -1).copy())


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The files behind the samples of a run.

    Attributes:
        whole: the data set, with its images as they are decoded.
        options: how they are prepared.
        places: in the data set, by sample id.
    """

    whole: Dataset
    options: ImageOptions
    places: Mapping[str, int]

    def read(self, sample_id: str) -> Photo:
        """The decoded file of a sample.

        Raises:
            SampleError: it cannot be read.
        """
        pixels = self.whole[self.places[sample_id]].pixels
        return Photo(pixels, f"{self.whole.where}, sample {sample_id}", self.options)


def image_files(spec: ImageOptions, base_dir: Path, *, trust: bool) -> ImageFiles:
    """The files of a data set; no image is read yet.

    Args:
        spec: the dataset section.
        base_dir: the base of its relative paths.
        trust: whether Python code named in the spec may run.

    Raises:
        DataError: the data set is missing, damaged or not as the spec says.
    """
    photos = open_whole(spec.of_photos(), base_dir, trust=trust)
    places = {photos.sample_id(place): place for place in choose(photos, spec)}
    return ImageFiles(photos, spec, places)
