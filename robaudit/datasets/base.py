"""What is a data set to an audit: ordered samples with stable ids, pixels in [0, 1], labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One image: its stable id, pixels (channels, height, width) as float64 in [0, 1], and its label or None."""

    id: str
    pixels: Tensor
    label: int | None


class Dataset(Protocol):
    """An indexable collection of samples; nothing is read before it is asked for.

    Reading changes nothing another thread or process could notice, and ``dataset[len(dataset)]`` raises IndexError.
    """

    @property
    def where(self) -> str:
        """What error messages and reports call it (a path or a name)."""
        ...

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names by class index, or None when the source has none."""
        ...

    def __len__(self) -> int: ...

    def sample_id(self, index: int) -> str:
        """The stable id of sample ``index``, without reading its pixels."""
        ...

    def labels(self) -> Labels | None:
        """All labels as int64 (-1: none) where they are known without reading pixels, else None."""
        ...

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: this sample (alone) is unreadable or unusable.
        """
        ...
