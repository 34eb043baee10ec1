"""`mmse_mvs`: the linear fit under the noise through the mv-sigmoid instead of the normal CDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from robaudit.estimators.base import Estimate
from robaudit.estimators.mmse import NoisyLinearOptions, fitted_limits
from robaudit.estimators.selection import left_out_notes
from robaudit.estimators.work import Work
from robaudit.numerics.jackknife import jackknife, logit, logit_inverse
from robaudit.numerics.margins import mv_sigmoid


class MmseMvSigmoid(NoisyLinearOptions):
    """1 / (1 + sum_i exp(-z_i)) with the z of `mmse`, from the same draws.

    The interval is the delete-one-group jackknife on the logit scale; like that of `mmse` it covers sampling only.
    Prefer `mmse` unless you compare with published numbers.

    Source: spec 1, estimator 5 (Han et al., p_mmse_mvs).
    """

    summary: ClassVar[str] = "mv-sigmoid of the margins, linearised over the noise"
    prefer: ClassVar[str] = "comparison with published numbers; else mmse"
    source: ClassVar[str] = "Han et al., p_mmse_mvs"

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Fit, evaluate the mv-sigmoid, and repeat without each group for the interval."""
        linear = self.linear(work)
        z, _ = fitted_limits(work, linear)
        left_out = [mv_sigmoid(fitted_limits(work, linear, g)[0]) for g in self.leave_out()]
        p = mv_sigmoid(z)
        spread = jackknife(p, left_out, logit, logit_inverse)
        missing = None if linear.kept is None else linear.kept.odds_effect(p)
        return self.estimates(work, linear, spread, z, left_out_notes(missing, [""] * len(z)))
