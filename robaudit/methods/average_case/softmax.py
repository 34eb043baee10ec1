"""`softmax`: the confidence on the clean image."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.numerics.margins import mv_sigmoid
from robaudit.quantities import CONFIDENCE
from robaudit.results import Result


class Softmax(Estimator):
    """softmax_t(f(x) / T) of the predicted class t: one forward pass, no noise, the same value at
    every level.

    A baseline: it ranks images only weakly by robustness and is not a probability, so it has its
    own quantity (confidence). It equals `taylor_mvs` exactly when all ||u_i|| = k and T = sigma k.

    Source: Han et al., Average-case robustness, Lemma A.4 (p_softmax).
    """

    quantity = CONFIDENCE
    needs = Need.LEVEL
    summary = "softmax score of the predicted class on the clean image"
    prefer = "never as a measure of robustness: the free baseline to compare with"
    source = "Han et al., p_softmax"

    temperature: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="logits are divided by it"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass."""
        return 1, 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """softmax_t(f / T) = mv-sigmoid(g / T)."""
        # 1 / (1 + sum_i exp(-g_i / T)) = exp(f_t / T) / sum_i exp(f_i / T)
        z = batch.margins / self.temperature
        rows = zip(mv_sigmoid(z).tolist(), batch.nearest(z), strict=True)
        return [Result(value=p, flips_to=flip, forwards=1) for p, flip in rows]
