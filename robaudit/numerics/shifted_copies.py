"""log E[l^t] from noisy copies of a mixture: plain ones, and ones moved to where the tilted distributions are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.metropolis import Values
from robaudit.numerics.rowwise import product, total, variance_over

ENOUGH = 100.0
"""The effective sample size from which copies are trusted with E[l^t]: a relative standard error of at most 1/10."""
_ROUNDING = 1e-6
_KNOWN = 10.0  # effective copies about a centre that tell what it is worth
AT_ONCE = 50
"""Copies of an image that are made together."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies z of the mixture m of the images.

    Attributes:
        log_loss: log l (images, copies), float64.
        log_density: log m / N(0, I) (images, copies), float64.
        plain, each: how many have no centre, and how many each centre has.
    """

    log_loss: Tensor
    log_density: Tensor
    plain: int
    each: int

    def about(self, centre: int) -> Copies:
        """Those about a centre alone."""
        first = self.plain + centre * self.each
        own = slice(first, first + self.each)
        return Copies(self.log_loss[:, own], self.log_density[:, own], 0, self.each)

    def log_mass(self, t: float) -> tuple[Tensor, Tensor, Tensor]:
        """log E[l^t], its standard error and the effective sample size (images,)."""
        log_weight = t * self.log_loss - self.log_density
        highest = log_weight.amax(1, keepdim=True).clamp_min(-1e300)
        weight = torch.exp(log_weight - highest)
        mass, n = total(weight), weight.shape[1]
        ess = (mass.square() / total(weight.square())).nan_to_num(1.0)
        strata = weight.split([self.plain] * (self.plain > 0) + [self.each] * ((n - self.plain) // max(1, self.each)), dim=1)
        variance = torch.stack([variance_over(part, 1) * part.shape[1] for part in strata], 1)
        return highest[:, 0] + torch.log(mass / n), (total(variance).sqrt() / mass).nan_to_num(1.0).clamp_min(_ROUNDING), ess


@dataclass(frozen=True, slots=True)
class Start:
    """How far the copies of an image reach: the largest temperature up to an order at which they are enough.

    Attributes:
        place: its number among the temperatures (images,), int64.
        temperature: that temperature (images,), float64.
        log_mass, std_error, ess: of E[l^t] there (images,), float64.
        known: whether the copies about the order's centre have told what it is worth, much or nothing (images,), bool.
    """

    place: Tensor
    temperature: Tensor
    log_mass: Tensor
    std_error: Tensor
    ess: Tensor
    known: Tensor


def copied(values: Values, normals: Callable[[], Tensor], images: int, plain: int, each: int, centres: Tensor | None) -> Copies:
    """Draw ``plain`` copies of N(0, I), and ``each`` of N(c, I) for every centre c.

    All have the density of the whole mixture (balance heuristic): the mean of l^t / m has no bias wherever the
    centres are, and a bad region near a centre is met often.

    Args:
        values: log l.
        normals: standard normal variables (images x 50, *shape), new ones at each call.
        images: how many.
        plain, each: multiples of 50.
        centres: (centres, images, d), or None.

    Source: Veach and Guibas 1995; Owen and Zhou 2000, Safe and effective importance sampling.
    """
    number = 0 if centres is None else len(centres)
    calls = (plain + number * each) // AT_ONCE
    image: Tensor | None = None
    losses, densities = [], []
    for call in range(calls):
        z = normals()
        shape = z.shape[1:]
        if image is None:
            image = torch.arange(images, device=z.device).repeat_interleave(AT_ONCE)
        flat = z.flatten(1).unflatten(0, (images, AT_ONCE))
        density = torch.zeros(images, AT_ONCE, dtype=torch.float64, device=z.device)
        if centres is not None:
            of_image = centres.transpose(0, 1).contiguous()  # (images, centres, d)
            if call >= plain // AT_ONCE:
                flat = flat + of_image[:, (call - plain // AT_ONCE) * AT_ONCE // each, None]
            half = total(of_image.double().square()) / 2
            along = product(flat.double(), of_image.double().transpose(1, 2)) - half[:, None]
            along = torch.cat([torch.zeros_like(along[..., :1]), along], 2)
            share = along.new_full((number + 1,), each / (plain + number * each)).log()
            share[0] = math.log(plain / (plain + number * each))
            along += share
            most = along.amax(2, keepdim=True)
            density = most[..., 0] + torch.log(total(torch.exp(along - most)))
        losses.append(values(image, flat.flatten(0, 1).unflatten(1, shape)).view(images, AT_ONCE))
        densities.append(density)
    return Copies(torch.cat(losses, 1), torch.cat(densities, 1), plain, 0 if centres is None else each)


def starts(copies: Copies, temperatures: Sequence[float], orders: Sequence[float]) -> list[Start]:
    """How far the copies reach for each order; the choice looks at the effective sample size alone, not at the value."""
    found = [copies.log_mass(t) for t in temperatures]
    log_mass, std_error, ess = (torch.stack(column) for column in zip(*found, strict=True))  # (temperatures, images)
    place = torch.arange(len(temperatures), device=ess.device)[:, None].expand_as(ess)
    log_mass[0], std_error[0] = 0.0, 0.0  # E[l^0] = 1
    results = []
    for order, q in enumerate(orders):
        number = temperatures.index(q)
        reached = torch.where((ess >= ENOUGH) & (place <= number), place, 0).amax(0)
        row = reached[None]
        mass, error, effective = (column.gather(0, row)[0] for column in (log_mass, std_error, ess))
        known = copies.about(order).log_mass(q)[2] >= _KNOWN if copies.each else torch.ones_like(reached, dtype=torch.bool)
        results.append(Start(reached, ess.new_tensor(temperatures)[reached], mass, error, effective, known))
    return results
