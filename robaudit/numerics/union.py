"""The probability that at least one of many rarely failing limits fails while the others hold."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.integration import SHIFTS, lattice_points, mean_and_error
from robaudit.numerics.normal import normal_quantile
from robaudit.numerics.ordering import Pivoting
from robaudit.numerics.rowwise import hypot, product, total

_POINTS = 16  # per shift: rare failures only correct a probability
_STEP = 16  # the number of a row's pivots is padded to a multiple of this
_ELEMENTS = {"cpu": 1 << 17, "other": 1 << 23}  # rows x variables x points of one operation


def union_failure(
    upper: Tensor, correlation: Tensor, pivoting: Pivoting, rare: Tensor, *, seed: int, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """P[all limits outside `rare` hold, some limit in `rare` fails], each draw conditioned on a failure.

    A failing variable e is chosen with probability q_e / sum(q), q_e = Phi(-upper_e); its value is drawn beyond its
    limit and the others follow. The mean of 1[others hold] / (number of rare failures) times sum(q) is the probability:
    each configuration is reached once for every failure in it. The relative error is bounded however small q is.

    Args:
        upper: limits (rows, k).
        correlation: (rows, k, k).
        pivoting: a factor of all variables that matter; those with failure 0 are ignored.
        rare: (rows, k), bool.
        seed: seed of the shifts.
        kind: the type in which draws are compared with limits; only draws within its rounding of a limit can be affected.

    Returns:
        The probability and its standard error, (rows,) each.

    Source:
        Adler, Blanchet and Liu (2012), Ann. Appl. Probab. 22; Owen, Maximov and Chertkov (2019), Electron. J. Stat. 13.
    """
    rows, k = upper.shape
    device = upper.device
    count = (pivoting.step < k).sum(-1)
    padded = (-(-count // _STEP) * _STEP).clamp(1, k)
    u = lattice_points(int(padded.max()) + 1, 0, _POINTS, seed, device)  # (1 + pivots, points)
    points = u.shape[1]
    step = max(1, _ELEMENTS["cpu" if device.type == "cpu" else "other"] // (k * points))
    sums = torch.empty(rows, SHIFTS, dtype=u.dtype, device=device)
    for pivots in sorted(set(padded.tolist())):
        normal = normal_quantile(u[1 : 1 + pivots]).T.to(kind).contiguous()  # (points, pivots)
        for part in (padded == pivots).nonzero().squeeze(-1).split(step):
            columns = pivoting.columns[part, :pivots].to(kind)
            value = _values(upper[part], correlation[part].to(kind), pivoting.failure[part], rare[part], columns, normal, u[0])
            sums[part] = value.unflatten(1, (SHIFTS, -1)).sum(-1)
    value, error = mean_and_error(sums, _POINTS)
    # Whatever has less mass than one point goes unseen: count it into the error.
    return value, hypot(error, total(pivoting.failure * rare) / (SHIFTS * _POINTS))


def _values(upper: Tensor, correlation: Tensor, failure: Tensor, rare: Tensor, columns: Tensor, normal: Tensor, u: Tensor) -> Tensor:
    """The estimate at each point, (rows, points), from normal draws (points, pivots) and uniform ones (points,)."""
    kind = normal.dtype
    weight = torch.where(rare, failure, 0.0)
    roles = torch.stack([rare, (failure > 0) & ~rare], -1).to(kind)
    height, chosen = _choose(weight, u)
    z = product(normal, columns)  # (rows, points, k)
    excess = height.to(kind).unsqueeze(-1) - z.gather(2, chosen.unsqueeze(-1))
    index = torch.arange(len(z), device=z.device).unsqueeze(-1)
    z.addcmul_(correlation[index, chosen], excess)  # the others follow
    failures = torch.matmul(torch.gt(z, upper.to(kind).unsqueeze(1), out=z), roles)  # counts, exact: (rows, points, rare and watched)
    holds = failures[..., 1] == 0
    return total(weight).unsqueeze(-1) * holds / failures[..., 0].clamp_min(1.0).to(u.dtype)


def _choose(weight: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of the mixture: which variable fails, and where beyond its limit it lies; (rows, points) each."""
    cumulative = weight.cumsum(-1)
    mass = u * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, mass, right=True).clamp_max(weight.shape[1] - 1)
    share = torch.take_along_dim(weight, chosen, dim=1)
    rest = (torch.take_along_dim(cumulative, chosen, dim=1) - mass).clamp_min(0.0)  # in (0, share]
    return -normal_quantile(torch.minimum(rest, share).clamp_min(1e-300)), chosen
