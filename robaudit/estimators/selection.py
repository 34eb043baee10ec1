"""Which classes can matter to a linear fit, judged from a few forward passes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from robaudit.estimators.base import Estimator
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import total

ALL = 32
"""A model with no more margins than this has all of them differentiated, always."""

SELECTING_FORWARDS = 8
_FEWEST, _BUDGET, _VISIBLE = 8, 1e-4, 5e-4
_KEEPING, _REPORTING = 1.25, 1.125  # s larger than estimated by so much


@dataclass(frozen=True, slots=True)
class Kept:
    """Margins kept of each image, the smallest estimated z first.

    Attributes:
        others: class behind each margin kept (images, most), -1 beyond an image's own number.
        counts: margins kept (images,).
        failure: estimated sum of Phi(-z) over the classes left out, at most the estimated Phi(min z) (images,), float64.
        odds: estimated sum of exp(-z) over the classes left out (images,), float64.
    """

    others: Tensor
    counts: Tensor
    failure: Tensor
    odds: Tensor

    def odds_effect(self, p: Tensor) -> Tensor:
        """How far the mv-sigmoid p of the margins kept would fall with those left out: p - 1 / (1 / p + sum exp(-z))."""
        return p * p * self.odds / (1 + p * self.odds)


def keep_margins(mean: Tensor, variance: Tensor, others: Tensor, most: int) -> Kept:
    """Keep the margins with the smallest z = m / s: as few as leave out an estimated failure probability below 1e-4, 8 to ``most``.

    A variance from few draws is easily too small: it is raised half-way to the median over the image's classes where it is below
    it. The number kept is decided with s a quarter larger still, and what is left out is estimated with s an eighth larger.
    For any set K of margins that contains the smallest z, P[K] - sum over the rest of Phi(-z) <= P[all] <= P[K] <= Phi(min z).

    Args:
        mean: estimated means m (images, margins), float64.
        variance: estimated variances s^2 (images, margins), float64.
        others: class behind each margin (images, margins).
        most: the most margins an image keeps, fewer than there are.
    """
    raised = torch.maximum(variance, (variance + _median(variance)) / 2)
    flat = raised <= 0
    z = torch.where(flat, torch.where(mean > 0, torch.inf, -torch.inf), mean / torch.where(flat, 1.0, raised).sqrt())
    z, order = z.sort(dim=1, stable=True)
    counts = (_left_out(z / _KEEPING) > _BUDGET).sum(1).clamp(min(_FEWEST, most), most)
    chosen = others.gather(1, order[:, :most])
    chosen = torch.where(torch.arange(most, device=z.device) < counts[:, None], chosen, -1)
    z = z / _REPORTING
    beyond = torch.arange(z.shape[1], device=z.device) >= counts[:, None]
    return Kept(
        others=chosen,
        counts=counts,
        failure=_left_out(z).gather(1, counts[:, None])[:, 0],
        odds=total(torch.where(beyond, torch.exp(-z.clamp_min(-700)), 0.0)),
    )


def _median(variance: Tensor) -> Tensor:
    """The lower median of each row (rows, 1), NaN where the row has one; torch's own is not deterministic on CUDA."""
    ranked = variance.sort(1).values  # NaN is last
    return torch.where(ranked[:, -1:].isnan(), torch.nan, ranked[:, (ranked.shape[1] - 1) // 2, None])


def _left_out(z: Tensor) -> Tensor:
    """min(Phi(z_0), sum_{j >= i} Phi(-z_j)): what leaving out all margins from i on can change; z ascending (images, margins)."""
    tail = normal_cdf(-z).flip(1).cumsum(1).flip(1)
    return torch.minimum(tail, normal_cdf(z[:, :1]))


class FewClasses(Estimator):
    """What the estimators that differentiate margins share: gradients of the classes that can matter only.

    With at most 33 classes all margins are differentiated. With more, 8 further forward passes estimate mean and standard deviation
    of every margin; the 8 to ``classes`` smallest in units of their standard deviation are kept, until those left out hold less
    than about 1e-4 of failure. Where more than 5e-4 may be missing, ``note`` says so: an estimate, not a bound.
    """

    classes: int = Field(32, ge=8, le=10**6, description="with more than 33 classes: the most classes whose gradients are taken")

    def most(self, classes: int) -> int | None:
        """The most margins kept of a model with so many classes; None where all of them are."""
        return None if classes - 1 <= max(ALL, self.classes) else self.classes


def left_out_notes(missing: Tensor | None, notes: Sequence[str]) -> list[str]:
    """The notes, with a remark where the estimated effect of the classes left out, (images,), could show."""
    if missing is None:
        return list(notes)
    remarks = [f"classes left out: about {m:.0e} of failure (estimated)" if m > _VISIBLE else "" for m in missing.tolist()]
    return ["; ".join(filter(None, pair)) for pair in zip(notes, remarks, strict=True)]
