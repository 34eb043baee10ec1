"""log Z_q of a loss: from copies, or from annealed chains by thermodynamic integration with control
variates, errors between chains, and the annealing gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from robaudit.methods.intermediate_q.annealing import Annealed, Records
from robaudit.methods.intermediate_q.qnorm_mc import UNSEEN
from robaudit.numerics.rowwise import (
    cholesky,
    cholesky_solve,
    gram,
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
MOST_ERROR = 0.25
"""The largest standard error of log Z between chains that have settled."""
MOST_GAP = 1.0
"""The largest gap between their two ways, half of which is in the interval."""
_SURE = 0.975  # quantile of two-sided 95 % intervals


def temperature_grid(highest: float, temperatures: int, power: float = _POWER) -> tuple[float, ...]:
    """Temperatures from 0 to the highest, denser at small values (t ~ i^power)."""
    last = temperatures - 1
    return tuple(highest * (i / last) ** power for i in range(temperatures))


@dataclass(frozen=True, slots=True)
class NormEstimate:
    """log Z_q of every image at one order; all (images,), float64.

    Attributes:
        log_norm: log Z_q.
        lower, upper: ends of its 95 % interval.
        std_error: of the value.
        gap: value on the way down minus value on the way up; 0 for copies.
        ess: effective sample size of the copies at q.
        by_copies: whether the copies suffice, and give the value (images,), bool.
        usable: whether copies suffice or chains have settled (images,), bool; else there is no
            value.
    """

    log_norm: Tensor
    lower: Tensor
    upper: Tensor
    std_error: Tensor
    gap: Tensor
    ess: Tensor
    by_copies: Tensor
    usable: Tensor

    def with_chains(self, images: Tensor, chains: NormEstimate) -> NormEstimate:
        """With the chains' numbers of some images; the sizes of their copies stay."""
        fields = ("log_norm", "lower", "upper", "std_error", "gap", "usable")
        replaced = {
            name: getattr(self, name).index_copy(0, images, getattr(chains, name))
            for name in fields
        }
        return replace(self, **replaced)

    def at_least(self, least: Tensor) -> NormEstimate:
        """With what log Z_q is at least (images,), by another sampler.

        Where the whole interval is below it, that is the value, and the upper end is as far above
        it as the old value was below. If that is far, the estimate is not usable.
        """
        is_below = self.upper < least
        short = least - self.log_norm
        return replace(
            self,
            log_norm=torch.where(is_below, least, self.log_norm),
            upper=torch.where(is_below, least + short, self.upper),
            usable=self.usable & ~(is_below & (short > MOST_ERROR)),
        )

    def where_usable(self) -> NormEstimate:
        """With NaN for values and ends that are not usable."""

        def known(numbers: Tensor) -> Tensor:
            return torch.where(self.usable, numbers, torch.nan)

        return replace(
            self, log_norm=known(self.log_norm), lower=known(self.lower), upper=known(self.upper)
        )


def copies_estimate(
    q: float,
    log_mass: Tensor,
    error: Tensor,
    degrees: Tensor,
    largest: Tensor,
    ess: Tensor,
    enough: Tensor,
) -> NormEstimate:
    """log Z_q = log E[l^q] / q from copies.

    Args:
        q: the order.
        log_mass, error, degrees: log E[l^q], its standard error and the error's degrees of freedom,
            from :meth:`robaudit.methods.intermediate_q.copies.Copies.log_mass`.
        largest: the share of the largest weight. Weights have long tails, so the upper end leaves
            room for two more copies as large as that, as `qnorm_mc` does.
        ess: the effective sample size.
        enough: whether it suffices.
    """
    quantile = torch.from_numpy(stdtrit(degrees.cpu().numpy(), _SURE)).to(error)
    value = log_mass / q
    half_width = quantile * error / q
    no_gap = torch.zeros_like(value)
    ends = (value - half_width, value + half_width + torch.log1p(UNSEEN * largest) / q)
    return NormEstimate(value, *ends, error / q, no_gap, ess, enough, usable=enough)


def chain_estimate(
    annealed: Annealed, temperatures: Sequence[float], q: float, missed: Tensor, *, exact: bool
) -> NormEstimate:
    """log Z_q = (1 / q) int_0^1 E_b[r] db from chains, r the log ratio of the tilted distribution
    and the distribution where the chains start.

    Args:
        annealed: the records at the temperatures b.
        temperatures: ascending from 0 to 1.
        q: the order.
        missed: what classes that the chains did not visit may add to log E[l^q] (images,). Half of
            it is added to the value, and the interval reaches from none of it to all.
        exact: whether the gradients are exactly the gradients of r, as the control variates
            require.

    Source: Rice et al., Robustness between the worst and average case, equation 17 (path sampling,
        Gelman and Meng 1998).
    """
    both = (annealed.up, annealed.down)
    ways = torch.stack([controlled(way) if exact else way.log_ratio for way in both])
    weights = ways.new_tensor(integration_weights(tuple(temperatures)))[:, None, None]
    up, down = total(ways * weights, 1) / q  # (images, chains) each
    by_chain = (up + down) / 2
    chains = by_chain.shape[1]
    gap = mean_over(down - up, 1)
    error = (variance_over(by_chain, 1) / chains).sqrt()
    half_missed = missed / (2 * q)
    value = mean_over(by_chain, 1) + half_missed
    half_width = stdtrit(chains - 1, _SURE) * error + gap.abs() / 2 + half_missed
    no_copies = torch.zeros_like(value)
    ends = (value - half_width, value + half_width)
    # NaN is not settled
    settled = (error <= MOST_ERROR) & (gap.abs() <= MOST_GAP)
    return NormEstimate(value, *ends, error, gap, no_copies, no_copies.bool(), usable=settled)


