"""`difficulty`: how easily the network classifies the clean image."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.numerics.margins import NEVER, ease
from robaudit.quantities import DIFFICULTY, Interval, IntervalKind
from robaudit.results import CleanImage, Result


class Difficulty(Estimator):
    """g = log(p_y / (1 - p_y)) = z_y - log sum_{j != y} exp(z_j), y the ``target``, p the clean
    image's softmax scores: larger is easier.

    It equals -log(exp(CE) - 1) for the cross-entropy CE, which rounds to infinity if the network is
    confident; this form does not.

    Source: Giraudon, Gripon, Loewe and Vermet, Intrinsic robustness, section 3.
    """

    quantity = DIFFICULTY
    needs = Need.NOTHING
    interval = Interval(IntervalKind.EXACT)
    summary = "the logit of the clean score: how easy the image is"
    prefer = "to sort images by how easy they are; the radius estimators record it anyway"
    source = "Giraudon et al., Intrinsic robustness"

    target: Literal["predicted", "label"] = Field(
        "predicted", description="the class: the one predicted, or the label"
    )

    @property
    def needs_labels(self) -> bool:
        """Whether every image must have a label."""
        return self.target == "label"

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass."""
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[Result]:
        """g of each image, which is exact, with its margin."""
        y = batch.labels if self.target == "label" else batch.predicted
        # The logit of a masked class is finite, but stands for minus infinity; so does g then.
        masked = (batch.logits.gather(1, y[:, None])[:, 0] <= NEVER).tolist()
        results = []
        for (g, margin), never in zip(ease(batch.logits, y), masked, strict=True):
            value = -math.inf if never else g
            result = Result(
                value,
                lower=value,
                upper=value,
                forwards=1,
                interval=self.interval,
                clean=CleanImage(margin),
            )
            results.append(result)
        return results
