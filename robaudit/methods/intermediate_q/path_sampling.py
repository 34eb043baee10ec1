"""log Z_q of a loss from annealed chains: thermodynamic integration with control variates, errors
between chains, and the annealing gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from robaudit.methods.intermediate_q.annealing import Annealed, Records
from robaudit.methods.intermediate_q.copies import Start
from robaudit.numerics.rowwise import (
    cholesky,
    cholesky_solve,
    gram,
    hypot,
    mean_over,
    total,
    variance_over,
)

_WINDOW = 8  # temperatures whose states share coefficients
_TREND = 3  # constant, linear, quadratic in the index of the temperature
_RIDGE = 1e-9
# controls that raise the sum of squares between chains by more than this factor are dropped
_WORSE = 4.0
_POWER = 3  # power of the index in the grid
_SURE = 0.975


def temperature_grid(highest: float, temperatures: int) -> tuple[float, ...]:
    """Temperatures from 0 to the highest, denser at small values (t ~ i^3)."""
    return tuple(highest * (i / (temperatures - 1)) ** _POWER for i in range(temperatures))


@dataclass(frozen=True, slots=True)
class PathEstimate:
    """log Z of every image at one order, on the scale of log l; all (images,), float64.

    Attributes:
        value: the mean over chains and ways.
        std_error: standard error between the chains.
        gap: value on the way down minus value on the way up.
        half_width: half width of the 95 % interval: Student's t times the standard error, plus half
            of the gap.
        begin: the temperature up to which copies are used.
        ess: effective sample size of the copies at that temperature.
    """

    value: Tensor
    std_error: Tensor
    gap: Tensor
    half_width: Tensor
    begin: Tensor
    ess: Tensor

    @classmethod
    def of(cls, q: float, start: Start, more: Tensor, each: Tensor, gap: Tensor) -> PathEstimate:
        """Combine the copies' part with the rest and its errors.

        Args:
            q: the order.
            start: the copies' part.
            more: log E[l^q] / E[l^s], over q (images,).
            each: the same from each independent chain or run (images, chains).
            gap: see the class.
        """
        error = (variance_over(each, 1) / each.shape[1]).sqrt()
        copies_error = start.std_error / q
        quantile = torch.from_numpy(stdtrit(start.degrees.cpu().numpy(), _SURE)).to(error)
        sure = hypot(stdtrit(each.shape[1] - 1, _SURE) * error, quantile * copies_error)
        value = start.log_mass / q + more
        return cls(
            value,
            hypot(error, copies_error),
            gap,
            sure + gap.abs() / 2,
            start.temperature,
            start.ess,
        )


def path_estimates(
    annealed: Annealed,
    temperatures: Sequence[float],
    orders: Sequence[float],
    begun: Sequence[Start],
    *,
    exact: bool,
) -> list[PathEstimate]:
    """(log E[l^s] + int_s^q E_t[log l] dt) / q at every order: the copies give the first term at a
    temperature s, the chains the integral.

    Args:
        annealed: the records at the temperatures.
        temperatures: ascending.
        orders: the orders q, at most the last temperature.
        begun: s, and the copies' part at s, for each order.
        exact: whether the gradients are exactly the gradients of log l, as the control variates
            require.

    Source: Rice et al., Robustness between the worst and average case, equation 17 (path sampling,
        Gelman and Meng 1998).
    """
    ways = torch.stack(
        [controlled(way) if exact else way.log_loss for way in (annealed.up, annealed.down)]
    )
    return [_estimate(ways, temperatures, q, start) for q, start in zip(orders, begun, strict=True)]


def copies_estimates(orders: Sequence[float], begun: Sequence[Start]) -> list[PathEstimate]:
    """The same from the copies alone, even if they do not suffice."""
    zeros = [torch.zeros_like(start.log_mass) for start in begun]
    return [
        PathEstimate.of(q, start, zero, zero[:, None].expand(-1, 2), zero)
        for q, start, zero in zip(orders, begun, zeros, strict=True)
    ]


def controlled(records: Records) -> Tensor:
    """log l minus the part explained by the control variates (temperatures, images, chains).

    In each window of temperatures, log l of an image's chains is regressed on a quadratic trend and
    the control variates. The controls have mean 0 under p_t, so the mean of log l is unchanged
    while its variance falls; if a chain lags, their mean is not 0 and the correction removes most
    of the lag. The coefficients of a chain come from the *other* chains: fitted to its own states,
    they would follow its noise and bias the value. If a chain is isolated (alone in a narrow bad
    region), the coefficients of the others can be wrong for it by orders of magnitude: log l stays
    as it is in any window where the correction drives the chains much further apart.
    """
    y = records.log_loss
    result = records.log_loss.clone()
    n = len(y)
    window = min(len(y), _WINDOW)
    starts = [*range(0, n - window + 1, window)]
    if starts[-1] + window < n:
        starts.append(n - window)
    for start in reversed(
        starts
    ):  # the last window may overlap the window before, which takes precedence
        part = slice(start, start + window)
        result[part] = _window(y[part], records.controls[:, part])
    return result


def _window(y: Tensor, controls: Tensor) -> Tensor:
    """:func:`controlled` for a single window: (w, images, chains) and (controls, w, images,
    chains)."""
    w, images, chains = y.shape
    place = torch.linspace(-1, 1, w, dtype=y.dtype, device=y.device)[:, None, None].expand(
        w, images, chains
    )
    # (columns, w, images, chains)
    columns = torch.stack([torch.ones_like(y), place, place.square(), *controls, y])
    scale = mean_over(mean_over(columns.square(), 1), 2).sqrt()  # (columns, images)
    scale = torch.where(scale > 0, scale, 1.0)
    # (images * chains, columns, w)
    scaled = (columns / scale[:, None, :, None]).permute(2, 3, 0, 1).flatten(0, 1)
    own = gram(scaled).unflatten(0, (images, chains)) / w
    products = (mean_over(own, 1)[:, None] - own / chains).flatten(0, 1)  # of the other chains
    ridge = _RIDGE * torch.eye(products.shape[1] - 1, dtype=y.dtype, device=y.device)
    lower, failed = cholesky(products[:, :-1, :-1] + ridge)
    solved = cholesky_solve(
        products[:, :-1, -1], torch.where(failed[:, None, None] == 0, lower, ridge / _RIDGE)
    )
    weights = (
        torch.where(failed[:, None] == 0, solved, 0.0).unflatten(0, (images, chains))
        * (scale[-1] / scale[:-1]).T[:, None]
    )
    corrected = y.clone()
    for control, weight in zip(controls, weights[..., _TREND:].unbind(2), strict=True):
        corrected -= weight * control
    return torch.where(_spread(corrected) <= _WORSE * _spread(y), corrected, y)


def _spread(y: Tensor) -> Tensor:
    """The spread of an image's chains in a window: sum of squares around their mean at each
    temperature (images, 1)."""
    return total(total((y - mean_over(y, 2)[..., None]).square()), 0)[:, None]


@lru_cache(maxsize=4096)
def integration_weights(
    temperatures: tuple[float, ...], begin: float, q: float
) -> tuple[float, ...]:
    """The weight of every temperature in 1 / q times the integral from ``begin`` to q.

    From the cubic spline through all temperatures: with 80 temperatures the trapezoid rule would be
    off by up to .01 in log Z (for a quadratic log l in 100 dimensions), the spline by 1e-5.
    """
    from scipy.interpolate import CubicSpline

    return tuple(
        (CubicSpline(temperatures, np.eye(len(temperatures))).integrate(begin, q) / q).tolist()
    )


def _estimate(ways: Tensor, temperatures: Sequence[float], q: float, start: Start) -> PathEstimate:
    grid = tuple(temperatures)
    begins = start.temperature.tolist()
    by_way = total(
        ways
        * ways.new_tensor([integration_weights(grid, begin, q) for begin in begins]).T[..., None],
        1,
    )
    # (2, images, chains)
    everywhere = total(ways * ways.new_tensor(integration_weights(grid, 0.0, q))[:, None, None], 1)
    blind = (
        start.temperature == q
    ) & ~start.known  # copies that may not have seen the region of the way down
    up, down = torch.where(blind[:, None], everywhere, by_way)
    each = (by_way[0] + by_way[1]) / 2
    return PathEstimate.of(q, start, mean_over(each, 1), each, mean_over(down - up, 1))
