"""Copies from a mixture adapted to a tilted distribution in a few variables, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.methods.intermediate_q.copies import AT_ONCE, ENOUGH, Copies, effective, reach
from robaudit.methods.intermediate_q.metropolis import Values
from robaudit.numerics.rowwise import product, total

ROUNDS = 12
_SHARE = 39  # a round gets 1/39 of the lots, and so do the final copies from its kernels
_KERNELS = 25
_STRIDE = 2  # in temperatures
_ENOUGH = 25.0  # effective sample size at which copies place the next kernels
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
    rounds and, two of five, from N(0, I), so that E[l^t] has no bias.

    Args:
        values: log l.
        normals: fresh standard normal variables (images x 50, d) at each call.
        uniforms: fresh uniform numbers (images x 50,), float64; one call for each round.
        lots: number of lots of 50 copies.
        temperatures: ascending from 0.

    Source: Cappe, Guillin, Marin and Robert 2004, Population Monte Carlo; Silverman 1986 for the
        width.
    """
    each = max(1, lots // _SHARE)
    kernels = list[_Kernel]()
    first = max(1, (lots - 2 * ROUNDS * each) // 3)
    candidates = (0.0, *temperatures[::-_STRIDE][::-1])

    def draw(number: int, kernel: _Kernel | None = None) -> Tensor:
        z = torch.cat([normals().unflatten(0, (-1, AT_ONCE)) for _ in range(number)], 1)
        return z if kernel is None else kernel.moved(z)

    def weighed(z: Tensor, sizes: Sequence[int]) -> Copies:
        image = torch.arange(len(z), device=z.device).repeat_interleave(z.shape[1])
        log_loss = values(image, z.flatten(0, 1)).view(len(z), -1)
        return Copies(
            log_loss,
            torch.stack(
                [torch.zeros_like(log_loss), *(kernel.log_ratio(z) for kernel in kernels)], 1
            ),
            sizes,
        )

    z = draw(first)
    copies = weighed(z, [z.shape[1]])
    for _ in range(ROUNDS):
        kernels.append(
            _Kernel.about(z, copies, candidates, uniforms().view(len(z), AT_ONCE)[:, :1])
        )
        new = draw(each, kernels[-1])
        added = weighed(new, ())
        parts = torch.cat([copies.log_parts, kernels[-1].log_ratio(z)[:, None]], 1)
        z = torch.cat([z, new], 1)
        sizes = [*copies.sizes, new.shape[1]]
        copies = Copies(
            torch.cat([copies.log_loss, added.log_loss], 1),
            torch.cat([parts, added.log_parts], 2),
            sizes,
        )
    plain = lots - first - 2 * ROUNDS * each
    z = torch.cat([draw(plain), *(draw(each, kernel) for kernel in kernels)], 1)
    return weighed(z, [plain * AT_ONCE] + [each * AT_ONCE] * ROUNDS)


class _Kernel(NamedTuple):
    """A mixture of normal distributions with several centres.

    Attributes:
        centres: (images, K, d).
        width: standard deviations (images, d).
    """

    centres: Tensor
    width: Tensor

    def moved(self, z: Tensor) -> Tensor:
        """Copies from standard normal variables z (images, n, d), n a multiple of K."""
        return (self.centres.repeat(1, z.shape[1] // _KERNELS, 1) + self.width[:, None] * z).to(
            z.dtype
        )

    @classmethod
    def about(
        cls, z: Tensor, copies: Copies, temperatures: Sequence[float], uniform: Tensor
    ) -> _Kernel:
        """Centred at some of the copies z (images, n, d), drawn systematically from a uniform
        number (images, 1)."""
        z, d, log_density = z.double(), z.shape[2], copies.log_density
        t, ess = reach(
            [(t, effective(copies.weights(t, log_density)[0])) for t in temperatures], _ENOUGH
        )
        cumulated = copies.weights(t[:, None], log_density)[0].cumsum(1)
        place = torch.arange(_KERNELS, dtype=z.dtype, device=z.device) + uniform
        drawn = torch.searchsorted(cumulated, place / _KERNELS * cumulated[:, -1:]).clamp_max(
            z.shape[1] - 1
        )
        share = (
            cumulated.diff(dim=1, prepend=torch.zeros_like(cumulated[:, :1])) / cumulated[:, -1:]
        )[..., None]
        deviation = (
            total(share * (z - total(share * z, 1)[:, None]).square(), 1).sqrt().clamp_min(1e-9)
        )
        done = ((t == temperatures[-1]) & (ess >= _PLENTY))[:, None]
        centres = torch.where(done[..., None], 0.0, z.gather(1, drawn[..., None].expand(-1, -1, d)))
        return cls(
            centres, torch.where(done, 1.0, (4 / (_KERNELS * (d + 2))) ** (1 / (d + 4)) * deviation)
        )

    def log_ratio(self, z: Tensor) -> Tensor:
        """log of the density over N(0, I) at z (images, n, d)."""
        z = z.double()
        u = z / self.width[:, None]
        c = self.centres / self.width[:, None]
        # (images, n, K)
        far = (
            total(u.square())[..., None]
            - 2 * product(u, c.transpose(1, 2))
            + total(c.square())[:, None]
        )
        nearest = far.amin(2, keepdim=True)
        near = total(torch.exp((nearest - far) / 2)) / _KERNELS
        return (
            torch.log(near)
            + (total(z.square()) - nearest[..., 0]) / 2
            - total(self.width.log())[:, None]
        )
