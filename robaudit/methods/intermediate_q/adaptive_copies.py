"""Copies from a mixture adapted to a tilted distribution in a few variables, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.methods.intermediate_q.copies import AT_ONCE, ENOUGH, Copies, reach
from robaudit.methods.intermediate_q.metropolis import Values
from robaudit.numerics.rowwise import product, total

ROUNDS = 12
# A round gets 1/39 of the lots, and so do the final copies from its kernel. Of the other 15, five
# begin the search and ten are the final plain copies: 17 of 39 lots search.
_SHARE = 39
_CENTRES = 25  # of a kernel; divides the lots of 50 copies
_STRIDE = 2  # every second temperature of the grid is tried
_ENOUGH = 25.0  # effective sample size at which copies place the next centres: one for each
# Effective sample size of plain copies at the last temperature from which nothing is searched.
_PLENTY = 4 * ENOUGH


def adapted(
    values: Values,
    normals: Callable[[], Tensor],
    uniforms: Callable[[], Tensor],
    lots: int,
    temperatures: Sequence[float],
) -> Copies:
    """Draw copies from N(0, I) and from kernels centred at copies with large weights.

    Nearly half of the copies search for these centres. The first are plain. Each round weights all
    copies by l^t / m, with the largest temperature t that leaves an effective sample size of 25,
    draws 25 copies by these weights, and draws new copies around them: normal, with the weighted
    standard deviations times (4 / (25 (d + 2)))^(1 / (d + 4)). If plain copies suffice at the last
    temperature, the kernel is N(0, I). All these copies are then discarded, as a density with
    kernels around its own copies is too large at them. New copies are drawn from the kernels of all
    rounds and, five of eleven, from N(0, I), so that E[l^t] has no bias.

    Args:
        values: log l.
        normals: fresh standard normal variables (images x 50, d) at each call.
        uniforms: fresh uniform numbers (images x 50,), float64; one call for each round.
        lots: number of lots of 50 copies.
        temperatures: ascending from 0.

    Source: Cappe, Guillin, Marin and Robert 2004, Population Monte Carlo; Silverman 1986 for the
        width.
    """
    round_lots = max(1, lots // _SHARE)
    first_lots = max(1, (lots - 2 * ROUNDS * round_lots) // 3)
    plain_lots = lots - first_lots - 2 * ROUNDS * round_lots
    # counted from the highest temperature, so that it is always among them
    candidates = (0.0, *temperatures[::-_STRIDE][::-1])
    kernels = list[_Kernel]()

    def draw(number: int, kernel: _Kernel | None = None) -> Tensor:
        """Lots of copies (images, copies, d) from N(0, I) or a kernel."""
        lots_of_z = [normals().unflatten(0, (-1, AT_ONCE)) for _ in range(number)]
        z = torch.cat(lots_of_z, 1)
        return z if kernel is None else kernel.moved(z)

    def evaluated(z: Tensor, sizes: Sequence[int]) -> Copies:
        """The copies z with their losses, and their densities under N(0, I) and all kernels."""
        image = torch.arange(len(z), device=z.device).repeat_interleave(z.shape[1])
        log_loss = values(image, z.flatten(0, 1)).view(len(z), -1)
        log_ratios = [kernel.log_ratio(z) for kernel in kernels]
        log_parts = torch.stack([torch.zeros_like(log_loss), *log_ratios], 1)
        return Copies(log_loss, log_parts, sizes)

    z = draw(first_lots)
    copies = evaluated(z, [z.shape[1]])
    for _ in range(ROUNDS):
        uniform = uniforms().view(len(z), AT_ONCE)[:, :1]
        kernel = _Kernel.about(z, copies, candidates, uniform)
        kernels.append(kernel)
        new = draw(round_lots, kernel)
        added = evaluated(new, ())
        # Earlier copies keep their losses; only the new kernel's density is missing for them.
        log_parts = torch.cat([copies.log_parts, kernel.log_ratio(z)[:, None]], 1)
        z = torch.cat([z, new], 1)
        copies = Copies(
            torch.cat([copies.log_loss, added.log_loss], 1),
            torch.cat([log_parts, added.log_parts], 2),
            [*copies.sizes, new.shape[1]],
        )
    # New copies, for which the kernels are given: with these E[l^t] has no bias.
    final = [draw(plain_lots)]
    for kernel in kernels:
        final.append(draw(round_lots, kernel))
    sizes = [plain_lots * AT_ONCE] + [round_lots * AT_ONCE] * ROUNDS
    return evaluated(torch.cat(final, 1), sizes)


class _Kernel(NamedTuple):
    """A mixture of normal distributions with several centres.

    Attributes:
        centres: (images, centres, d).
        width: standard deviations (images, d).
    """

    centres: Tensor
    width: Tensor

    def moved(self, z: Tensor) -> Tensor:
        """Copies from standard normal variables z (images, n, d), n a multiple of the number of
        centres."""
        centres = self.centres.repeat(1, z.shape[1] // _CENTRES, 1)
        return (centres + self.width[:, None] * z).to(z.dtype)

    @classmethod
    def about(
        cls, z: Tensor, copies: Copies, temperatures: Sequence[float], uniform: Tensor
    ) -> _Kernel:
        """Centred at some of the copies z (images, n, d), drawn systematically from a uniform
        number (images, 1)."""
        z = z.double()
        _, n, d = z.shape
        log_density = copies.log_density
        sizes = copies.effective_sizes(temperatures, log_density)
        t, ess = reach(sizes, _ENOUGH)
        weights, _ = copies.weights(t[:, None], log_density)
        cumulated = weights.cumsum(1)
        weight_sum = cumulated[:, -1:]
        # Systematic resampling: equidistant places in the cumulated weights, from a random start.
        place = torch.arange(_CENTRES, dtype=z.dtype, device=z.device) + uniform
        drawn = torch.searchsorted(cumulated, place / _CENTRES * weight_sum)
        drawn = drawn.clamp_max(n - 1)  # rounding may leave a place beyond the last weight
        before_first = torch.zeros_like(cumulated[:, :1])
        share = cumulated.diff(dim=1, prepend=before_first) / weight_sum
        share = share[..., None]  # (images, n, 1)
        mean = total(share * z, 1)[:, None]
        variance = total(share * (z - mean).square(), 1)
        deviation = variance.sqrt().clamp_min(1e-9)
        # Silverman 1986, equation 4.14, for n normal centres in d dimensions
        factor = (4 / (_CENTRES * (d + 2))) ** (1 / (d + 4))
        width = factor * deviation
        centres = z.gather(1, drawn[..., None].expand(-1, -1, d))
        # Where plain copies suffice the kernel is N(0, I) itself.
        suffices = (t == temperatures[-1]) & (ess >= _PLENTY)
        suffices = suffices[:, None]
        return cls(
            centres=torch.where(suffices[..., None], 0.0, centres),
            width=torch.where(suffices, 1.0, width),
        )

    def log_ratio(self, z: Tensor) -> Tensor:
        """log of the density over N(0, I) at z (images, n, d)."""
        z = z.double()
        u = z / self.width[:, None]
        c = self.centres / self.width[:, None]
        # |u - c|^2 = |u|^2 - 2 u . c + |c|^2, by matrix products (images, n, centres)
        distance = (
            total(u.square())[..., None]
            - 2 * product(u, c.transpose(1, 2))
            + total(c.square())[:, None]
        )
        # relative to the nearest centre, so that the sum does not underflow
        nearest = distance.amin(2, keepdim=True)
        density = total(torch.exp((nearest - distance) / 2)) / _CENTRES
        return (
            torch.log(density)
            + (total(z.square()) - nearest[..., 0]) / 2
            - total(self.width.log())[:, None]
        )
