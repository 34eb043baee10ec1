"""Are the fits of all images off the votes of the same copies on average?"""

from __future__ import annotations

import math
from array import array
from statistics import fmean, stdev

from robaudit.levels import NoiseLevel
from robaudit.plugins import reference
from robaudit.results import Result

_FEWEST = 10
_TOLERABLE = 0.01


class FitReview:
    """The distance of an estimator's fits at one noise level from the votes of the same copies,
    over images that noise can flip.

    The votes of a single image are too coarse to judge its fit. Their average is unbiased for any
    distribution of the margins: it reveals margins that are skewed, and margins that are each
    nearly normal but not jointly.
    """

    def __init__(self) -> None:
        self._above = array("d")

    def add(self, result: Result, predicted: int) -> None:
        """Add a result, if it is a fit that votes can judge."""
        votes = result.votes
        if (
            result.fit is not None
            and 0.001 < result.value < 0.999
            and votes is not None
            and votes.draws
        ):
            self._above.append(result.value - votes.of(predicted) / votes.draws)

    def warnings(self, name: str, at: NoiseLevel) -> list[str]:
        """A line if the mean distance of 10 images or more exceeds .01 and its own error (99 %)."""
        if len(self._above) < _FEWEST:
            return []
        mean = fmean(self._above)
        if abs(mean) <= max(_TOLERABLE, 2.58 * stdev(self._above) / math.sqrt(len(self._above))):
            return []
        where = f"{abs(mean):.3f} {'above' if mean > 0 else 'below'} the votes of the same copies"
        about = f"{name}: its values at {at}"
        return [
            f"{about} are {where}, on average over {len(self._above)} images: use {reference()}"
        ]
