"""`taylor`: how robust would the model be if it were its tangent at the clean image?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from robaudit.estimators.base import P_ROBUST, Estimate, Estimator, Need, Quantity
from robaudit.estimators.gaussian import orthant_estimates
from robaudit.estimators.work import Work
from robaudit.numerics.moments import standardise


def clean_limits(work: Work) -> tuple[Tensor, Tensor]:
    """z and R of the tangent at the clean images: c_i = g_i(x), u_i = grad g_i(x) (spec 1, estimator 3)."""
    if work.clean.gram is None:
        raise ValueError("the clean pass has recorded no gradients; declare linearises_clean")
    return standardise(work.clean.margins, work.sigma**2 * work.clean.gram)


class Taylor(Estimator):
    """Phi_R(z) with z_i = g_i(x) / (sigma ||u_i||), u_i = grad g_i(x), R the correlations of the u_i . eps.

    Exact for linear models. For others it sees only the slope at the clean image and is usually far too optimistic; it claims no
    interval. Prefer `mmse`, or `mc` where it can be afforded. Cost: one forward and classes - 1 backward passes, for all sigmas.

    Source: spec 1, estimators 2 and 3 (Han et al., Taylor estimator).
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    linearises_clean: ClassVar[bool] = True
    summary: ClassVar[str] = "normal CDF of the margins, linearised at the clean image"
    prefer: ClassVar[str] = "linear models (exact there) or a first look in seconds; optimistic for networks"
    source: ClassVar[str] = "Han et al., p_taylor"

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and one backward pass for each margin."""
        return 1, classes - 1

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Evaluate the normal CDF of the tangent margins."""
        z, r = clean_limits(work)
        return orthant_estimates(work, z, r, self.passes(work.classes))
