"""`radius_random`: the norm of the smallest perturbation that changes the class among those along random directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from robaudit.estimators.base import Need
from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.objective import Objective
from robaudit.estimators.radius import SearchedRadius, rows_of
from robaudit.noise.base import Shape, shape_of
from robaudit.numerics.norm_steps import Norm
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.random_radius import Rays, least_flip
from robaudit.results import Result

PURPOSE = "random directions"
_BLOCK, _FEWEST, _BLOCK_VALUES = 250, 8, 2**22  # directions looked at together; values in them, at most
_HELD_VALUES = 2**23  # of the directions of the images of a group
_DOUBLINGS = 10  # from the first radius to the cap


class RadiusRandom(SearchedRadius):
    """The norm of the smallest perturbation along random directions that changes the class: a witnessed flip.

    The same directions for every run of a seed: uniform on the l2 sphere, or in the cube and scaled to the largest component 1. The
    radius doubles from 1/1024 of the cap until a direction flips; then it is bisected to ``tolerance``. A direction that does not flip at
    the best radius so far, nor half way, needs nothing more (:func:`robaudit.numerics.random_radius.least_flip`).

    In many dimensions it is far above the radius: on a linear boundary 1.4 times for 20 pixels, 7.6 for 784, 15 for 3,072 (l2).

    Args:
        directions: number of directions.
        tolerance: of the bisection, relative to its upper end.

    Source: Giraudon et al., Intrinsic robustness, section 5; its search is no bisection, and its absolute radii cannot be reproduced.
    """

    needs: ClassVar[Need] = Need.NOTHING
    summary: ClassVar[str] = "the norm of the smallest perturbation that changes the class, along random directions"
    prefer: ClassVar[str] = "comparison with published numbers, or a network without gradients; radius_attack is much nearer"

    directions: int = Field(5000, ge=1, le=10**7, description="random directions")
    tolerance: float = Field(0.01, ge=1e-6, le=0.5, description="of the bisection, relative to its upper end")

    def passes(self, classes: int) -> tuple[int, int]:
        """A typical image: the first directions at every doubling, the others twice."""
        first = min(_BLOCK, self.directions)
        return 1 + len(self.norm) * (1 + first * (1 + _DOUBLINGS) + 2 * (self.directions - first)), 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Search, in groups of images that fit into memory."""
        shape = shape_of(batch.x)
        directions = self._block(shape)
        groups = torch.arange(len(batch.x), device=batch.x.device).split(max(1, _HELD_VALUES // (directions * math.prod(shape))))
        radius, label, forwards, lost = (
            torch.stack([torch.cat(parts) for parts in norms])
            for norms in zip(*(self._of_norm(batch, groups, norm, directions) for norm in self.norm), strict=True)
        )  # (norms, images)
        passes = [(1 + spent, 0) for spent in forwards.sum(0).tolist()]
        by_norm = []
        for norm, values, reached, without in zip(self.norm, radius, label, lost.tolist(), strict=True):
            by_norm.append(rows_of(batch, values, reached, self.limit(norm, shape), self.interval, passes, without))
        return list(zip(*by_norm, strict=True))

    def _block(self, shape: Shape) -> int:
        """Directions tried together; a function of the image shape alone, because the bisections depend on it."""
        return min(self.directions, max(_FEWEST, min(_BLOCK, _BLOCK_VALUES // math.prod(shape))))

    def _of_norm(self, batch: ImageBatch, groups: tuple[Tensor, ...], norm: Norm, directions: int) -> tuple[list[Tensor], ...]:
        """Radius, class, passes and passes without finite logits of the images, group by group."""
        cap = self.limit(norm, shape_of(batch.x))
        rays = Rays(norm, cap, cap / 2**_DOUBLINGS, -(-self.directions // directions), clipped=self.clip, tolerance=self.tolerance)
        found = []
        for group in groups:

            def draws(block: int, images: Sequence[int] = group.tolist()) -> Tensor:
                start = block * directions
                count = min(directions, self.directions - start)
                z = torch.stack([torch.cat([*batch.normals(PURPOSE, image, count, start)]) for image in images])
                return z if norm == "l2" else (2 * normal_cdf(z.double()) - 1).to(z.dtype)

            y = batch.predicted[group]
            found.append(least_flip(Objective(batch, y, group).logits, batch.x[group], y, draws, rays))
        return tuple([getattr(one, name) for one in found] for name in ("radius", "label", "forwards", "lost"))
