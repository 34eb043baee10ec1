"""The published path sampler: Hamiltonian Monte Carlo in a box with reflection, one chain, for comparison only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import mean_over, total

Slopes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Image of each row (rows,) and pixels (rows, *shape) -> log l (rows,), float64, and its gradient (rows, *shape)."""

Normals = Callable[[], Tensor]
"""Independent standard normal variables, one set for each image, new ones at every call."""

MOMENTUM = 0.1
"""Standard deviation of the momentum."""


@dataclass(frozen=True, slots=True)
class Published:
    """Parameters of the published sampler; the path of the reference program is .6, .6, .4 and .2 for q = 1, 10, 100 and 1000 on MNIST
    (m = 100, L = 20), .6, .6, .4 and .09 on CIFAR-10 (m = 50, L = 10).

    Attributes:
        temperatures: m.
        leapfrogs: L, the steps of one trajectory.
        path: the length of a trajectory for unit momentum.
    """

    temperatures: int = 50
    leapfrogs: int = 10
    path: float = 0.4

    @property
    def gradients(self) -> int:
        """Gradients for one q: those of all trajectories, and that of the first point."""
        return 1 + self.temperatures * self.leapfrogs


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """What one run gives, for each image (images,), float64.

    Attributes:
        log_z: the mean of the recorded log l.
        highest: the highest log l of all points that were computed.
    """

    log_z: Tensor
    highest: Tensor


def published_path(
    slopes: Slopes, low: Tensor, high: Tensor, q: float, parameters: Published, momenta: Normals, thresholds: Normals
) -> PublishedRun:
    """log Z_q of the uniform distribution on a box, as the reference program of Rice et al. computes it.

    The chain begins with a uniform draw and makes one trajectory at each t_i = q i / m, i = 0 ... m - 1, with momentum p ~ N(0, .1^2):
    L leapfrog steps of length a = path .1^2 / L for H = -t log l + |p|^2 / (2 .1^2), folded at the walls. log l is recorded before
    each move, so that the last record belongs to t = q (m - 2) / m: the value is low. Each q needs a run of its own.

    The fold is in closed form here, y = (v - low) mod 2w, mirrored with the momentum negated where y > w: the same as reflecting again
    and again, which in the reference program never ends where w = 0.

    Args:
        slopes: log l and its gradient.
        low, high: the box (images, *shape), low <= high.
        q: the order.
        parameters: m, L and the length of the path.
        momenta: standard normal variables (images, *shape): the first make the first point, the m others the momenta.
        thresholds: standard normal variables (images,) for the m decisions: accepted where Phi of it is below the probability.

    Source: Rice et al. 2021, algorithm 1 and section 4.2.
    """
    image = torch.arange(len(low), device=low.device)
    across = (-1,) + (1,) * (low.ndim - 1)
    width = high - low
    step = parameters.path * MOMENTUM**2 / parameters.leapfrogs
    x = low + width * normal_cdf(momenta().double()).to(low.dtype)
    log_l, gradient = slopes(image, x)
    records, highest = [], log_l.clone()
    for number in range(parameters.temperatures):
        t = q * number / parameters.temperatures
        records.append(log_l)
        p = momenta() * MOMENTUM
        before = _kinetic(p)
        there, log_there, slope = x, log_l, gradient
        for _ in range(parameters.leapfrogs):
            p = p + slope * (t * step / 2)
            there, turned = _fold(there + p * (step / MOMENTUM**2), low, width)
            p = torch.where(turned, -p, p)
            log_there, slope = slopes(image, there)
            p = p + slope * (t * step / 2)
            highest = torch.maximum(highest, log_there)
        energy = (t * (log_there - log_l) if t else torch.zeros_like(log_l)) + before - _kinetic(p)
        taken = normal_cdf(thresholds().double()) < energy.clamp_max(0.0).exp().nan_to_num(0.0)
        x, gradient = (torch.where(taken.view(across), new, old) for new, old in ((there, x), (slope, gradient)))
        log_l = torch.where(taken, log_there, log_l)
    return PublishedRun(mean_over(torch.stack(records, 1), 1), highest)


def _kinetic(p: Tensor) -> Tensor:
    """|p|^2 / (2 .1^2) of each row, float64."""
    return total(p.flatten(1).double().square()) / (2 * MOMENTUM**2)


def _fold(v: Tensor, low: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """Points reflected into the box, and where an odd number of reflections turned the momentum."""
    wide = torch.where(width > 0, 2 * width, 1.0)
    y = torch.where(width > 0, torch.remainder(v - low, wide), 0.0)
    turned = y > width
    return low + torch.where(turned, wide - y, y), turned
