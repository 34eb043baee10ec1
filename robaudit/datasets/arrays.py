"""Images in one array, with labels, as a data set; the base of those whose images are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from robaudit.datasets.base import Labels, Sample

if TYPE_CHECKING:
    from torch import Tensor

_CHANNELS = (1, 3)


class ArrayDataset:
    """Images in an array or a tensor; only requested images become float64. A subclass may keep anything else for them.

    Args:
        where: its name in messages.
        images: (n, ...), in the type they are stored in; or what a subclass reads them from, one for each image.
        labels: (n,); -1: none.
        layout: of the images.
        scale: full intensity in the images; None: by their type.
        ids: by index; default: the index as text.
        class_names: by class index.
    """

    def __init__(
        self,
        where: str,
        images: Any,
        labels: Labels | None = None,
        *,
        layout: Literal["nchw", "nhwc", "nhw"] = "nchw",
        scale: float | None = None,
        ids: Sequence[str] | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        self.where, self.class_names = where, class_names
        self._images, self._labels, self._layout, self._scale, self._ids = images, labels, layout, scale, ids

    def __len__(self) -> int:
        return len(self._images)

    def sample_id(self, index: int) -> str:
        """The id, or the index as text."""
        index = range(len(self))[index]
        return str(index) if self._ids is None else self._ids[index]

    def labels(self) -> Labels | None:
        """All labels, or None if there are none."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: its image is unusable.
        """
        index = range(len(self))[index]
        sample_id = self.sample_id(index)
        label = -1 if self._labels is None else int(self._labels[index])
        return Sample(sample_id, self._pixels(index, f"{self.where}, sample {sample_id}"), None if label < 0 else label)

    def _pixels(self, index: int, where: str) -> Tensor:
        """The pixels of one image; a SampleError if they are NaN or infinite, or of a type without a known scale."""
        from robaudit.datasets.decode import as_pixels  # imports torch, which reading a spec does not need

        image = self._images[index]
        return as_pixels(channels_first(image) if self._layout == "nhwc" else image, where, self._scale)


def layout_of(image: Sequence[int]) -> Literal["nchw", "nhwc"] | None:
    """The layout of images of this shape, by which axis has 1 or 3 entries; None if ambiguous."""
    first, last = image[0] in _CHANNELS, image[-1] in _CHANNELS
    return None if first == last else "nchw" if first else "nhwc"


def channels_first(image: Any) -> Any:
    """An image (height, width, channels) as (channels, height, width)."""
    return np.moveaxis(image, -1, 0) if isinstance(image, np.ndarray) else image.movedim(-1, 0)
