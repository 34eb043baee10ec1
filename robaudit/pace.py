"""How many images are computed at once, and when do results go to disk?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from robaudit.plan import Task

MOST_IMAGES = 1024
_FIRST_VALUES = 2**22  # through the network in the first chunk: 1,365 passes at 3 x 32 x 32
_STEADY_VALUES = 2**25  # where the size is not to depend on time: 10,000 passes at 3 x 32 x 32
_STEADY_IMAGES = 64
_MOST_ROWS = 4096  # in a part, about
_DUE, _SHORT, _LONG = 1.0, 0.6, 2.0  # seconds


class Pace:
    """The size of the chunks: as many images as fit into memory and take about a second.

    Attributes:
        images: how many the next chunk should have.
        most: how many memory allows.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: of one image: channels * height * width.
        most: images that memory allows.
        timed: whether the size may follow the time that chunks take; else it is a rule of the arguments, for models and devices
            whose rows depend on the rest of the chunk.
    """

    def __init__(self, tasks: Sequence[Task], classes: int, values: int, *, most: int = MOST_IMAGES, timed: bool = True) -> None:
        passes = max((task.cost(classes) for task in tasks), default=1)
        wanted = (_FIRST_VALUES if timed else _STEADY_VALUES) // (max(1, passes) * max(1, values))
        self.most = max(1, min(most, MOST_IMAGES, _MOST_ROWS // max(1, len(tasks))))
        self._timed = timed
        self.images = max(1, min(self.most, _STEADY_IMAGES, 2 ** math.floor(math.log2(max(1, wanted)))))

    def due(self, seconds: float, rows: int) -> bool:
        """Whether the rows that were computed in so many seconds should go to disk now."""
        return seconds >= _DUE or rows >= _MOST_ROWS

    def took(self, images: int, longest: float) -> None:
        """Learn from a chunk.

        Args:
            images: how many it had.
            longest: how long the longest of its steps took, between two of which results can go to disk.
        """
        if not self._timed:
            return
        if longest > _LONG and images > 1:
            self.images = max(1, min(self.images, images // 2))
        elif longest < _SHORT and images == self.images:
            self.images = min(self.most, images * (8 if longest < _SHORT / 8 else 2))

    def shrink(self, images: int) -> None:
        """So many images were too much for the memory: half as many from now on."""
        self.most = max(1, images // 2)
        self.images = min(self.images, self.most)
