"""log Z_q of a loss from tempered populations: sequential Monte Carlo with Metropolis moves, for noise without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robaudit.numerics.losses import log_norm
from robaudit.numerics.metropolis import Values, Walk, metropolis
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.path_sampling import PathEstimate
from robaudit.numerics.rowwise import mean_over, total
from robaudit.numerics.shifted_copies import Start


@dataclass(frozen=True, slots=True)
class Tempered:
    """Independent runs of populations.

    Attributes:
        log_mass: log E[l^t] at each temperature (temperatures, images, runs), float64.
        acceptance: of the moves at each temperature (temperatures, images), float64; 1 at the first.
        highest: the highest log l at any point (images,), float64.
        evaluations: of log l, for each image.
    """

    log_mass: Tensor
    acceptance: Tensor
    highest: Tensor
    evaluations: int


def evaluations_of(runs: int, particles: int, temperatures: int, moves: int) -> int:
    """Evaluations of log l that :func:`temper` makes for an image."""
    return runs * particles * (1 + (temperatures - 1) * moves)


def temper(
    values: Values,
    normals: Callable[[], Tensor],
    thresholds: Callable[[], Tensor],
    runs: int,
    particles: int,
    temperatures: Sequence[float],
    moves: int,
) -> Tempered:
    """Take populations from N(0, I) through p_t(z) ~ l(z)^t N(z; 0, I).

    From one temperature to the next, particles weigh l^(difference): the mean weight is the ratio of the masses, without bias. They are
    then drawn anew by their weights (systematically, in each run by itself) and moved (:mod:`robaudit.numerics.metropolis`).

    Args:
        values: log l.
        normals: standard normal variables (images x runs x particles, *shape), new ones at each call.
        thresholds: standard normal numbers (images x runs x particles,), likewise.
        runs, particles: independent runs of each image, and the population of each.
        temperatures: ascending, the first 0.
        moves: at each temperature.

    Source: Del Moral, Doucet and Jasra 2006, Sequential Monte Carlo samplers.
    """
    walk = Walk.at(values, normals(), runs * particles)
    images, made = len(walk.angle), 0
    shape = (images, runs, particles)
    log_mass = torch.zeros((len(temperatures), images, runs), dtype=torch.float64, device=walk.z.device)
    acceptance = torch.ones((len(temperatures), images), dtype=torch.float64, device=walk.z.device)
    first = torch.arange(images * runs, device=walk.z.device).view(images, runs, 1) * particles
    place = torch.arange(particles, dtype=torch.float64, device=walk.z.device)
    for k in range(1, len(temperatures)):
        log_weight = (temperatures[k] - temperatures[k - 1]) * walk.log_l.view(shape)
        highest = log_weight.amax(2, keepdim=True).clamp_min(-1e300)
        weight = torch.exp(log_weight - highest)
        cumulated = weight.cumsum(2)
        mass = cumulated[..., -1]
        log_mass[k] = log_mass[k - 1] + highest[..., 0] + torch.log(mass / particles)
        start = normal_cdf(thresholds().view(shape)[..., :1])
        drawn = torch.searchsorted(cumulated, (place + start) / particles * mass[..., None]).clamp_max(particles - 1)
        row = (first + drawn).flatten()
        walk.z, walk.log_l = walk.z[row], walk.log_l[row]
        acceptance[k] = metropolis(values, walk, temperatures[k], moves, normals, thresholds, first=made)
        made += moves
    best = walk.highest.view(images, runs * particles).amax(1)
    return Tempered(log_mass, acceptance, best, evaluations_of(runs, particles, len(temperatures), moves))


def population_estimates(
    tempered: Tempered, temperatures: Sequence[float], orders: Sequence[float], begun: Sequence[Start]
) -> list[PathEstimate]:
    """log Z at every order: the copies give E[l^s] up to a temperature s, the mean over runs the rest.

    Between temperatures log E[l^t] follows the cubic spline through them. The gap is twice what the mean of the runs' own log Z is below
    the value: log Z is low on average where the runs differ.
    """
    from scipy.interpolate import CubicSpline

    spline, found = CubicSpline(temperatures, np.eye(len(temperatures))), []
    for q, start in zip(orders, begun, strict=True):
        weights = torch.from_numpy(spline(q) - spline(start.temperature.cpu().numpy())).to(tempered.log_mass)  # (images, temperatures)
        each = total(tempered.log_mass * weights.T[..., None], 0) / q
        more, _ = log_norm(each, q)
        found.append(PathEstimate.of(q, start, more, each, 2 * (more - mean_over(each, 1))))
    return found
