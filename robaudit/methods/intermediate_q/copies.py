"""log E[l^t] from noisy copies drawn from a mixture of normals in Gaussian space, with the
mixture's parts as control variates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from robaudit.methods.intermediate_q.metropolis import Values
from robaudit.methods.intermediate_q.tilts import Tilts
from robaudit.numerics.rowwise import cholesky, cholesky_solve, gram, product, total, variance_over

ENOUGH = 30.0
"""The effective sample size from which copies give E[l^t]. Their intervals cover from there
(docs/research/intermediate_q.md), and chains that would take over are wider."""
AT_ONCE = 50
"""Copies of an image that are drawn together."""
_ROUNDING = 1e-6  # smallest relative standard error of E[l^t]
_TAIL = 0.025  # chance that a 95 % interval misses on a given side
_RIDGE = 1e-10  # added to normalised products, so that nearly collinear controls can be solved for
_SAME = 1e-9  # root mean square of p / m - 1 below which a control is only rounding
_LEAST_FREE = 0.1  # of 1 - leverage: residuals grow at most tenfold


@dataclass(frozen=True)  # without slots: log_density is computed once
class Copies:
    """Copies z drawn from a mixture m with first part N(0, I).

    Attributes:
        log_loss: log l (images, copies), float64.
        log_parts: log p / N(0, I) of the parts p (images, parts, copies), float64.
        sizes: number of copies of each part, in order.
    """

    log_loss: Tensor
    log_parts: Tensor
    sizes: Sequence[int]

    @cached_property
    def log_density(self) -> Tensor:
        """log m / N(0, I) (images, copies)."""
        log_shares = self.log_parts.new_tensor(self.sizes).div_(sum(self.sizes)).log_()
        log_terms = self.log_parts + log_shares[:, None]
        # logsumexp, added in a fixed order
        highest = log_terms.amax(1)
        relative = torch.exp(log_terms - highest[:, None])
        return highest + torch.log(total(relative, 1))

    def weights(self, t: float | Tensor, log_density: Tensor) -> tuple[Tensor, Tensor]:
        """l^t / m relative to its maximum (images, copies), and the log of the maximum
        (images,)."""
        log_weight = t * self.log_loss - log_density
        # finite even if all losses are 0: no copy has a weight then
        highest = log_weight.amax(1, keepdim=True).clamp_min(-1e300)
        return torch.exp(log_weight - highest), highest[:, 0]

    def effective_sizes(
        self, temperatures: Sequence[float], log_density: Tensor
    ) -> list[tuple[float, Tensor]]:
        """Each temperature with the effective sample size of every image (images,) there."""
        sizes = []
        for t in temperatures:
            weights, _ = self.weights(t, log_density)
            sizes.append((t, effective_sample_size(weights)))
        return sizes

    def least(self, t: float) -> Tensor:
        """A lower end of log E[l^t] (images,) that is too high with a probability of at most 2.5 %,
        whatever the copies miss.

        Source: Markov's inequality, for the mean of l^t / m, which has no bias and is not negative.
        """
        weights, highest = self.weights(t, self.log_density)
        return highest + torch.log(total(weights) / weights.shape[1]) + math.log(_TAIL)

    def log_mass(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log E[l^t] at a temperature of each image (images,), its standard error, and the degrees
        of freedom of the error.

        l^t / m is regressed on p / m, with mean 1 under m, for the parts p: the variance of the
        value is at most about the variance from the copies of any single part, and zero at t = 0 or
        for a linear log l with its centre among the parts. The error comes from the residuals over
        1 - leverage, as the few copies with large weights decide the coefficients; its degrees of
        freedom are 2 over the squared coefficient of variation of its square.

        Source: Owen and Zhou 2000, Safe and effective importance sampling; MacKinnon and White 1985
        (HC3) for the error.
        """
        log_density = self.log_density
        weight, highest = self.weights(t[:, None], log_density)
        n = weight.shape[1]
        # p / m has mean 1 under m. The first part is N(0, I): given the others it adds nothing, as
        # the parts' weighted sum is m itself.
        controls = torch.exp(self.log_parts[:, 1:] - log_density[:, None]) - 1
        # constant, controls, and last the target: (images, columns, copies)
        constant = torch.ones_like(weight)
        columns = torch.cat([constant[:, None], controls, weight[:, None]], 1)
        scale = (total(columns.square()) / n).sqrt()
        # a column that is only rounding becomes 0
        divisor = torch.where(scale > _SAME, scale, torch.inf)
        columns = columns / divisor[..., None]
        known = columns[:, :-1].contiguous()
        target = columns[:, -1]
        products = gram(columns) / n
        inverse = _inverse(products[:, :-1, :-1])
        slopes = total(inverse * products[:, None, :-1, -1])
        residual = target - total(known * slopes[..., None], 1)
        # The constant's coefficient is the mean of l^t / m at controls of 0.
        mass = slopes[:, 0] * scale[:, -1] / scale[:, 0]

        # HC3 (MacKinnon and White 1985): residuals over 1 - leverage
        leverage = total(known * product(inverse, known), 1) / n
        free = (1 - leverage).clamp_min(_LEAST_FREE)
        residual = residual * scale[:, -1:] / free
        # The parts have fixed numbers of copies: their variances add up (stratified sampling).
        by_part = residual.split(list(self.sizes), 1)
        variances = [variance_over(part, 1) * part.shape[1] for part in by_part]
        variance = total(torch.stack(variances, 1))
        error = variance.sqrt() / (n * mass)
        error = error.nan_to_num(1.0).clamp_min(_ROUNDING)

        # The squared coefficient of variation of the mean of squares is sum s^2 / (sum s)^2 - 1/n.
        mean_residual = total(residual)[:, None] / n
        square = (residual - mean_residual).square()
        share_of_squares = total(square.square()) / total(square).square()
        degrees = 2 / (share_of_squares.nan_to_num(1.0) - 1 / n)
        return highest + torch.log(mass), error, degrees


