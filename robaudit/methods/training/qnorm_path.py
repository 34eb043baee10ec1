"""`qnorm_path`: the q-norm of the loss under noise, by path sampling."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from robaudit.methods.intermediate_q.path_sampling import temperature_grid
from robaudit.methods.training.training_objective import Batch, NoisyObjective
from robaudit.spec.fields import SAMPLES_ARE_DRAWS

# of the adaptation: log angle += rate (acceptance - target)
_RATE = 0.5
_TARGET = 0.8
_SMALLEST = 1e-3  # angle of a trajectory; the largest is a right angle


class _State(NamedTuple):
    """The state of the chains, one for each image: z, log l (n,), and its gradient with respect to
    z."""

    z: Tensor
    value: Tensor
    slope: Tensor


class QNormPath(NoisyObjective):
    """Z_q = exp((1/q) int_0^q E_t[log l] dt) of each image, E_t under the noise tilted by l^t; the
    mean over the batch.

    One Hamiltonian chain an image climbs through m temperatures, with L leapfrog steps at each; log
    l is recorded after each move and integrated by the trapezoid rule. The gradient is taken of log
    l at the recorded points, which are held fixed as in the paper, where the estimate is a
    geometric mean of losses. Rotations in the space of the normal variables stand in for the
    paper's box with reflections, so any differentiable kind of noise will do.
    """

    summary = (
        "q-norm of the loss under noise, by path sampling: nearer to the worst case for large q"
    )
    source = "Rice et al., equation 8 and section 4.3"

    q: float = Field(10.0, gt=0, le=1e6, allow_inf_nan=False, description="the order of the norm")
    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(
        25,
        ge=2,
        le=10**4,
        description="temperatures: points of each image that the loss is taken at",
    )
    steps: int = Field(2, ge=1, le=1000, description="leapfrog steps at each temperature")

    @model_validator(mode="after")
    def _differentiable(self) -> QNormPath:
        if not self._form.differentiable:
            raise ValueError(f"noise: {self.noise.kind} has no gradient to follow; use qnorm_mc")
        return self

    def loss(self, batch: Batch) -> Tensor:
        """The mean of Z_q over the images."""
        grid = temperature_grid(self.q, self.draws)
        with batch.searching():
            points = self._visited(batch, grid)  # (images, draws, ...)
        t = torch.tensor(grid, dtype=torch.float64, device=points.device)
        weights = (
            torch.cat([t[1:] - t[:-1], t.new_zeros(1)]) / 2
            + torch.cat([t.new_zeros(1), t[1:] - t[:-1]]) / 2
        )
        image = batch.rows(self.draws)
        log_loss = batch.log_loss(
            self.noisy(batch.images[image], points.flatten(0, 1)), image
        ).view(-1, self.draws)
        return (log_loss @ weights / self.q).exp().mean()

    def _visited(self, batch: Batch, grid: tuple[float, ...]) -> Tensor:
        """z after the move at each temperature (images, temperatures, *latent shape)."""
        state = self._at(batch, self.normals(batch.images))
        log_angle = torch.full_like(state.value, math.log(math.pi / 2))
        visited = []
        for t in grid:
            state, acceptance = self._move(batch, state, t, log_angle.exp() / self.steps)
            log_angle = (log_angle + _RATE * (acceptance - _TARGET)).clamp(
                math.log(_SMALLEST), math.log(math.pi / 2)
            )
            visited.append(state.z)
        return torch.stack(visited, 1)

    def _move(self, batch: Batch, state: _State, t: float, angle: Tensor) -> tuple[_State, Tensor]:
        """A trajectory of every chain: exact rotations of position and momentum between kicks by t
        grad log l; the acceptance (n,)."""
        angle = angle.to(state.z.dtype).view(-1, *[1] * (state.z.ndim - 1))
        cos = angle.cos()
        sin = angle.sin()
        kick = angle * (t / 2)
        first = torch.randn_like(state.z)
        now = state
        p = first + kick * state.slope
        for i in range(self.steps):
            z = cos * now.z + sin * p
            p = cos * p - sin * now.z
            now = self._at(batch, z)
            p = p + kick * now.slope * (1 if i == self.steps - 1 else 2)
        energy = [x.flatten(1).double().square().sum(1) / 2 for x in (state.z, first, now.z, p)]
        gained = energy[0] + energy[1] - energy[2] - energy[3] + t * (now.value - state.value)
        acceptance = gained.clamp_max(0.0).exp().nan_to_num(0.0)
        taken = torch.rand_like(acceptance) < acceptance
        wide = taken.view(-1, *[1] * (now.z.ndim - 1))
        merged = [
            torch.where(taken if a.ndim == 1 else wide, a, b)
            for a, b in zip(now, state, strict=True)
        ]
        return _State(*merged), acceptance

    def _at(self, batch: Batch, z: Tensor) -> _State:
        """log l and its gradient at these points, one for each image."""
        points = z.detach().requires_grad_(True)
        value = batch.log_loss(self.noisy(batch.images, points), batch.rows(1))
        (slope,) = torch.autograd.grad(value.sum(), points)
        return _State(z.detach(), value.detach(), slope.nan_to_num(0.0, 0.0, 0.0))
