"""log E[l^t] from noisy copies of a mixture: plain ones, and ones moved to where the tilted distributions are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.metropolis import Values
from robaudit.numerics.rowwise import cholesky, cholesky_solve, gram, product, total, variance_over

ENOUGH = 100.0
"""The effective sample size from which copies are trusted with E[l^t]: a relative standard error of at most 1/10."""
AT_ONCE = 50
"""Copies of an image that are made together."""
_ROUNDING = 1e-6
_RIDGE = 1e-12
_KNOWN = 10.0  # effective copies about a centre that tell what it is worth


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies z of the mixture m of N(0, I) and N(c, I), c the centres of an image.

    Attributes:
        log_loss: log l (images, copies), float64.
        log_density: log m / N(0, I) (images, copies), float64.
        controls: N(c, I) / m - 1, whose mean under m is 0, for every centre (images, centres, copies), float64.
        plain, each: how many have no centre, and how many each centre has.
        about: the temperatures whose tilted distributions the centres belong to, ascending.
    """

    log_loss: Tensor
    log_density: Tensor
    controls: Tensor
    plain: int
    each: int
    about: Sequence[float]

    def ess(self, t: float, own: slice = slice(None)) -> Tensor:
        """The effective sample size for E[l^t] (images,), of all copies or of some."""
        log_weight = t * self.log_loss[:, own] - self.log_density[:, own]
        weight = torch.exp(log_weight - log_weight.amax(1, keepdim=True).clamp_min(-1e300))
        return (total(weight).square() / total(weight.square())).nan_to_num(1.0)

    def tells(self, q: float) -> Tensor:
        """Whether the copies about the centres next to q have told what those are worth, much or nothing (images,), bool."""
        next_to = {*[i for i, t in enumerate(self.about) if t <= q][-1:], *[i for i, t in enumerate(self.about) if t >= q][:1]}
        firsts = [self.plain + i * self.each for i in next_to]
        found = [self.ess(q, slice(first, first + self.each)) >= _KNOWN for first in firsts]
        return torch.stack(found).any(0) if found else torch.ones(len(self.log_loss), dtype=torch.bool, device=self.log_loss.device)

    def log_mass(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """log E[l^t] at a temperature of each image (images,), and its standard error.

        l^t / m is regressed on the controls: the intercept has at most about the variance that the copies of any single part of the mixture
        would have alone, and none at t = 0 or for a linear log l that has its centre.

        Source: Owen and Zhou 2000, Safe and effective importance sampling.
        """
        log_weight = t[:, None] * self.log_loss - self.log_density
        highest = log_weight.amax(1, keepdim=True).clamp_min(-1e300)
        weight = torch.exp(log_weight - highest)
        n = weight.shape[1]
        columns = torch.cat([torch.ones_like(weight)[:, None], self.controls, weight[:, None]], 1)  # (images, columns, copies)
        scale = (total(columns.square()) / n).sqrt()
        columns = columns / torch.where(scale > 0, scale, 1.0)[..., None]
        products = gram(columns) / n
        ridge = _RIDGE * torch.eye(products.shape[1] - 1, dtype=weight.dtype, device=weight.device)
        lower, failed = cholesky(products[:, :-1, :-1] + ridge)
        sound = failed[:, None] == 0
        solved = cholesky_solve(products[:, :-1, -1], torch.where(sound[..., None], lower, ridge))
        slopes = torch.where(sound, solved, 0.0)[:, 1:, None]
        rest = (columns[:, -1] - total(columns[:, 1:-1] * slopes, 1) if len(self.about) else columns[:, -1]) * scale[:, -1:]
        mass = total(rest) / n
        strata = rest.split([self.plain] + [self.each] * len(self.about), dim=1)
        variance = torch.stack([variance_over(part, 1) * part.shape[1] for part in strata], 1)
        error = (total(variance).sqrt() / (n * mass)).nan_to_num(1.0).clamp_min(_ROUNDING)
        return highest[:, 0] + torch.log(mass), error


@dataclass(frozen=True, slots=True)
class Start:
    """How far the copies of an image reach: the largest temperature up to an order at which they are enough.

    Attributes:
        temperature: (images,), float64.
        log_mass, std_error, ess: of E[l^t] there (images,), float64.
        known: whether the copies about the centres next to the order have told what those are worth (images,), bool.
    """

    temperature: Tensor
    log_mass: Tensor
    std_error: Tensor
    ess: Tensor
    known: Tensor


def copied(
    values: Values, normals: Callable[[], Tensor], images: int, plain: int, each: int, centres: Tensor, about: Sequence[float]
) -> Copies:
    """Draw ``plain`` copies of N(0, I), and ``each`` of N(c, I) for every centre c.

    All have the density of the whole mixture (balance heuristic): the mean of l^t / m has no bias wherever the
    centres are, and a bad region near a centre is met often.

    Args:
        values: log l.
        normals: standard normal variables (images x 50, *shape), new ones at each call.
        images: how many.
        plain, each: multiples of 50.
        centres: (centres, images, d); there may be none.
        about: the temperature of each, ascending.

    Source: Veach and Guibas 1995; Owen and Zhou 2000.
    """
    of_image = centres.transpose(0, 1).contiguous().double()  # (images, centres, d)
    image = torch.arange(images, device=centres.device).repeat_interleave(AT_ONCE)
    copies = plain + len(about) * each
    share = of_image.new_tensor([plain, *[each] * len(about)]).div_(copies).log_()[:, None]
    losses, densities, controls = [], [], []
    for first in range(0, copies, AT_ONCE):
        z = normals()
        flat = z.flatten(1).unflatten(0, (images, AT_ONCE))
        if first >= plain:
            flat = flat + centres[(first - plain) // each][:, None]
        along = torch.zeros(images, 1 + len(about), AT_ONCE, dtype=torch.float64, device=z.device)  # log N(c, I) / N(0, I)
        if len(about):
            along[:, 1:] = product(of_image, flat.double().transpose(1, 2)) - total(of_image.square())[..., None] / 2
        most = (along + share).amax(1, keepdim=True)
        density = most + torch.log(total(torch.exp(along + share - most), 1))[:, None]
        controls.append(torch.exp(along[:, 1:] - density) - 1)
        losses.append(values(image, flat.flatten(0, 1).unflatten(1, z.shape[1:])).view(images, AT_ONCE))
        densities.append(density[:, 0])
    return Copies(torch.cat(losses, 1), torch.cat(densities, 1), torch.cat(controls, 2), plain, each, about)


def starts(copies: Copies, temperatures: Sequence[float], orders: Sequence[float]) -> list[Start]:
    """How far the copies reach for each order; the choice looks at the effective sample size alone, not at the value.

    Args:
        copies: of the images.
        temperatures: that are considered, besides the order; ascending from 0, where copies are always enough.
        orders: q.
    """
    found = [copies.ess(t) for t in temperatures]
    results = []
    for q in orders:
        ess, reached = found[0], torch.zeros_like(found[0])
        for t, there in [(t, there) for t, there in zip(temperatures, found, strict=True) if t < q] + [(q, copies.ess(q))]:
            enough = there >= ENOUGH
            ess, reached = torch.where(enough, there, ess), torch.where(enough, t, reached)
        results.append(Start(reached, *copies.log_mass(reached), ess, copies.tells(q)))
    return results