def _inverse(products: Tensor) -> Tensor:
    """The inverse of each matrix (images, columns, columns) whose first column is the constant's.

    Where the columns are collinear it is the inverse for the constant alone, so that only the mean
    is fitted.
    """
    unit = torch.eye(products.shape[1], dtype=products.dtype, device=products.device)
    lower, failed = cholesky(products + _RIDGE * unit)
    solvable = failed[:, None, None] == 0
    lower = torch.where(solvable, lower, unit)
    solutions = []
    for column in unit:
        solutions.append(cholesky_solve(column.expand(len(lower), -1), lower))
    inverse = torch.stack(solutions, 2)
    only_constant = unit[:1] * unit[:, :1]
    return torch.where(solvable, inverse, only_constant)


def tilted(
    values: Values,
    normals: Callable[[], Tensor],
    plain: int,
    each: int,
    tilts: Tilts,
    parameters: Tensor,
) -> Copies:
    """Draw ``plain`` copies from N(0, I), and ``each`` copies from every tilt.

    The mean of l^t / m is unbiased whatever the tilts are, and copies of a good tilt often meet the
    bad region that it leads to.

    Args:
        values: log l.
        normals: fresh standard normal variables (images x 50, *shape) at each call.
        plain, each: multiples of 50.
        tilts: the family.
        parameters: of the tilts (tilts, images, d).

    Source: Veach and Guibas 1995 (balance heuristic).
    """
    by_image = parameters.transpose(0, 1).contiguous().double()  # (images, tilts, d)
    image = torch.arange(len(by_image), device=parameters.device).repeat_interleave(AT_ONCE)
    log_mass = tilts.log_mass(by_image)[..., None]
    losses = []
    log_parts = []
    for first in range(0, plain + len(parameters) * each, AT_ONCE):
        normal = normals()
        z = normal.flatten(1).unflatten(0, (-1, AT_ONCE))  # (images, 50, d)
        if first >= plain:
            tilt = parameters[(first - plain) // each][:, None]
            z = tilts.moved(tilt, z)
        # log p_t / N(0, I) = t . s(z) - A(t), and 0 for the plain part
        log_ratio = product(by_image, tilts.statistic(z).transpose(1, 2)) - log_mass
        plain_ratio = log_ratio.new_zeros(len(log_ratio), 1, AT_ONCE)
        log_parts.append(torch.cat([plain_ratio, log_ratio], 1))
        points = z.flatten(0, 1).unflatten(1, normal.shape[1:])
        losses.append(values(image, points).view(-1, AT_ONCE))
    sizes = [plain, *[each] * len(parameters)]
    return Copies(torch.cat(losses, 1), torch.cat(log_parts, 2), sizes)


def reach(sizes: Sequence[tuple[float, Tensor]], enough: float) -> tuple[Tensor, Tensor]:
    """The last of ascending temperatures with a sufficient effective sample size.

    Args:
        sizes: temperatures, each with the effective sample size of every image (images,).
        enough: the size that suffices.

    Returns:
        The temperature of each image, the first if none suffices, and its size (images,) each.
    """
    reached = torch.full_like(sizes[0][1], sizes[0][0])
    ess = sizes[0][1]
    for t, size in sizes:
        reached = torch.where(size >= enough, t, reached)
        ess = torch.where(size >= enough, size, ess)
    return reached, ess


def effective_sample_size(weights: Tensor) -> Tensor:
    """The effective sample size (sum w)^2 / sum w^2 (images,) of weights (images, copies).

    Source: Kong 1992.
    """
    size = total(weights).square() / total(weights.square())
    return size.nan_to_num(1.0)  # NaN if no copy has a weight
