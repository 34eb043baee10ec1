"""`taylor`: how robust would the model be if it were its tangent at the clean image?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from robaudit.estimators import sizes
from robaudit.estimators.base import P_ROBUST, Estimate, Need, Quantity
from robaudit.estimators.gaussian import cdf_notes
from robaudit.estimators.selection import SELECTING_FORWARDS, FewClasses, left_out_notes
from robaudit.estimators.work import Tangent, Work
from robaudit.numerics.margins import standardise
from robaudit.numerics.mvn import mvn_cdf


class TangentOptions(FewClasses):
    """What `taylor` and `taylor_mvs` share: the classes differentiated, and their cost.

    Args:
        classes: with more than 33 classes, the most classes differentiated.
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    linearises_clean: ClassVar[bool] = True

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, one that is differentiated, and one backward pass for each margin; beyond 33 classes those that select."""
        most = self.most(classes)
        return 2 + (0 if most is None else SELECTING_FORWARDS), most or classes - 1

    def held(self, classes: int, values: int) -> int:
        """What selects the margins, then the covariance of their tangents: the gradients themselves do not stay."""
        most = self.most(classes)
        selected = 0 if most is None else sizes.selection(classes)
        return sizes.RECORD + max(selected, sizes.moments(most or classes - 1))

    def limits(self, work: Work) -> tuple[Tensor, Tensor, Tangent]:
        """z and R of the tangent at the clean images, c_i = g_i(x) and u_i = grad g_i(x) (spec 1, estimator 3)."""
        tangent = work.tangent(self.most(work.classes))
        return *standardise(tangent.mean, work.sigma**2 * tangent.gram), tangent

    def estimates(self, work: Work, p: Tensor, z: Tensor, tangent: Tangent, notes: Sequence[str]) -> list[Estimate]:
        """Rows without intervals."""
        forwards, backwards = self.passes(work.classes)
        taken = [backwards] * len(p) if tangent.kept is None else tangent.kept.counts.tolist()
        rows = zip(p.tolist(), work.nearest(z, tangent.others), taken, notes, strict=True)
        return [Estimate(value=v, flips_to=c, forwards=forwards, backwards=k, note=note) for v, c, k, note in rows]


class Taylor(TangentOptions):
    """Phi_R(z) with z_i = g_i(x) / (sigma ||u_i||), u_i = grad g_i(x), R the correlations of the u_i . eps.

    Exact for linear models. For others it sees only the slope at the clean image and is usually far too optimistic; it claims no
    interval. Prefer `mmse`, or `mc` where it can be afforded. Cost: two forward and classes - 1 backward passes, for all sigmas; with
    more than 33 classes 10 forward and 8 to ``classes`` backward passes, at each sigma.

    Source: spec 1, estimators 2 and 3 (Han et al., Taylor estimator).
    """

    summary: ClassVar[str] = "normal CDF of the margins, linearised at the clean image"
    prefer: ClassVar[str] = "linear models (exact there) or a first look in seconds; optimistic for networks"
    source: ClassVar[str] = "Han et al., p_taylor"

    def held(self, classes: int, values: int) -> int:
        """In the end a normal CDF."""
        return max(super().held(classes, values), sizes.RECORD + sizes.normal_cdf(self.most(classes) or classes - 1))

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Evaluate the normal CDF of the tangent margins."""
        z, r, tangent = self.limits(work)
        p, error = mvn_cdf(z, r)
        p = p.clamp(0, 1)
        missing = None if tangent.kept is None else torch.minimum(tangent.kept.failure, p)
        return self.estimates(work, p, z, tangent, left_out_notes(missing, cdf_notes(error)))