def in_order(estimates: Sequence[NormEstimate]) -> list[NormEstimate]:
    """The estimates of ascending orders, such that value and interval do not fall with q.

    Z_q grows with q (Jensen), so the lower end at q holds at every larger order, too, and the
    upper end at every smaller one. Estimates that are not usable count for no other.
    """
    known = [estimate.where_usable() for estimate in estimates]
    lower = [known[0].lower]
    log_norm = [known[0].log_norm]
    for following in known[1:]:
        lower.append(torch.fmax(lower[-1], following.lower))
        log_norm.append(torch.fmax(log_norm[-1], following.log_norm))
    upper = [known[-1].upper]
    for earlier in reversed(known[:-1]):
        upper.insert(0, torch.fmin(upper[0], earlier.upper))
    ordered = []
    for estimate, low, middle, high in zip(estimates, lower, log_norm, upper, strict=True):
        # The intervals of two orders may disagree: the value is inside its own.
        below = torch.fmin(low, middle)
        above = torch.fmax(high, middle)
        ordered.append(
            replace(
                estimate,
                # what is not usable keeps its number, which tells how far off it is
                log_norm=torch.where(estimate.usable, middle, estimate.log_norm),
                lower=below,
                upper=above,
            )
        )
    return ordered


def controlled(records: Records) -> Tensor:
    """r minus the part explained by the control variates (temperatures, images, chains).

    In each window of temperatures, r of an image's chains is regressed on a quadratic trend and
    the control variates. The controls have mean 0 under p_t, so the mean of r is unchanged
    while its variance falls; if a chain lags, their mean is not 0 and the correction removes most
    of the lag. The coefficients of a chain come from the *other* chains: fitted to its own states,
    they would follow its noise and bias the value. If a chain is isolated (alone in a narrow bad
    region), the coefficients of the others can be wrong for it by orders of magnitude: r stays
    as it is in any window where the correction drives the chains much further apart.
    """
    log_ratio = records.log_ratio
    result = log_ratio.clone()
    n = len(log_ratio)
    window = min(n, _WINDOW)
    starts = [*range(0, n - window + 1, window)]
    if starts[-1] + window < n:
        starts.append(n - window)
    # Backwards: the last window may overlap the window before, which takes precedence.
    for start in reversed(starts):
        part = slice(start, start + window)
        result[part] = _controlled_window(log_ratio[part], records.controls[:, part])
    return result


def _controlled_window(log_ratio: Tensor, controls: Tensor) -> Tensor:
    """:func:`controlled` for a single window of w temperatures.

    Args:
        log_ratio: (w, images, chains).
        controls: (controls, w, images, chains).
    """
    weights = _control_weights(log_ratio, controls)
    corrected = log_ratio.clone()
    for control, weight in zip(controls, weights, strict=True):
        corrected -= weight * control
    return torch.where(_spread(corrected) <= _WORSE * _spread(log_ratio), corrected, log_ratio)


def _control_weights(log_ratio: Tensor, controls: Tensor) -> tuple[Tensor, ...]:
    """The coefficient of each control for every chain (images, chains): least squares over the
    window's temperatures and the image's other chains."""
    w, images, chains = log_ratio.shape
    trend = torch.linspace(-1, 1, w, dtype=log_ratio.dtype, device=log_ratio.device)
    trend = trend[:, None, None].expand(w, images, chains)
    # (columns, w, images, chains); the last is the target
    columns = torch.stack([torch.ones_like(log_ratio), trend, trend.square(), *controls, log_ratio])
    # Controls may be many orders of magnitude apart: normalise every column.
    scale = mean_over(mean_over(columns.square(), 1), 2).sqrt()  # (columns, images)
    scale = torch.where(scale > 0, scale, 1.0)
    scaled = columns / scale[:, None, :, None]
    by_chain = scaled.permute(2, 3, 0, 1).flatten(0, 1)  # (images * chains, columns, w)
    own = gram(by_chain).unflatten(0, (images, chains)) / w
    # Products over the other chains: those of all chains less the chain's own.
    others = mean_over(own, 1)[:, None] - own / chains
    products = others.flatten(0, 1)
    unit = torch.eye(products.shape[1] - 1, dtype=log_ratio.dtype, device=log_ratio.device)
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


def _spread(log_ratio: Tensor) -> Tensor:
    """The spread of an image's chains in a window: sum of squares around their mean at each
    temperature (images, 1)."""
    mean = mean_over(log_ratio, 2)[..., None]
    squares = (log_ratio - mean).square()
    return total(total(squares), 0)[:, None]


@lru_cache(maxsize=256)
def integration_weights(temperatures: tuple[float, ...]) -> tuple[float, ...]:
    """The weight of every temperature in the integral from the first to the last.

    From the cubic spline through all temperatures: with 80 temperatures the trapezoid rule would be
    off by up to .01 in log Z (for a quadratic log l in 100 dimensions), the spline by 1e-5.
    """
    from scipy.interpolate import CubicSpline

    # The spline is linear in its values: the integrals of the cardinal splines are the weights.
    cardinal = CubicSpline(temperatures, np.eye(len(temperatures)))
    return tuple(cardinal.integrate(temperatures[0], temperatures[-1]).tolist())
