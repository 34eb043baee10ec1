"""`radius_pgd`: the first ball of growing radius in which projected gradient ascent changes the
class."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.objective import Objective
from robaudit.methods.radius.growing_balls import Grid, first_escapes
from robaudit.methods.radius.minimal_norm import Flips
from robaudit.methods.radius.norm_steps import Norm
from robaudit.methods.radius.radius_estimator import LEAST_CAP, SearchedRadius, flips_of, results_of
from robaudit.noise.noise import Shape, shape_of
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import lengths
from robaudit.results import Result, Searched
from robaudit.spec.fields import as_number

PURPOSE = "growing balls"
"""The stream of random numbers of the starts."""
STEPS: dict[str, float] = {"l2": 0.32, "linf": 0.025}
"""The grids of the paper."""
BALLS = 20
"""Number of balls of a grid without a cap: twice as many as the networks of the paper need."""
_ROUNDING = 1e-9  # a cap that is a multiple of the step in decimals has its ball

Decimal = Annotated[
    float, BeforeValidator(as_number), Field(ge=LEAST_CAP, le=1e9, allow_inf_nan=False)
]


class RadiusPgd(SearchedRadius):
    """The smallest radius on the grid D, 2D, ... at which projected gradient ascent changes the
    class: the paper's adversarial curve.

    In each ball it is ascent on -ReLU(max_{i != t} z_i - z_t), with t the runner-up class of the
    clean image. It takes ``steps`` steps of .08 of the radius, from ``restarts`` starts that are
    uniform in the ball. Any iterate outside the predicted class counts, starts included, if a plain
    pass confirms it; then the image is done
    (:func:`robaudit.methods.radius.growing_balls.first_escapes`). An image without a flip up to
    ``cap`` is censored there. The paper does not clip.

    The true radius is smaller than the value, usually by more than a step: `radius_attack` is
    closer with fewer gradients. Use this estimator to compare curves with published ones. Each ball
    without a flip costs restarts x steps gradients.

    Source: Smoothed robustness analysis, section 3.4; Madry et al. 2018; Carlini and Wagner 2017.
    """

    summary = "the first radius on a grid at which projected gradient ascent changes the class"
    prefer = (
        "error curves as published (configs/curves.yaml); for radii themselves "
        "radius_attack is nearer, for less"
    )
    source = "Smoothed robustness analysis, section 3.4; Madry et al. 2018"

    step: Decimal | None = Field(
        None,
        description="D of the grid D, 2D, ..., in the norm's unit; default: 0.32 (l2), 0.025 "
        "(linf)",
    )
    cap: Decimal | None = Field(
        None, description=f"where the grid ends, in the norm's unit; default: after {BALLS} steps"
    )
    steps: int = Field(
        200, ge=1, le=10**5, description="gradient steps from each start, of 0.08 of the radius"
    )
    restarts: int = Field(5, ge=1, le=10**4, description="starts in each ball, uniform in it")

    @model_validator(mode="after")
    def _some_balls(self) -> RadiusPgd:
        """Refuse a grid without a ball, or with more than 100,000."""
        for norm in self.norm:
            if self.cap is not None and self.balls(norm) < 1:
                raise ValueError(
                    f"cap {self.cap:g} is below the first radius of the grid ({norm}: "
                    f"{self.spacing(norm):g})"
                )
            if self.balls(norm) > 10**5:
                raise ValueError("the grid has more than 100,000 radii; raise step or lower cap")
        return self

    def spacing(self, norm: str) -> float:
        """D of a norm."""
        return STEPS[norm] if self.step is None else self.step

    def balls(self, norm: str) -> int:
        """The number of radii in the grid of a norm."""
        if self.cap is None:
            return BALLS
        return math.floor(self.cap / self.spacing(norm) + _ROUNDING)

    def limit(self, norm: str, shape: Shape) -> float:
        """The last radius of the grid."""
        balls = self.balls(norm)
        return Grid("l2", self.spacing(norm), balls).radius(balls)

    @property
    def rows_at_once(self) -> int:
        """The number of starts of an image."""
        return self.restarts

    def passes(self, classes: int) -> tuple[int, int]:
        """The most passes of an image: no ball has a flip."""
        balls = sum(self.balls(norm) for norm in self.norm)
        gradients = balls * self.restarts * self.steps
        # Plain passes: the last points of each ball, and, once for each norm, flips to confirm.
        plain = (balls + len(self.norm)) * self.restarts
        return 1 + gradients + plain, gradients

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Attack, in groups of images that fit into memory."""
        target = _runner_up(batch)

        def search(group: Tensor) -> list[Flips]:
            return [self._escapes(batch, target, group, norm) for norm in self.norm]

        flips, passes = flips_of(batch, batch.x[0].numel() * self.restarts, search)
        by_norm = []
        for norm, first in zip(self.norm, flips, strict=True):
            cap = self.limit(norm, shape_of(batch.x))
            searches = [Searched(step=self.spacing(norm))] * len(batch.x)
            results = results_of(
                batch,
                first.radius,
                reached=first.label,
                cap=cap,
                interval=self.interval,
                passes=passes,
                lost=first.lost,
                searches=searches,
            )
            by_norm.append(results)
        return list(zip(*by_norm, strict=True))

    def _escapes(self, batch: ImageBatch, target: Tensor, group: Tensor, norm: Norm) -> Flips:
        """The first escapes of the images of a group."""
        y = batch.predicted[group]
        model = Objective(batch, y, group)

        def starts(image: Tensor, ball: int) -> Tensor:
            return self._starts(batch, group[image].tolist(), ball, norm)

        grid = Grid(
            norm=norm,
            step=self.spacing(norm),
            balls=self.balls(norm),
            steps=self.steps,
            clipped=self.clip,
        )
        return first_escapes(
            model.logits, model.slopes, batch.x[group], y, target[group], starts, grid
        )

    def _starts(self, batch: ImageBatch, images: list[int], ball: int, norm: Norm) -> Tensor:
        """Uniform points in the unit ball of the norm (images, restarts, *shape).

        Each ball has new draws, and each norm a stream of its own.
        """
        purpose = f"{PURPOSE} {norm}"
        first = (ball - 1) * self.restarts
        points = []
        for image in images:
            z = torch.cat([*batch.normals(purpose, image, self.restarts, first)])
            if norm == "linf":
                # Uniform on [-1, 1] in every pixel is uniform in the l_inf ball.
                uniform = 2 * normal_cdf(z.double()) - 1
                points.append(uniform.to(z.dtype))
                continue
            # Uniform in the l2 ball of dimension d: a normal direction, times U^(1/d). Scalars are
            # always drawn from the first one on, so those of earlier balls are dropped.
            scalars = torch.cat([*batch.scalars(f"{purpose} share", image, first + self.restarts)])
            share = normal_cdf(scalars[first:].double())
            radius = (share.log() / z[0].numel()).exp()
            scale = radius / lengths(z).clamp_min(1e-30)
            points.append(z * scale.to(z.dtype).view(-1, 1, 1, 1))
        return torch.stack(points)


def _runner_up(batch: ImageBatch) -> Tensor:
    """The runner-up class of each image (images,)."""
    # The attack's target: Smoothed robustness analysis, section 3.4.
    others = batch.logits.scatter(1, batch.predicted[:, None], -torch.inf)
    return others.argmax(1)
