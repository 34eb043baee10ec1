"""`mmse`: the robustness of the best linear fit of the margins under the noise, and `mmse_mvs`, the
same through the mv-sigmoid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from robaudit.engine.batch import ImageBatch, LinearFit
from robaudit.engine.selection import SELECTING_FORWARDS
from robaudit.methods.average_case.jackknife import jackknife, logit, logit_inverse
from robaudit.methods.average_case.linearised import FewClasses, linked
from robaudit.numerics.margins import standardise
from robaudit.numerics.normal import normal_cdf
from robaudit.quantities import NO_INTERVAL, Interval, IntervalKind
from robaudit.results import Result
from robaudit.spec.fields import SAMPLES_ARE_DRAWS

_GROUPS = 8  # of draws, for the jackknife
# The scale on which the jackknife's interval is symmetric, and its inverse: the probit for the
# normal CDF, the logit for the mv-sigmoid.
_SCALES = {"normal_cdf": (torch.special.ndtri, normal_cdf), "mv_sigmoid": (logit, logit_inverse)}
_AT_ONCE = 2**20  # gradient values averaged at once


class Mmse(FewClasses):
    """Phi_R(z) with c_i = mean_j g_i(x + eps_j) and u_i = mean_j grad g_i(x + eps_j): the
    least-squares linear fit under the noise.

    t stays the class of the clean image. Exact for linear models (with pairs at once; iid draws
    leave an error in z with standard deviation 1/sqrt(draws)). The interval is a delete-one-group
    jackknife over the draws, on the probit scale (``mv_sigmoid``: logit): it covers sampling and,
    to first order, the bias of few draws (noise in the mean gradients lengthens them), not the bias
    of linearising, so rows say "approximate" (docs/research/coverage.md measures coverage). Prefer
    it to `taylor` for networks, and `mc` to both if you can afford it. The paper finds 5 to 10
    draws enough; 500 to 1,000 are converged.

    Source: Han et al., Average-case robustness, Proposition 3.3 (p_mmse; Stein's lemma in appendix
    A.1); section 3.2.3 (p_mmse_mvs).
    """

    interval = Interval(IntervalKind.JACKKNIFE, covers_bias=False)
    summary = "normal CDF of the margins, linearised over the noise"
    prefer = (
        "smooth networks with few classes, when mc is too expensive; its interval leaves "
        "out the linearisation bias"
    )
    source = "Han et al., p_mmse"

    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(10, ge=1, le=10**6, description="noisy copies of each image")
    pairs: bool = Field(
        True, description="antithetic pairs (+eps, -eps); false is the published form"
    )

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.pairs and self.draws % 2:
            raise ValueError(
                f"pairs need an even number of draws, got {self.draws}; take "
                f"{self.draws + 1} or pairs: false"
            )
        return self

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, a forward pass per draw, a backward pass per draw and margin, and the
        passes that select classes."""
        most = self.most_margins(classes)
        if most is None:
            return 1 + self.draws, self.draws * (classes - 1)
        return 1 + SELECTING_FORWARDS + self.draws, self.draws * most

    def linear(self, batch: ImageBatch) -> LinearFit:
        """The fit of each image in at most 8 groups of draws (pairs stay together)."""
        independent = self.draws // 2 if self.pairs else self.draws
        groups = min(_GROUPS, independent)
        most = self.most_margins(batch.classes)
        return batch.noisy_linear(self.draws, pairs=self.pairs, groups=groups, most=most)

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Fit, put the margins through the link, and repeat without each group for the interval."""
        linear = self.linear(batch)
        selection = linear.selection
        z, r = _fitted_limits(batch, linear)
        n = len(batch.x)
        probabilities, errors, notes = linked(self.link, z, r, selection, n)
        p, *left_out = probabilities.split(n)
        # A single group has no jackknife.
        intervals: Iterable[Sequence[float | None]] = [(None, None, None)] * n
        if left_out:
            spread = jackknife(p, left_out, *_SCALES[self.link])
            if errors is not None:
                spread = spread.widened(errors[:n])
            intervals = zip(*(column.tolist() for column in spread), strict=True)
        forwards, _ = self.passes(batch.classes)
        backwards = (self.draws * selection.counts).tolist()
        nearest = batch.nearest(z[:n], selection)
        rows = zip(p.tolist(), intervals, nearest, backwards, notes, strict=True)
        return [
            Result(
                value=value,
                lower=lower,
                upper=upper,
                std_error=error,
                flips_to=flip,
                forwards=forwards,
                backwards=backward,
                interval=NO_INTERVAL if lower is None else self.interval,
                note=note,
            )
            for value, (lower, upper, error), flip, backward, note in rows
        ]


class MmseMvSigmoid(Mmse):
    """1 / (1 + sum_i exp(-z_i)) with the z of `mmse`, from the same draws.

    Prefer `mmse` unless you compare with published numbers.

    Source: Han et al., Average-case robustness, section 3.2.3 (p_mmse_mvs).
    """

    summary = "mv-sigmoid of the margins, linearised over the noise"
    prefer = "comparison with published numbers; else mmse"
    source = "Han et al., p_mmse_mvs"

    link = "mv_sigmoid"


def _fitted_limits(batch: ImageBatch, linear: LinearFit) -> tuple[Tensor, Tensor]:
    """z and R of the mean fit over all groups, and then, if there are several, without each group:
    (1 + left out) * images rows.

    The gradients' covariances are computed a few images at a time, so that memory holds the
    gradients only once.
    """
    counts_of_fits = _counts_of_fits(linear.counts.tolist())
    # c_i = mean_j g_i(x + eps_j), u_i = mean_j grad g_i(x + eps_j): Proposition 3.3 of Han et al.
    mean = torch.cat([_weighted(linear.mean, counts) for counts in counts_of_fits])
    rows, k = mean.shape
    covariance = torch.empty((rows, k, k), dtype=torch.float64, device=mean.device)
    images_at_once = max(1, _AT_ONCE // max(1, linear.gradients[0, 0].numel()))
    fits = covariance.chunk(len(counts_of_fits))  # (images, k, k) each
    for counts, fit in zip(counts_of_fits, fits, strict=True):
        pieces = zip(
            linear.gradients.split(images_at_once),
            batch.x.split(images_at_once),
            fit.split(images_at_once),
            strict=True,
        )
        for gradients, x, out in pieces:
            out.copy_(batch.gram(_weighted(gradients, counts), x))
    return standardise(mean, batch.amplitude**2 * covariance)


def _counts_of_fits(counts: list[int]) -> list[list[int]]:
    """The number of draws of each group in each fit: of all groups, and of all but one in turn."""
    fits = [counts]
    if len(counts) > 1:
        for left_out in range(len(counts)):
            fits.append([0 if group == left_out else n for group, n in enumerate(counts)])
    return fits


def _weighted(values: Tensor, counts: Sequence[int]) -> Tensor:
    """The mean over the groups (dimension 1), weighted by their counts.

    It adds element by element, so that a result does not depend on the number of images: matrix
    products would add in another order.
    """
    weights = [count / sum(counts) for count in counts]
    total = values[:, 0] * weights[0]
    for group, weight in enumerate(weights[1:], 1):
        total += values[:, group] * weight
    return total
