"""Gradient-free Metropolis moves in Gaussian space towards high values of a function, for many
chains in lock-step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.rowwise import mean_over

Values = Callable[[Tensor, Tensor], Tensor]
"""Image of each row (rows,) and points z (rows, *shape) -> log l (rows,), float64, minus infinity
if l = 0."""

Numbers = Callable[[], Tensor]
"""Random numbers for each row, new at every call: rows are images x chains, chains fastest."""

TARGET = 0.3
"""The acceptance that the angle adapts to."""
GAIN = 0.5
"""log angle rises by it times the acceptance of a rotation less the target."""
LEAST_ANGLE = 1e-3
MOST_COORDINATES = 64
"""With more coordinates, no single coordinate is replaced: it would change almost nothing."""


@dataclass(slots=True)
class Walk:
    """Chains of some images: rows = images x chains, with the chains of an image adjacent.

    Attributes:
        z: positions of the chains (rows, *shape).
        log_l: log l at z (rows,), float64.
        angle: angle of the moves for each image (images,), float64, in (0, pi / 2].
        best: the point with the highest log l of each row, proposals included (rows, *shape).
        highest: log l at that point (rows,), float64.
    """

    z: Tensor
    log_l: Tensor
    angle: Tensor
    best: Tensor
    highest: Tensor

    @property
    def chains(self) -> int:
        """Chains of each image."""
        return len(self.z) // len(self.angle)

    @property
    def image(self) -> Tensor:
        """The image of each row (rows,), int64."""
        return torch.arange(len(self.angle), device=self.z.device).repeat_interleave(self.chains)

    @classmethod
    def at(cls, values: Values, z: Tensor, chains: int) -> Walk:
        """Start chains at z (rows, *shape); the first moves are independent draws, as they should
        be if t starts at 0."""
        images = len(z) // chains
        angle = torch.full((images,), math.pi / 2, dtype=torch.float64, device=z.device)
        image = torch.arange(images, device=z.device).repeat_interleave(chains)
        log_l = values(image, z)
        return cls(z.clone(), log_l, angle, best=z.clone(), highest=log_l.clone())


def metropolis(
    values: Values,
    walk: Walk,
    t: float,
    moves: int,
    normals: Numbers,
    uniforms: Numbers,
    *,
    first: int = 0,
) -> None:
    """Move the chains, preserving the density l(z)^t N(z; 0, I) up to the adaptation of the angle.

    Every move proposes z' and accepts it with probability min(1, (l(z') / l(z))^t), as the
    proposals preserve N(0, I): even-numbered moves rotate, z' = cos(a) z + sin(a) xi (pCN);
    odd-numbered moves replace a single coordinate by a new draw, coordinate by coordinate, which
    crosses barriers that stop a rotation (a flip). With more than 64 coordinates all moves rotate.
    After each rotation log a of an image rises by .5 (mean acceptance probability - .3); a stays in
    [.001, pi / 2]. At t = 0 everything is accepted.

    Args:
        values: log l.
        walk: the chains; changed.
        t: the inverse temperature, >= 0.
        moves: number of moves.
        normals: (rows, *shape) for the proposals of a move, of the type of z.
        uniforms: on [0, 1] (rows,), float64, for the decisions of a move: a proposal is accepted if
            its number is below the probability.
        first: number of the first move.

    Source: Cotter et al. 2013, MCMC methods for functions (pCN).
    """
    image = walk.image
    chains = walk.chains
    images = len(walk.angle)
    shape = (-1,) + (1,) * (walk.z.ndim - 1)
    coordinates = walk.z[0].numel()
    for number in range(first, first + moves):
        rotates = number % 2 == 0 or coordinates > MOST_COORDINATES
        if rotates:
            cos = walk.angle.cos()[image].to(walk.z.dtype)
            sin = walk.angle.sin()[image].to(walk.z.dtype)
            proposal = cos.view(shape) * walk.z + sin.view(shape) * normals()
        else:
            # odd moves replace coordinate 0, 1, 2, ... in turn
            proposal = walk.z.clone()
            coordinate = number // 2 % coordinates
            proposal.flatten(1)[:, coordinate] = normals().flatten(1)[:, coordinate]
        log_l = values(image, proposal)
        # At t = 0 the loss does not count, even if it is 0.
        gained = t * (log_l - walk.log_l) if t else torch.zeros_like(log_l)
        probability = gained.clamp_max(0.0).exp().nan_to_num(0.0)  # NaN: from l = 0 to l = 0
        accept = uniforms() < probability
        # Rejected proposals count, too: they are points that the noise can make.
        higher = log_l > walk.highest
        walk.z = torch.where(accept.view(shape), proposal, walk.z)
        walk.log_l = torch.where(accept, log_l, walk.log_l)
        walk.best = torch.where(higher.view(shape), proposal, walk.best)
        walk.highest = torch.where(higher, log_l, walk.highest)
        if rotates:
            acceptance = mean_over(probability.view(images, chains), 1)
            raised = walk.angle * torch.exp(GAIN * (acceptance - TARGET))
            walk.angle = raised.clamp(LEAST_ANGLE, math.pi / 2)
