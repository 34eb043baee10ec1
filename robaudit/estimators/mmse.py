"""`mmse`: how robust is the best linear fit of the margins under the noise?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from robaudit.estimators import sizes
from robaudit.estimators.base import P_ROBUST, Estimate, Need, Quantity
from robaudit.estimators.gaussian import cdf_notes
from robaudit.estimators.jackknife import Spread, jackknife, probit, probit_inverse
from robaudit.estimators.selection import SELECTING_FORWARDS, FewClasses, left_out_notes
from robaudit.estimators.work import Linear, Work
from robaudit.numerics.moments import standardise
from robaudit.numerics.mvn import mvn_cdf

_GROUPS = 8
AT_ONCE = 2**20
"""Gradient values of so many are averaged at once."""


FEW_DRAWS = "jackknife:few-draws:sampling-only"
"""Interval of so few draws that it covers .90 to .97 instead of .95 where gradients vary strongly (docs/coverage.md)."""

SETTLED = 64
"""Draws from which on it was found to cover."""


class NoisyLinearOptions(FewClasses):
    """What `mmse` and `mmse_mvs` share: their options, their cost and their grouped draws.

    Args:
        samples: noisy copies of each image (5 to 10 are said to be enough; 500 to 1,000 are converged).
        pairs: draw antithetic pairs (+eps, -eps); False is the published form.
        classes: with more than 33 classes, the most classes differentiated.
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    interval: ClassVar[str] = "jackknife:sampling-only"

    samples: int = Field(10, ge=1, le=10**6, description="noisy copies of each image")
    pairs: bool = Field(True, description="antithetic pairs (+eps, -eps); false is the published form")

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.pairs and self.samples % 2:
            raise ValueError(f"pairs need an even number of samples, got {self.samples}; take {self.samples + 1} or pairs: false")
        return self

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, a forward pass for each draw and a backward pass for each draw and margin; those that select classes."""
        most = self.most(classes)
        return 1 + (0 if most is None else SELECTING_FORWARDS) + self.samples, self.samples * (most or classes - 1)

    def with_draws(self, draws: int) -> Self | None:
        """See the base class."""
        return self._redrawn(draws)

    def held(self, classes: int, values: int) -> int:
        """What selects the margins, then the fit's gradients in groups and a normal CDF (one group after the other)."""
        most = self.most(classes)
        margins = most or classes - 1
        selected = 0 if most is None else sizes.selection(classes)
        return sizes.RECORD + max(selected, sizes.linear_fit(self._groups, margins, values) + sizes.normal_cdf(margins))

    def held_once(self, classes: int, values: int) -> int:
        """The mean gradients of a few images, with copies."""
        return sizes.WORK_SPACE + 16 * max(AT_ONCE, (self.most(classes) or classes - 1) * values)

    def linear(self, work: Work) -> Linear:
        """The fit of each image in at most 8 groups of draws (pairs stay together)."""
        return work.noisy_linear(self.samples, pairs=self.pairs, groups=self._groups, most=self.most(work.classes))

    def leave_out(self) -> range:
        """The groups that the jackknife leaves out in turn; none if there is a single one."""
        return range(self._groups if self._groups > 1 else 0)

    @property
    def _groups(self) -> int:
        return min(_GROUPS, self.samples // 2 if self.pairs else self.samples)

    def estimates(self, work: Work, linear: Linear, spread: Spread, z: Tensor, notes: Sequence[str]) -> list[Estimate]:
        """Rows from values and their jackknife spread."""
        forwards, backwards = self.passes(work.classes)
        taken = [backwards] * len(z) if linear.kept is None else (self.samples * linear.kept.counts).tolist()
        rows = zip(*(spread.lists()), work.nearest(z, linear.others), taken, notes, strict=True)
        return [
            Estimate(
                value=p,
                lower=lower,
                upper=upper,
                std_error=error,
                flips_to=flip,
                forwards=forwards,
                backwards=backward,
                interval="none" if lower is None else self.interval if self.samples >= SETTLED else FEW_DRAWS,
                note=note,
            )
            for p, lower, upper, error, flip, backward, note in rows
        ]


def fitted_limits(work: Work, linear: Linear, without: int | None = None) -> tuple[Tensor, Tensor]:
    """z and R of the mean fit over the groups, leaving out one group if asked (spec 1, estimator 4).

    The gradients' covariances are taken a few images at a time: nothing of the size of all gradients is held but they themselves.
    """
    counts = [0 if g == without else count for g, count in enumerate(linear.counts.tolist())]
    mean = _weighted(linear.mean, counts)
    n, k = mean.shape
    covariance = torch.empty((n, k, k), dtype=torch.float64, device=mean.device)
    few = max(1, AT_ONCE // max(1, linear.gradients[0, 0].numel()))
    for gradients, out in zip(linear.gradients.split(few), covariance.split(few), strict=True):
        out.copy_(work.engine.noise.gram(_weighted(gradients, counts)))
    return standardise(mean, work.sigma**2 * covariance)


def _weighted(values: Tensor, counts: Sequence[int]) -> Tensor:
    """Mean over the groups (dimension 1), weighted by their counts. Element by element, so that an image's result is its own
    whatever the number of images: matrix products would add in another order.
    """
    weights = [count / sum(counts) for count in counts]
    total = values[:, 0] * weights[0]
    for group, weight in enumerate(weights[1:], 1):
        total += values[:, group] * weight
    return total


class Mmse(NoisyLinearOptions):
    """Phi_R(z) with c_i = mean_j g_i(x + eps_j) and u_i = mean_j grad g_i(x + eps_j): the least-squares linear fit under the noise.

    t stays the class of the clean image. Exact for linear models (with pairs at once; iid draws leave an error of sd
    1/sqrt(samples) in z). The interval is a delete-one-group jackknife over the draws on the probit scale: it covers sampling and, to
    first order, the bias of few draws (noise in the mean gradients lengthens them), not the bias of linearising. With 10 draws of
    strongly varying gradients it covers .90 instead of .95 at worst (docs/coverage.md): rows of
    fewer than 64 draws say "few-draws". Prefer it to `taylor` for networks, and `mc` to both where it can be afforded.

    Source: spec 1, estimator 4 (Han et al., p_mmse; Stein's lemma).
    """

    summary: ClassVar[str] = "normal CDF of the margins, linearised over the noise"
    prefer: ClassVar[str] = "smooth networks with few classes, when mc is too dear; its interval leaves out the linearisation bias"
    source: ClassVar[str] = "Han et al., p_mmse"

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Fit, evaluate the normal CDF, and repeat without each group for the interval."""
        linear = self.linear(work)
        z, r = fitted_limits(work, linear)
        p, error = mvn_cdf(z, r)
        left_out = [mvn_cdf(*fitted_limits(work, linear, g))[0] for g in self.leave_out()]
        p = p.clamp(0, 1)
        spread = jackknife(p, left_out, probit, probit_inverse).widened(error)
        missing = None if linear.kept is None else torch.minimum(linear.kept.failure, p)
        return self.estimates(work, linear, spread, z, left_out_notes(missing, cdf_notes(error)))
