"""`taylor_mvs`: the tangent's margins through the mv-sigmoid instead of the normal CDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from robaudit.estimators.base import Estimate
from robaudit.estimators.selection import left_out_notes
from robaudit.estimators.taylor import TangentOptions
from robaudit.estimators.work import Work
from robaudit.numerics.margins import mv_sigmoid


class TaylorMvSigmoid(TangentOptions):
    """1 / (1 + sum_i exp(-z_i)) with the z of `taylor`; needs no covariance and no CDF.

    An approximation of an approximation, kept because it is the published cheap form and smooth in its inputs.
    Prefer `taylor` unless you compare with published numbers. No interval.

    Source: spec 1, estimator 5 (Han et al., p_taylor_mvs).
    """

    summary: ClassVar[str] = "mv-sigmoid of the margins, linearised at the clean image"
    prefer: ClassVar[str] = "comparison with published numbers; else taylor"
    source: ClassVar[str] = "Han et al., p_taylor_mvs"

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Evaluate the mv-sigmoid of the tangent margins."""
        z, _, tangent = self.limits(work)
        p = mv_sigmoid(z)
        missing = None if tangent.kept is None else tangent.kept.odds_effect(p)
        return self.estimates(work, p, z, tangent, left_out_notes(missing, [""] * len(z)))
