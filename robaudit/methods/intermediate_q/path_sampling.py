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
_RIDGE = 1e-9  # added to normalised products, so that collinear controls can be solved for
# Controls that raise the sum of squares between chains by more than this factor are dropped.
_WORSE = 4.0
_POWER = 3  # power of the index in the grid
_SURE = 0.975  # quantile of two-sided 95 % intervals


def temperature_grid(highest: float, temperatures: int) -> tuple[float, ...]:
    """Temperatures from 0 to the highest, denser at small values (t ~ i^3)."""
    last = temperatures - 1
    return tuple(highest * (i / last) ** _POWER for i in range(temperatures))


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
    def from_parts(
        cls, q: float, start: Start, integral: Tensor, by_chain: Tensor, gap: Tensor
    ) -> PathEstimate:
        """Combine the copies' part with the rest and its errors.

        Args:
            q: the order.
            start: the copies' part, up to s.
            integral: (log E[l^q] - log E[l^s]) / q (images,).
            by_chain: the same from each independent chain (images, chains).
            gap: see the class.
        """
        chains = by_chain.shape[1]
        chains_error = (variance_over(by_chain, 1) / chains).sqrt()
        copies_error = start.std_error / q
        copies_quantile = torch.from_numpy(stdtrit(start.degrees.cpu().numpy(), _SURE))
        copies_half = copies_quantile.to(chains_error) * copies_error
        # The two parts are nearly independent: their half widths add in quadrature.
        sampling_half = hypot(stdtrit(chains - 1, _SURE) * chains_error, copies_half)
        return cls(
            value=start.log_mass / q + integral,
            std_error=hypot(chains_error, copies_error),
            gap=gap,
            half_width=sampling_half + gap.abs() / 2,
            begin=start.temperature,
            ess=start.ess,
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
    both = (annealed.up, annealed.down)
    ways = torch.stack([controlled(way) if exact else way.log_loss for way in both])
    return [_estimate(ways, temperatures, q, start) for q, start in zip(orders, begun, strict=True)]


def copies_estimates(orders: Sequence[float], begun: Sequence[Start]) -> list[PathEstimate]:
    """The same from the copies alone, even if they do not suffice."""
    estimates = []
    for q, start in zip(orders, begun, strict=True):
        zero = torch.zeros_like(start.log_mass)
        # Two chains without an integral: no value and no error beside the copies'.
        no_chains = zero[:, None].expand(-1, 2)
        estimates.append(PathEstimate.from_parts(q, start, zero, no_chains, zero))
    return estimates


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
    log_loss = records.log_loss
    result = log_loss.clone()
    n = len(log_loss)
    window = min(n, _WINDOW)
    starts = [*range(0, n - window + 1, window)]
    if starts[-1] + window < n:
        starts.append(n - window)
    # Backwards: the last window may overlap the window before, which takes precedence.
    for start in reversed(starts):
        part = slice(start, start + window)
        result[part] = _controlled_window(log_loss[part], records.controls[:, part])
    return result


def _controlled_window(log_loss: Tensor, controls: Tensor) -> Tensor:
    """:func:`controlled` for a single window of w temperatures.

    Args:
        log_loss: (w, images, chains).
        controls: (controls, w, images, chains).
    """
    weights = _control_weights(log_loss, controls)
    corrected = log_loss.clone()
    for control, weight in zip(controls, weights, strict=True):
        corrected -= weight * control
    return torch.where(_spread(corrected) <= _WORSE * _spread(log_loss), corrected, log_loss)


def _control_weights(log_loss: Tensor, controls: Tensor) -> tuple[Tensor, ...]:
    """The coefficient of each control for every chain (images, chains): least squares over the
    window's temperatures and the image's other chains."""
    w, images, chains = log_loss.shape
    trend = torch.linspace(-1, 1, w, dtype=log_loss.dtype, device=log_loss.device)
    trend = trend[:, None, None].expand(w, images, chains)
    # (columns, w, images, chains); the last is the target
    columns = torch.stack([torch.ones_like(log_loss), trend, trend.square(), *controls, log_loss])
    # Controls may be many orders of magnitude apart: normalise every column.
    scale = mean_over(mean_over(columns.square(), 1), 2).sqrt()  # (columns, images)
    scale = torch.where(scale > 0, scale, 1.0)
    scaled = columns / scale[:, None, :, None]
    by_chain = scaled.permute(2, 3, 0, 1).flatten(0, 1)  # (images * chains, columns, w)
    own = gram(by_chain).unflatten(0, (images, chains)) / w
    # Products over the other chains: those of all chains less the chain's own.
    others = mean_over(own, 1)[:, None] - own / chains
    products = others.flatten(0, 1)
    unit = torch.eye(products.shape[1] - 1, dtype=log_loss.dtype, device=log_loss.device)
    ridge = _RIDGE * unit
    lower, failed = cholesky(products[:, :-1, :-1] + ridge)
    lower = torch.where(failed[:, None, None] == 0, lower, ridge / _RIDGE)
    solved = cholesky_solve(products[:, :-1, -1], lower)
    # Where it cannot be solved nothing is subtracted.
    solved = torch.where(failed[:, None] == 0, solved, 0.0)
    solved = solved.unflatten(0, (images, chains))
    unscale = scale[-1] / scale[:-1]  # (columns, images)
    weights = solved * unscale.T[:, None]  # (images, chains, columns)
    by_control: tuple[Tensor, ...] = weights[..., _TREND:].unbind(2)
    return by_control


def _spread(log_loss: Tensor) -> Tensor:
    """The spread of an image's chains in a window: sum of squares around their mean at each
    temperature (images, 1)."""
    mean = mean_over(log_loss, 2)[..., None]
    squares = (log_loss - mean).square()
    return total(total(squares), 0)[:, None]


@lru_cache(maxsize=4096)
def integration_weights(
    temperatures: tuple[float, ...], begin: float, q: float
) -> tuple[float, ...]:
    """The weight of every temperature in 1 / q times the integral from ``begin`` to q.

    From the cubic spline through all temperatures: with 80 temperatures the trapezoid rule would be
    off by up to .01 in log Z (for a quadratic log l in 100 dimensions), the spline by 1e-5.
    """
    from scipy.interpolate import CubicSpline

    # The spline is linear in its values: the integrals of the cardinal splines are the weights.
    cardinal = CubicSpline(temperatures, np.eye(len(temperatures)))
    return tuple((cardinal.integrate(begin, q) / q).tolist())


def _estimate(ways: Tensor, temperatures: Sequence[float], q: float, start: Start) -> PathEstimate:
    """Integrate both ways, (2, temperatures, images, chains), for one order."""
    grid = tuple(temperatures)
    begins = start.temperature.tolist()
    # (temperatures, images): every image begins at its own temperature
    weights = ways.new_tensor([integration_weights(grid, begin, q) for begin in begins]).T
    by_way = total(ways * weights[..., None], 1)  # (2, images, chains)
    full_weights = ways.new_tensor(integration_weights(grid, 0.0, q))
    everywhere = total(ways * full_weights[:, None, None], 1)
    # If copies give the whole value, but may not have met the region of the way down, the gap of
    # the whole path tells whether there is one.
    blind = (start.temperature == q) & ~start.known
    up, down = torch.where(blind[:, None], everywhere, by_way)
    by_chain = (by_way[0] + by_way[1]) / 2
    gap = mean_over(down - up, 1)
    return PathEstimate.from_parts(q, start, mean_over(by_chain, 1), by_chain, gap)
