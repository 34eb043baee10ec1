"""What variables that a normal probability leaves out can take from it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.methods.average_case.lattice import (
    SHIFTS,
    WIDENED_THREE,
    lattice_points,
    mean_and_error,
)
from robaudit.methods.average_case.separation import separated_values
from robaudit.numerics.rowwise import product as matrix_product
from robaudit.numerics.rowwise import total

_POINTS = 64  # per shift
_LEAST_VARIANCE = 1e-8  # of a variable given the variables before it
_AT_ONCE = 1024  # omitted variables processed at once: 4 MiB


def omitted_failures(
    upper: Tensor, correlation: Tensor, other_upper: Tensor, cross: Tensor, *, seed: int = 0
) -> Tensor:
    """sum_j P[Z_j > z_j, and Z_i <= z_i for all kept i] over the omitted variables j.

    By so much at most the probability that all kept variables hold exceeds the probability that all
    variables hold. The union bound sum_j P[Z_j > z_j] may be far larger: where an omitted variable
    fails, a kept one that is correlated with it has mostly failed before.

    Args:
        upper: limits z of the kept variables (B, k), float64.
        correlation: of the kept variables (B, k, k).
        other_upper: limits of the omitted variables (B, m).
        cross: correlations of the kept with the omitted variables (B, k, m).
        seed: seed of the lattice's shifts.

    Returns:
        The sum (B,), float64, three standard errors above its estimate from 1,024 points; NaN
        where the correlation is not positive semi-definite.
    """
    # Row by row: a row's bits do not depend on the other rows.
    rows = zip(upper, correlation, other_upper, cross, strict=True)
    return torch.stack([_failures(*row, seed) for row in rows])


def _failures(
    upper: Tensor, correlation: Tensor, other_upper: Tensor, cross: Tensor, seed: int
) -> Tensor:
    """:func:`omitted_failures` of a row, a scalar."""
    limit, order = upper.sort(stable=True)
    ordered = correlation[order][:, order]
    ordered.diagonal().add_(_LEAST_VARIANCE)
    lower, failed = torch.linalg.cholesky_ex(ordered)
    scale = lower.diagonal()
    # the omitted variables in terms of the kept ones' independent variables, Z = load y + rest
    load = torch.linalg.solve_triangular(lower, cross[order], upper=False).T  # (m, k)
    rest = (1.0 - total(load.square())).clamp_min(_LEAST_VARIANCE).sqrt()
    weights = torch.cat([other_upper.unsqueeze(1) * math.sqrt(0.5), -load], 1) / rest.unsqueeze(1)
    # Products of float32 may be rounded to TF32 on CUDA.
    kind = torch.float32 if upper.device.type == "cpu" else torch.float64
    u = lattice_points(len(upper), 0, _POINTS, seed, upper.device).to(kind)
    slope = (lower / scale.unsqueeze(1)).tril(-1)
    values, y = separated_values((limit / scale).unsqueeze(0), slope.unsqueeze(0), u)
    failing = torch.zeros_like(values)
    for part in weights.to(kind).split(_AT_ONCE):
        t = matrix_product(part.unsqueeze(0), y)  # (1, variables, points), over sqrt 2
        failing += 0.5 * torch.erfc(t).sum(1)
    sums = (values * failing).unflatten(1, (SHIFTS, _POINTS)).sum(-1)
    mean, error = mean_and_error(sums, _POINTS)
    most = mean[0] + WIDENED_THREE * error[0]
    return torch.where(failed == 0, most, torch.nan)
