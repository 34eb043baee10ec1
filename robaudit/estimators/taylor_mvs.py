"""`taylor_mvs`: the tangent's margins through the mv-sigmoid instead of the normal CDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from robaudit.estimators.base import P_ROBUST, Estimate, Estimator, Need, Quantity
from robaudit.estimators.gaussian import plain_estimates
from robaudit.estimators.taylor import clean_limits
from robaudit.estimators.work import Work
from robaudit.numerics.moments import mv_sigmoid


class TaylorMvSigmoid(Estimator):
    """1 / (1 + sum_i exp(-z_i)) with the z of `taylor`; needs no covariance and no CDF.

    An approximation of an approximation, kept because it is the published cheap form and smooth in its inputs.
    Prefer `taylor` unless you compare with published numbers. No interval.

    Source: spec 1, estimator 5 (Han et al., p_taylor_mvs).
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    linearises_clean: ClassVar[bool] = True
    summary: ClassVar[str] = "mv-sigmoid of the margins, linearised at the clean image"
    prefer: ClassVar[str] = "comparison with published numbers; else taylor"
    source: ClassVar[str] = "Han et al., p_taylor_mvs"

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and one backward pass for each margin."""
        return 1, classes - 1

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Evaluate the mv-sigmoid of the tangent margins."""
        z, _ = clean_limits(work)
        return plain_estimates(mv_sigmoid(z).tolist(), work.nearest(z), self.passes(work.classes))
