"""`radius_attack`: the norm of the smallest class-changing perturbation that attacks find."""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.objective import Objective
from robaudit.methods.radius.minimal_norm import Flips, Search, passes_of, shared_flips
from robaudit.methods.radius.norm_steps import Norm
from robaudit.methods.radius.radius_estimator import SearchedRadius, flips_of, results_of
from robaudit.noise.noise import shape_of
from robaudit.numerics.normal import normal_cdf
from robaudit.results import Result

PURPOSE = "radius"
"""The stream of random numbers of the restarts."""
_USUAL = Search("l2")


class RadiusAttack(SearchedRadius):
    """The norm of the smallest class-changing perturbation that a search finds: an upper bound of
    the radius.

    Chains follow the decision boundary towards the image, starting from the image itself and from
    noise (:func:`robaudit.methods.radius.minimal_norm.shared_flips`). Then the best point is
    polished, and its ray bisected. Every value belongs to a perturbed image that the network, in
    its own precision, classifies differently in a plain pass. The norms are searched together: a
    flip in any norm counts in the others, and each norm starts a chain at the best flip of the
    others.

    Source: Giraudon et al., Intrinsic robustness, definition 2.1; for the search see
    :mod:`robaudit.methods.radius.minimal_norm`.
    """

    summary = "the norm of the smallest perturbation that changes the class, as attacks find it"
    prefer = "the distance to the nearest flip, for any network with gradients"
    source = "Giraudon et al., Intrinsic robustness; DeepFool, DDN, FMN, FAB"

    restarts: int = Field(
        _USUAL.restarts,
        ge=0,
        le=1000,
        description="chains from noise in l2; a third as many in linf",
    )
    steps: int = Field(_USUAL.steps, ge=1, le=10**5, description="gradients of each chain")
    polish: int = Field(
        _USUAL.polish,
        ge=0,
        le=10**5,
        description="gradients of the last chain, from the best point",
    )

    @property
    def rows_at_once(self) -> int:
        """The number of chains that start from an image."""
        return _USUAL.targets

    def passes(self, classes: int) -> tuple[int, int]:
        """The most passes of an image."""
        # The cap bounds no number of passes, so any will do.
        gradients, forwards = passes_of([self._search(norm, 1.0) for norm in self.norm])
        return 1 + gradients + forwards, gradients

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Search, in groups of images that fit into memory."""
        shape = shape_of(batch.x)
        searches = [self._search(norm, self.limit(norm, shape)) for norm in self.norm]

        def search(group: Tensor) -> list[Flips]:
            y = batch.predicted[group]
            model = Objective(batch, y, group)
            uniforms = partial(restart_uniforms, batch, group, PURPOSE)
            return shared_flips(model.logits, model.slopes, batch.x[group], y, searches, uniforms)

        # The linearised boundaries hold a slope for each candidate class at once.
        values = batch.x[0].numel() * max(_USUAL.candidates, _USUAL.targets)
        flips, passes = flips_of(batch, values, search)
        by_norm = []
        for nearest, options in zip(flips, searches, strict=True):
            results = results_of(
                batch,
                nearest.radius,
                reached=nearest.label,
                cap=options.cap,
                interval=self.interval,
                passes=passes,
                lost=nearest.lost,
            )
            by_norm.append(results)
        return list(zip(*by_norm, strict=True))

    def _search(self, norm: Norm, cap: float) -> Search:
        """The options of the search in a norm."""
        return Search(
            norm=norm,
            clipped=self.clip,
            cap=cap,
            restarts=self.restarts,
            steps=self.steps,
            polish=self.polish,
        )


def restart_uniforms(batch: ImageBatch, group: Tensor, purpose: str, restart: int) -> Tensor:
    """Starting noise of a restart on [0, 1], for the images of a group (images, channels, height,
    width)."""
    draws = [z for image in group.tolist() for z in batch.normals(purpose, image, 1, restart)]
    # Normal variables depend on seed, purpose and sample alone, not on the group.
    return normal_cdf(torch.cat(draws).double()).to(batch.x.dtype)
