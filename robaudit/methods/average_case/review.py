"""Are the fits of all images off the votes of the same copies on average?"""

from __future__ import annotations

import math
from array import array
from statistics import fmean, stdev

from robaudit.runs.rows import Row

_FEWEST, _TOLERABLE = 10, 0.01


class FitReview:
    """The distance of an estimator's fits at one noise level from the votes of the same copies, over images that noise can flip.

    The votes of a single image are too coarse to judge its fit. Their average is unbiased for any distribution of the margins: it
    reveals margins that are skewed, and margins that are each nearly normal but not jointly.
    """

    def __init__(self) -> None:
        self._above = array("d")
        self._row: Row | None = None

    def add(self, row: Row) -> None:
        """Add a row with a fit."""
        if 0.001 < row.value < 0.999 and row.votes is not None and row.votes.draws:
            self._row = row
            self._above.append(row.value - row.votes.of(row.predicted) / row.votes.draws)

    def warnings(self) -> list[str]:
        """A line if the mean distance of 10 images or more exceeds .01 and its own error (99 %)."""
        if self._row is None or len(self._above) < _FEWEST:
            return []
        mean = fmean(self._above)
        if abs(mean) <= max(_TOLERABLE, 2.58 * stdev(self._above) / math.sqrt(len(self._above))):
            return []
        where = f"{abs(mean):.3f} {'above' if mean > 0 else 'below'} the votes of the same copies"
        about = f"{self._row.estimator}: its values at {self._row.at}"
        return [f"{about} are {where}, on average over {len(self._above)} images: use mc"]
