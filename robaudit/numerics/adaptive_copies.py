"""Copies whose mixture follows a tilted distribution in a few variables, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from robaudit.numerics.copies import AT_ONCE, Copies, effective, reach
from robaudit.numerics.metropolis import Values
from robaudit.numerics.rowwise import product, total

_LOTS = 5  # of AT_ONCE copies in a round
_KERNELS = 25
_ENOUGH = 50.0  # the effective sample size at which copies show where the next ones belong


def adapted(
    values: Values, normals: Callable[[], Tensor], uniforms: Callable[[], Tensor], lots: int, temperatures: Sequence[float]
) -> Copies:
    """Draw half of the copies from N(0, I), and the others in rounds about those that count most so far.

    A round weighs all copies by l^t / m, with the largest temperature t that leaves an effective sample size of 50, draws 25 of them by
    these weights, and makes new copies about them: normal, with the weighted standard deviations times (4 / (25 (d + 2)))^(1 / (d + 4)).
    Once t is the last temperature, further rounds are plain.

    Args:
        values: log l.
        normals: standard normal variables (images x 50, d), new ones at each call.
        uniforms: uniform numbers (images x 50,), float64, likewise; one call for each round.
        lots: of 50 copies.
        temperatures: ascending from 0.

    Source: Cappe, Guillin, Marin and Robert 2004, Population Monte Carlo; Silverman 1986 for the width.
    """
    rounds = rounds_of(lots)
    z, log_loss = _valued(values, [normals().unflatten(0, (-1, AT_ONCE)) for _ in range(lots - rounds * _LOTS)])
    images, _, d = z.shape
    kernels: list[tuple[Tensor, Tensor]] = []
    copies = Copies(log_loss, torch.zeros_like(log_loss)[:, None], [z.shape[1]])
    for _ in range(rounds):
        log_density = copies.log_density
        t, _ = reach([(t, effective(copies.weights(t, log_density)[0])) for t in temperatures], _ENOUGH)
        weight, _ = copies.weights(t[:, None], log_density)
        cumulated = weight.cumsum(1)
        place = torch.arange(_KERNELS, dtype=weight.dtype, device=z.device) + uniforms().view(images, AT_ONCE)[:, :1]
        drawn = torch.searchsorted(cumulated, place / _KERNELS * cumulated[:, -1:]).clamp_max(weight.shape[1] - 1)
        share = (weight / cumulated[:, -1:])[..., None]
        mean = total(share * z, 1)
        width = (4 / (_KERNELS * (d + 2))) ** (1 / (d + 4)) * total(share * (z - mean[:, None]).square(), 1).sqrt().clamp_min(1e-9)
        done = (t == temperatures[-1])[:, None]
        centres = torch.where(done[..., None], 0.0, z.gather(1, drawn[..., None].expand(-1, -1, d)))
        width = torch.where(done, 1.0, width)
        kernels.append((centres, width))
        about = centres.repeat(1, AT_ONCE // _KERNELS, 1)
        new = [about + width[:, None] * normals().unflatten(0, (-1, AT_ONCE)) for _ in range(_LOTS)]
        points, found = _valued(values, new)
        z, log_loss = torch.cat([z, points], 1), torch.cat([log_loss, found], 1)
        parts = [torch.zeros_like(log_loss), *(_log_part(z, *kernel) for kernel in kernels)]
        copies = Copies(log_loss, torch.stack(parts, 1), [*copies.sizes, _LOTS * AT_ONCE])
    return copies


def rounds_of(lots: int) -> int:
    """Rounds after the plain copies."""
    return lots // (2 * _LOTS)


def _valued(values: Values, lots: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The points (images, n, d), float64, and log l there."""
    image = torch.arange(len(lots[0]), device=lots[0].device).repeat_interleave(AT_ONCE)
    return torch.cat([z.double() for z in lots], 1), torch.cat([values(image, z.flatten(0, 1)).view(-1, AT_ONCE) for z in lots], 1)


def _log_part(z: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """log of the mean of normal densities about the centres (images, K, d) over N(0, I), at z (images, n, d)."""
    u, c = z / width[:, None], centres / width[:, None]
    far = total(u.square())[..., None] - 2 * product(u, c.transpose(1, 2)) + total(c.square())[:, None]  # (images, n, K)
    nearest = far.amin(2, keepdim=True)
    near = total(torch.exp((nearest - far) / 2)) / centres.shape[1]
    return torch.log(near) + (total(z.square()) - nearest[..., 0]) / 2 - total(width.log())[:, None]
