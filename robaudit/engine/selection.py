"""With many classes, the margins that can matter, which alone are differentiated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import total

ALL = 32
"""The most margins that are all differentiated; of more, the important ones are selected."""

SELECTING_FORWARDS = 8
"""Noisy copies of an image that select them."""

_FEWEST = 8
_BUDGET = 1e-4
# factors on the estimated s
_KEEPING = 1.25
_REPORTING = 1.125


@dataclass(frozen=True, slots=True)
class Selection:
    """The margins selected for each image, the smallest estimated z first; or all of them, by
    class.

    Attributes:
        others: class of each selected margin (images, most), -1 as padding.
        counts: number of selected margins (images,).
        failure: estimated sum of Phi(-z) over the classes left out, at most the estimated Phi(min
            z) (images,), float64.
        odds: estimated sum of exp(-z) over the classes left out (images,), float64.
    """

    others: Tensor
    counts: Tensor
    failure: Tensor
    odds: Tensor

    def odds_effect(self, p: Tensor) -> Tensor:
        """How far the omitted margins would lower the mv-sigmoid p: p - 1 / (1 / p + sum
        exp(-z))."""
        return p * p * self.odds / (1 + p * self.odds)


def keep_margins(mean: Tensor, variance: Tensor, others: Tensor, most: int) -> Selection:
    """Select the fewest margins, smallest z = m / s first, that leave out an estimated failure
    probability below 1e-4; 8 to ``most``.

    A variance from few draws is easily too small: below the median over the image's classes it is
    raised half-way to the median. The number selected uses s a quarter larger still, and the
    estimate of the omitted probability uses s an eighth larger. For any set K of margins that
    contains the smallest z, P[K] - sum over the rest of Phi(-z) <= P[all] <= P[K] <= Phi(min z).

    Args:
        mean: estimated means m (images, margins), float64.
        variance: estimated variances s^2 (images, margins), float64.
        others: class of each margin (images, margins).
        most: largest number of selected margins, fewer than there are margins.
    """
    raised = torch.maximum(variance, (variance + _median(variance)) / 2)
    flat = raised <= 0
    z = torch.where(
        flat,
        torch.where(mean > 0, torch.inf, -torch.inf),
        mean / torch.where(flat, 1.0, raised).sqrt(),
    )
    z, order = z.sort(dim=1, stable=True)
    counts = (_left_out(z / _KEEPING) > _BUDGET).sum(1).clamp(min(_FEWEST, most), most)
    chosen = others.gather(1, order[:, :most])
    chosen = torch.where(torch.arange(most, device=z.device) < counts[:, None], chosen, -1)
    z = z / _REPORTING
    beyond = torch.arange(z.shape[1], device=z.device) >= counts[:, None]
    return Selection(
        others=chosen,
        counts=counts,
        failure=_left_out(z).gather(1, counts[:, None])[:, 0],
        odds=total(torch.where(beyond, torch.exp(-z.clamp_min(-700)), 0.0)),
    )


def _median(variance: Tensor) -> Tensor:
    """The lower median of each row (rows, 1), NaN if the row has a NaN; torch's own median is not
    deterministic on CUDA."""
    ranked = variance.sort(1).values  # NaN is last
    return torch.where(
        ranked[:, -1:].isnan(), torch.nan, ranked[:, (ranked.shape[1] - 1) // 2, None]
    )


def _left_out(z: Tensor) -> Tensor:
    """min(Phi(z_0), sum_{j >= i} Phi(-z_j)): the largest effect of leaving out the margins from i
    on; z ascending (images, margins)."""
    tail = normal_cdf(-z).flip(1).cumsum(1).flip(1)
    return torch.minimum(tail, normal_cdf(z[:, :1]))
