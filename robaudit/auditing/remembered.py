"""Decoded images that stay in memory between the rounds of an audit, as far as they fit."""

from __future__ import annotations

from robaudit.auditing.chunk_sizes import ChunkSizer
from robaudit.datasets.dataset import Dataset, Labels, Sample


class RememberedImages:
    """A data set whose samples are read once, until they fill the room in memory.

    Args:
        data: the samples.
        room: bytes that the images may take.
        sizer: of the chunks; it leaves the memory of these images out of theirs.
    """

    def __init__(self, data: Dataset, room: int, sizer: ChunkSizer) -> None:
        self._data = data
        self._room = room
        self._sizer = sizer
        self._samples: dict[int, Sample] = {}

    @property
    def where(self) -> str:
        """Its name in messages and reports."""
        return self._data.where

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names by class index, or None."""
        return self._data.class_names

    def __len__(self) -> int:
        return len(self._data)

    def sample_id(self, index: int) -> str:
        """The stable id of a sample."""
        return self._data.sample_id(index)

    def labels(self) -> Labels | None:
        """All labels, if known without reading pixels."""
        return self._data.labels()

    def __getitem__(self, index: int) -> Sample:
        known = self._samples.get(index)
        if known is not None:
            return known
        sample = self._data[index]
        size = sample.pixels.nbytes
        # Of several threads that read, each may exceed the room by an image.
        if self._sizer.held + size <= self._room:
            self._samples[index] = sample
            self._sizer.held += size
        return sample
