"""How likely is it that at least one of many rarely failing limits fails, while the others hold?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.lattice import random_shifts, shifted_lattice
from robaudit.numerics.normal import normal_quantile
from robaudit.numerics.ordering import Pivoting

SHIFTS = 16
_ELEMENTS = {"cpu": 1 << 17, "other": 1 << 23}  # rows x variables x points of one operation


def union_failure(
    upper: Tensor, correlation: Tensor, pivoting: Pivoting, rare: Tensor, *, start: int, stop: int, seed: int, kind: torch.dtype
) -> Tensor:
    """P[all limits outside `rare` hold, some limit in `rare` fails], each draw conditioned on a failure.

    A failing variable e is chosen with probability q_e / sum(q), q_e = Phi(-upper_e); its value is drawn beyond its
    limit and the others follow. The mean of 1[others hold] / (number of rare failures) times sum(q) is the probability:
    each configuration is reached once for every failure in it. The relative error is bounded however small q is.

    Args:
        upper: limits (rows, k).
        correlation: (rows, k, k).
        pivoting: a factor of all variables that matter; those with failure 0 are ignored.
        rare: (rows, k), bool.
        start: first lattice point of each of the `SHIFTS` shifts.
        stop: one after the last.
        seed: seed of the shifts.
        kind: type the draws are compared with their limits in; only those within its rounding of a limit can change.

    Returns:
        Sum over the points, (rows, shifts); divide by the number of points.

    Source:
        Adler, Blanchet and Liu (2012), Ann. Appl. Probab. 22; Owen, Maximov and Chertkov (2019), Electron. J. Stat. 13.
    """
    rows, k = upper.shape
    device = upper.device
    pivots = pivoting.columns.shape[1]
    shifts = random_shifts(pivots + 1, SHIFTS, seed, device)
    u = shifted_lattice(pivots + 1, start, stop, shifts).flatten(1)  # (1 + pivots, points)
    normal = normal_quantile(u[1:]).T.to(kind)  # (points, pivots)
    points = u.shape[1]
    weight = torch.where(rare, pivoting.failure, 0.0)
    watched = (pivoting.failure > 0) & ~rare
    roles = torch.stack([rare, watched], -1).to(kind)
    limit = upper.to(kind).unsqueeze(1)
    step = max(1, _ELEMENTS["cpu" if device.type == "cpu" else "other"] // (k * points))
    sums = []
    for first in range(0, rows, step):
        part = slice(first, min(first + step, rows))
        height, chosen = _choose(weight[part], u[0])
        z = torch.matmul(normal, pivoting.columns[part].to(kind))  # (rows, points, k)
        excess = height.to(kind).unsqueeze(-1) - z.gather(2, chosen.unsqueeze(-1))
        index = torch.arange(len(z), device=device).unsqueeze(-1)
        z.addcmul_(correlation[part].to(kind)[index, chosen], excess)  # the others follow
        failures = torch.matmul(torch.gt(z, limit[part], out=z), roles[part])  # (rows, points, rare and watched)
        holds = failures[..., 1] == 0
        value = weight[part].sum(-1, keepdim=True) * holds / failures[..., 0].clamp_min(1.0).to(u.dtype)
        sums.append(value.unflatten(1, (SHIFTS, -1)).sum(-1))
    return torch.cat(sums)


def _choose(weight: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of the mixture: which variable fails, and where beyond its limit it lies; (rows, points) each."""
    cumulative = weight.cumsum(-1)
    mass = u * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, mass, right=True).clamp_max(weight.shape[1] - 1)
    share = torch.take_along_dim(weight, chosen, dim=1)
    rest = (torch.take_along_dim(cumulative, chosen, dim=1) - mass).clamp_min(0.0)  # in (0, share]
    return -normal_quantile(torch.minimum(rest, share).clamp_min(1e-300)), chosen
