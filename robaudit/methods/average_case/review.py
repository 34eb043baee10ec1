"""A review of the fits of all images: their mean distance from the votes of the same copies."""

from __future__ import annotations

import math
from array import array
from statistics import fmean, stdev

from robaudit.levels import NoiseLevel
from robaudit.plugins import reference
from robaudit.results import Result

_FEWEST = 10  # images that a mean distance is judged from
_TOLERABLE = 0.01  # mean distance from the votes that needs no warning, however significant


class FitReview:
    """The mean distance of an estimator's fits at one noise level from the votes of the same
    copies.

    It takes images that noise can flip, with a value between .001 and .999.

    The votes of a single image are too coarse to judge its fit. Their average is unbiased for any
    distribution of the margins: it reveals margins that are skewed, and margins that are each
    nearly normal but not jointly.
    """

    def __init__(self) -> None:
        self._distances = array("d")  # fit - votes

    def add(self, result: Result, predicted: int) -> None:
        """Add a result, if it is a fit that votes can judge."""
        votes = result.votes
        if result.fit is None or votes is None or not votes.draws:
            return
        # Where no copy flips, the distance is 0 and would hide the bias of the other images.
        if 0.001 < result.value < 0.999:
            self._distances.append(result.value - votes.for_class(predicted) / votes.draws)

    def warnings(self, name: str, at: NoiseLevel) -> list[str]:
        """A line if the mean distance of 10 images or more exceeds .01 and its own error (99 %)."""
        images = len(self._distances)
        if images < _FEWEST:
            return []
        mean = fmean(self._distances)
        error = 2.58 * stdev(self._distances) / math.sqrt(images)  # 99 %, normal
        if abs(mean) <= max(_TOLERABLE, error):
            return []
        side = "above" if mean > 0 else "below"
        return [
            f"{name}: its values at {at} are {abs(mean):.3f} {side} the votes of the same copies, "
            f"on average over {images} images: use {reference()}"
        ]
