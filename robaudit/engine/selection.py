"""The selection of the margins that can matter: with many classes, only these are
differentiated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import total

ALL = 32
"""The most margins that are all differentiated; of more, the important ones are selected."""

SELECTING_FORWARDS = 8
"""Noisy copies of an image that select the margins: few beside the 8 to 32 backward passes."""

_FEWEST = 8  # selected margins, even if the estimate asks for fewer
_BUDGET = 1e-4  # estimated failure probability that may be left out: a tenth of the CDF's tolerance
# An s from 8 draws is easily too small. These factors on it select margins, and estimate what was
# left out; with them, 2 of 2,077 estimates without a note were off by more than 1e-3
# (docs/research/average_case.md, "Many classes").
_SELECTING_FACTOR = 1.25
_REPORTING_FACTOR = 1.125


@dataclass(frozen=True, slots=True)
class Selection:
    """The margins selected for each image, the smallest estimated z first; or all of them, by
    class.

    Attributes:
        others: class of each selected margin (images, most), -1 as padding.
        counts: number of selected margins (images,).
        failure: estimated sum of Phi(-z) over the classes left out (images,), float64; at most the
            estimated Phi(min z).
        odds: estimated sum of exp(-z) over the classes left out (images,), float64.
    """

    others: Tensor
    counts: Tensor
    failure: Tensor
    odds: Tensor

    def odds_effect(self, p: Tensor) -> Tensor:
        """The amount by which the omitted margins would lower the mv-sigmoid p (images,)."""
        # p = 1 / (1 + sum exp(-z)) (Han et al., the mv-sigmoid) becomes 1 / (1 / p + odds), and
        # p - 1 / (1 / p + odds) = p^2 odds / (1 + p odds), in which nothing cancels.
        return p * p * self.odds / (1 + p * self.odds)


def keep_margins(mean: Tensor, variance: Tensor, others: Tensor, most: int) -> Selection:
    """Select the fewest margins that leave out an estimated failure probability below 1e-4, but at
    least 8 and at most ``most``.

    The margins with the smallest z = m / s come first. A variance from few draws is easily too
    small: below the median over the image's classes it is raised half-way to the median. The number
    selected uses s a quarter larger still, and the estimate of the omitted probability uses s an
    eighth larger. For any set K of margins that contains the smallest z, P[K] - sum over the rest
    of Phi(-z) <= P[all] <= P[K] <= Phi(min z).

    Args:
        mean: estimated means m (images, margins), float64.
        variance: estimated variances s^2 (images, margins), float64.
        others: class of each margin (images, margins).
        most: largest number of selected margins, fewer than there are margins.
    """
    raised = torch.maximum(variance, (variance + _median(variance)) / 2)
    # A margin without variance never changes its sign: z is infinite, with the sign of the mean.
    flat = raised <= 0
    without_noise = torch.where(mean > 0, torch.inf, -torch.inf)
    deviation = torch.where(flat, 1.0, raised).sqrt()  # 1 where it is not used
    z = torch.where(flat, without_noise, mean / deviation)
    z, order = z.sort(dim=1, stable=True)
    # The effect of leaving out the margins from i on falls with i, so the number of those that are
    # too large is the number of margins to select.
    wanted = (_left_out(z / _SELECTING_FACTOR) > _BUDGET).sum(1)
    counts = wanted.clamp(min(_FEWEST, most), most)
    chosen = others.gather(1, order[:, :most])
    is_selected = torch.arange(most, device=z.device) < counts[:, None]
    chosen = torch.where(is_selected, chosen, -1)
    z = z / _REPORTING_FACTOR
    omitted = torch.arange(z.shape[1], device=z.device) >= counts[:, None]
    odds = torch.exp(-z.clamp_min(-700))  # exp of more than 709.8 overflows a float64
    return Selection(
        others=chosen,
        counts=counts,
        failure=_left_out(z).gather(1, counts[:, None])[:, 0],
        odds=total(torch.where(omitted, odds, 0.0)),
    )


def _median(variance: Tensor) -> Tensor:
    """The lower median of each row (rows, 1); NaN if the row has a NaN."""
    # torch's own median is not deterministic on CUDA.
    ranked = variance.sort(1).values  # NaN is last
    middle = ranked[:, (ranked.shape[1] - 1) // 2, None]
    return torch.where(ranked[:, -1:].isnan(), torch.nan, middle)


def _left_out(z: Tensor) -> Tensor:
    """The largest effect of leaving out the margins from i on (images, margins), for ascending z.

    It is min(Phi(z_0), sum_{j >= i} Phi(-z_j)), by the bounds in :func:`keep_margins`.
    """
    tail = normal_cdf(-z).flip(1).cumsum(1).flip(1)
    return torch.minimum(tail, normal_cdf(z[:, :1]))
