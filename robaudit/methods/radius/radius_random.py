"""`radius_random`: the norm of the smallest class-changing perturbation along random directions."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.engine.objective import Objective
from robaudit.methods.radius.minimal_norm import Flips
from robaudit.methods.radius.norm_steps import Norm
from robaudit.methods.radius.radius_estimator import SearchedRadius, flips_of, results_of
from robaudit.methods.radius.random_directions import DOUBLINGS, Rays, least_flip
from robaudit.noise.noise import Shape, shape_of
from robaudit.numerics.normal import normal_cdf
from robaudit.results import Result

PURPOSE = "random directions"
"""The stream of random numbers of the directions."""
# Number of directions tried together: fewer for large images, within these values of a block.
_BLOCK = 250
_FEWEST = 8
_BLOCK_VALUES = 2**22


class RadiusRandom(SearchedRadius):
    """The norm of the smallest perturbation along random directions that changes the class: a
    witnessed flip.

    The directions are the same for every run with a seed: uniform on the l2 sphere, or uniform in
    the cube and scaled to the largest component 1. The radius doubles from 1/1024 of the cap until
    a direction flips; then it is bisected to ``tolerance``. A direction that flips neither at the
    best radius so far nor half way is done
    (:func:`robaudit.methods.radius.random_directions.least_flip`).

    In many dimensions the value is far above the radius: on a linear boundary 1.4 times for 20
    pixels, 7.6 for 784, 15 for 3,072 (l2).

    Source: Giraudon et al., Intrinsic robustness, section 5, without its search, which is no
    bisection and gives radii that cannot be reproduced.
    """

    needs = Need.NOTHING
    summary = (
        "the norm of the smallest perturbation that changes the class, along random directions"
    )
    prefer = (
        "comparison with published numbers, or a network without gradients; radius_attack "
        "is much nearer"
    )

    directions: int = Field(5000, ge=1, le=10**7, description="random directions")
    tolerance: float = Field(
        0.01, ge=1e-6, le=0.5, description="of the bisection, relative to its upper end"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The passes of a typical image.

        They are the first directions at every doubling, and the others twice.
        """
        first = min(_BLOCK, self.directions)
        later = self.directions - first
        each_norm = 1 + first * (1 + DOUBLINGS) + 2 * later
        return 1 + len(self.norm) * each_norm, 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Search, in groups of images that fit into memory."""
        shape = shape_of(batch.x)
        directions = self._block(shape)

        def search(group: Tensor) -> list[Flips]:
            return [self._nearest(batch, group, norm, directions) for norm in self.norm]

        flips, passes = flips_of(batch, directions * math.prod(shape), search)
        by_norm = []
        for norm, nearest in zip(self.norm, flips, strict=True):
            results = results_of(
                batch,
                nearest.radius,
                reached=nearest.label,
                cap=self.limit(norm, shape),
                interval=self.interval,
                passes=passes,
                lost=nearest.lost,
            )
            by_norm.append(results)
        return list(zip(*by_norm, strict=True))

    def _block(self, shape: Shape) -> int:
        """The number of directions tried together.

        It depends on the image shape alone: the bisections depend on it, and rows must not depend
        on the memory of the machine.
        """
        within = min(_BLOCK, _BLOCK_VALUES // math.prod(shape))
        return min(self.directions, max(_FEWEST, within))

    def _nearest(self, batch: ImageBatch, group: Tensor, norm: Norm, directions: int) -> Flips:
        """The least flip of the images of a group."""

        def draws(block: int) -> Tensor:
            start = block * directions
            count = min(directions, self.directions - start)
            normals = [
                torch.cat([*batch.normals(PURPOSE, image, count, start)])
                for image in group.tolist()
            ]
            z = torch.stack(normals)
            if norm == "l2":
                return z
            # Uniform in the cube: the distribution function of a normal variable is uniform.
            return (2 * normal_cdf(z.double()) - 1).to(z.dtype)

        y = batch.predicted[group]
        cap = self.limit(norm, shape_of(batch.x))
        blocks = -(-self.directions // directions)  # rounded up
        rays = Rays(
            norm=norm,
            cap=cap,
            blocks=blocks,
            clipped=self.clip,
            tolerance=self.tolerance,
        )
        logits = Objective(batch, y, group).logits
        return least_flip(logits, batch.x[group], y, draws, rays)
