"""The size of chunks, from the time and the memory that the last chunk took."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from robaudit.auditing.rounds import Work
from robaudit.engine.registry import Task
from robaudit.levels import NoiseLevel
from robaudit.memory import free_bytes, peak, reset_peak, used

MOST_IMAGES = 1024
FLUSH_ROWS = 4096
"""Results that go to disk at once, roughly."""
CHUNK_SECONDS = 2.0
"""Target time of a chunk's longest step: results go to disk between steps."""
# A chunk of fixed size passes so many pixel values through the network: 10,000 passes of an image
# of 3 x 32 x 32.
_FIXED_SIZE_VALUES = 2**25
_FIXED_SIZE_IMAGES = 64
# A chunk has at most this many times the images of the last one that was measured: time and memory
# need not grow in proportion.
_GROWTH = 8
# Of the free memory: images differ, and the C library leaves gaps between blocks.
_CHUNK_SHARE = 0.5

_Kind = tuple[NoiseLevel, str, int, int | None]


class ChunkSizer:
    """The size of chunks: as many images as take about two seconds and fit into memory, judging by
    the last chunk.

    The first chunk of each kind of work is as many images as fill a pass. Without a
    device the size depends on the other arguments alone. That is for models and devices where the
    results of an image depend on the rest of its chunk.

    Attributes:
        most: the largest size; failed allocations lower it.
        free: bytes for a chunk of images and its passes: half of what is free at the start.
        held: bytes of the images that stay in main memory between rounds.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: in one image: channels * height * width.
        device: where chunks are computed; None where the size must follow a fixed rule.
        limit: bytes of main memory that the process may hold; on a CUDA device its free memory
            counts instead.
        rows: of a forward pass; copies of so many images fill it.
        least: images that fill a pass of the tasks' chains; this many need no more memory than a
            pass.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        classes: int,
        values: int,
        device: torch.device | None = None,
        limit: int = 0,
        least: int = 1,
        rows: int = 1,
    ) -> None:
        # A chunk's results wait in memory until they go to disk.
        rows_of_image = max(1, sum(len(task.names) for task in tasks))
        self.most = max(1, min(MOST_IMAGES, FLUSH_ROWS // rows_of_image))
        self.least = min(self.most, least)
        # By kind of work: an image that lacks few tasks or copies takes little time and memory.
        self._sizes: dict[frozenset[_Kind], int] = {}
        self._rows = rows
        self._classes = classes
        self._values = max(1, values)
        self._device = device
        self.held = 0
        if device is not None:
            reset_peak(device)
            self._used_before = used(device)
            free = limit - self._used_before if device.type == "cpu" else free_bytes(device)
            self.free = max(0, int(_CHUNK_SHARE * free))

    def next_images(self, work: Sequence[Work]) -> int:
        """Number of images for the next chunk."""
        return min(self.most, self._sizes.get(_kinds_of(work)) or self._first(work))

    def _first(self, work: Sequence[Work]) -> int:
        """Number of images for the first chunk of this kind of work."""
        first = self.least
        copies = [part.draws - part.start for part in work if part.draws is not None]
        # A round of few copies: images until a pass is full.
        if copies and len(copies) == len(work):
            first = max(first, -(-self._rows // min(copies)))
        if self._device is not None:
            return first
        passes = max((part.cost(self._classes) for part in work), default=1)
        wanted = _FIXED_SIZE_VALUES // (max(1, passes) * self._values)
        power_of_two: int = 2 ** math.floor(math.log2(max(1, wanted)))
        return max(first, min(self.most, _FIXED_SIZE_IMAGES, power_of_two))

    def begin(self) -> None:
        """Start measuring a chunk."""
        if self._device is not None:
            reset_peak(self._device)

    def taken(self, device: torch.device) -> int:
        """Bytes in use at the peak since :meth:`begin`, beyond those in use at the start of the
        run and those of images that stay in memory."""
        held = self.held if device.type == "cpu" else 0
        return max(1, peak(device) - self._used_before - held)

    def took(self, work: Sequence[Work], images: int, longest: float) -> None:
        """Adjust the size to the time and memory of a chunk.

        Args:
            work: of the chunk.
            images: number of images; a chunk below the current size (the last of a run) is ignored.
            longest: seconds of its longest step.
        """
        # A smaller chunk says little about the time and the memory of an image in a full one.
        if self._device is None or images < self.next_images(work):
            return
        # Both in proportion to the last chunk.
        by_memory = images * self.free // self.taken(self._device)
        by_time = max(self.least, int(images * CHUNK_SECONDS / max(longest, 1e-9)))
        size = max(1, min(self.most, _GROWTH * images, by_memory, by_time))
        self._sizes[_kinds_of(work)] = size

    def shrink(self, images: int) -> None:
        """Halve the size from now on: this many images did not fit into memory."""
        self.most = max(1, images // 2)
        self.least = min(self.least, self.most)


def _kinds_of(work: Sequence[Work]) -> frozenset[_Kind]:
    """Noise levels, estimators and copies of the work, in any order."""
    return frozenset((part.task.at, part.task.label, part.start, part.draws) for part in work)
