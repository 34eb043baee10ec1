"""`taylor`: the robustness of the tangent at the clean image, and `taylor_mvs`, the same through
the mv-sigmoid."""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.engine.selection import SELECTING_FORWARDS
from robaudit.methods.average_case.linearised import FewClasses, linked
from robaudit.numerics.margins import standardise
from robaudit.results import Result


class Taylor(FewClasses):
    """Phi_R(z) with z_i = g_i(x) / (sigma ||u_i||), u_i = grad g_i(x), R the correlations of the
    u_i . eps.

    Exact for linear models. For other models it sees only the slope at the clean image and is
    usually far too optimistic; it claims no interval. Prefer `mmse`, or `mc` if you can afford it.
    Cost: two forward and classes - 1 backward passes, for all sigmas; with more than 33 classes 10
    forward and 8 to ``classes`` backward passes, at each sigma.

    Source: Han et al., Average-case robustness, Lemma 3.1 and Proposition 3.1 (p_taylor); section
    3.2.3 (p_taylor_mvs).
    """

    needs = Need.LEVEL | Need.GRADIENTS | Need.COVARIANCE
    summary = "normal CDF of the margins, linearised at the clean image"
    prefer = "linear models (exact there) or a first look in seconds; optimistic for networks"
    source = "Han et al., p_taylor"

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, a differentiated pass, a backward pass per margin, and beyond 33 classes
        the passes that select."""
        most = self.most_margins(classes)
        if most is None:
            return 2, classes - 1
        return 2 + SELECTING_FORWARDS, most

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Put the tangent's margins, c_i = g_i(x) with covariance sigma^2 u_i . u_j, through the
        link."""
        tangent = batch.tangent(self.most_margins(batch.classes))
        selection = tangent.selection
        # Lemma 3.1 of Han et al.: z_i = c_i / (sigma |u_i|), R the correlations of the u_i . eps
        z, r = standardise(tangent.mean, batch.amplitude**2 * tangent.gram)
        p, _, notes = linked(self.link, z, r, selection, len(z))
        forwards, _ = self.passes(batch.classes)
        nearest = batch.nearest(z, selection)
        rows = zip(p.tolist(), nearest, selection.counts.tolist(), notes, strict=True)
        return [
            Result(value=value, flips_to=flip, forwards=forwards, backwards=margins, note=note)
            for value, flip, margins, note in rows
        ]


class TaylorMvSigmoid(Taylor):
    """1 / (1 + sum_i exp(-z_i)) with the z of `taylor`, which needs neither covariance nor CDF.

    An approximation of an approximation: the published cheap form, smooth in its inputs. No
    interval.

    Source: Han et al., Average-case robustness, section 3.2.3 (p_taylor_mvs).
    """

    summary = "mv-sigmoid of the margins, linearised at the clean image"
    prefer = "comparison with published numbers; else taylor"
    source = "Han et al., p_taylor_mvs"

    link = "mv_sigmoid"
