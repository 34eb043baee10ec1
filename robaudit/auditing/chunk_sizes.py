"""The size of chunks, from the time and the memory that the last chunk took."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from robaudit.engine.registry import Task
from robaudit.levels import NoiseLevel
from robaudit.memory import free_bytes, peak, reset_peak, used

MOST_IMAGES = 1024
FLUSH_ROWS = 4096
"""Results that go to disk at once, roughly."""
CHUNK_SECONDS = 2.0
"""Target time of a chunk's longest step: results go to disk between steps."""
# pixel values through the network in a chunk of fixed size: 10,000 passes at 3 x 32 x 32
_STEADY_VALUES = 2**25
_STEADY_IMAGES = 64
_GROWTH = 8  # a chunk has at most this many times the images of the last one measured
_CHUNK_SHARE = (
    0.5  # of the free memory: images differ, and the C library leaves gaps between blocks
)


class ChunkSizer:
    """The size of chunks: as many images as take about two seconds and fit into memory, judging by
    the last chunk.

    The first chunk of each set of tasks is a single image, or as many as fill a pass. Without a
    device the size depends on the other arguments alone, for models and devices whose rows depend
    on the rest of the chunk.

    Attributes:
        most: images at most, after failed allocations.
        least: images that fill a pass; fewer save hardly any time.
        free: bytes for a chunk of images and its passes: half of what is free at the start.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: in one image: channels * height * width.
        device: where chunks are computed; None where the size must follow a fixed rule.
        limit: bytes of main memory that the process may hold; on a CUDA device its free memory
            counts instead.
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
    ) -> None:
        self.most = max(
            1, min(MOST_IMAGES, FLUSH_ROWS // max(1, sum(len(task.names) for task in tasks)))
        )
        self.least = min(self.most, least)
        self._sizes: dict[frozenset[tuple[NoiseLevel, str]], int] = {}
        self._first = self.least
        self._device = device
        if device is not None:
            reset_peak(device)
            self._before = used(device)
            self.free = max(
                0,
                int(
                    _CHUNK_SHARE
                    * (limit - self._before if device.type == "cpu" else free_bytes(device))
                ),
            )
        else:
            passes = max((task.cost(classes) for task in tasks), default=1)
            wanted = _STEADY_VALUES // (max(1, passes) * max(1, values))
            self._first = max(
                self.least,
                min(self.most, _STEADY_IMAGES, 2 ** math.floor(math.log2(max(1, wanted)))),
            )

    def next_images(self, tasks: Sequence[Task]) -> int:
        """Number of images for the next chunk."""
        return min(self.most, self._sizes.get(_key(tasks), self._first))

    def begin(self) -> None:
        """Start measuring a chunk."""
        if self._device is not None:
            reset_peak(self._device)

    def taken(self, device: torch.device) -> int:
        """Bytes in use at the peak since :meth:`begin`, beyond those in use at the start of the
        run."""
        return max(1, peak(device) - self._before)

    def took(self, tasks: Sequence[Task], images: int, longest: float) -> None:
        """Adjust the size to the time and memory of a chunk.

        Args:
            tasks: of the chunk.
            images: number of images; a smaller chunk than asked for (the last of a run) is ignored.
            longest: seconds of its longest step.
        """
        if self._device is None or images < self.next_images(tasks):
            return
        fitting = images * self.free // self.taken(self._device)
        quick = max(self.least, int(images * CHUNK_SECONDS / max(longest, 1e-9)))
        self._sizes[_key(tasks)] = max(1, min(self.most, _GROWTH * images, fitting, quick))

    def shrink(self, images: int) -> None:
        """Halve the size from now on: this many images did not fit into memory."""
        self.most = max(1, images // 2)
        self.least = min(self.least, self.most)


def _key(tasks: Sequence[Task]) -> frozenset[tuple[NoiseLevel, str]]:
    return frozenset((task.at, task.label) for task in tasks)
