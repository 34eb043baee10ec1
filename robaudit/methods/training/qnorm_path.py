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

# Of the adaptation: log angle += rate (acceptance - target).
_RATE = 0.5
_TARGET = 0.8
# Angles of a trajectory. At a right angle and t = 0 the proposal is an independent draw.
_SMALLEST = 1e-3
_LARGEST = math.pi / 2


class _State(NamedTuple):
    """The state of the chains, one for each image.

    Attributes:
        z: (n, *latent shape).
        log_loss: log l at z (n,), float64.
        slope: its gradient with respect to z (n, *latent shape).
    """

    z: Tensor
    log_loss: Tensor
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
            points = self._visited(batch, grid)  # (images, draws, *latent shape)
        t = torch.tensor(grid, dtype=torch.float64, device=points.device)
        # Trapezoid rule: half of the intervals on both sides of each temperature.
        intervals = t[1:] - t[:-1]
        none = t.new_zeros(1)
        weights = torch.cat([intervals, none]) / 2 + torch.cat([none, intervals]) / 2
        image = batch.rows(self.draws)
        copies = self.noisy(batch.images[image], points.flatten(0, 1))
        log_loss = batch.log_loss(copies, image).view(-1, self.draws)
        # equation 8: log Z = (1/q) int_0^q E_t[log l] dt
        log_norm = log_loss @ weights / self.q
        return log_norm.exp().mean()

    def _visited(self, batch: Batch, grid: tuple[float, ...]) -> Tensor:
        """z after the move at each temperature (images, temperatures, *latent shape)."""
        state = self._at(batch, self.normals(batch.images))
        log_angle = torch.full_like(state.log_loss, math.log(_LARGEST))
        visited = []
        for t in grid:
            state, acceptance = self._move(batch, state, t, log_angle.exp() / self.steps)
            log_angle = log_angle + _RATE * (acceptance - _TARGET)
            log_angle = log_angle.clamp(math.log(_SMALLEST), math.log(_LARGEST))
            visited.append(state.z)
        return torch.stack(visited, 1)

    def _move(self, batch: Batch, state: _State, t: float, angle: Tensor) -> tuple[_State, Tensor]:
        """Run a trajectory of every chain: exact rotations of position and momentum between kicks
        by t grad log l.

        Args:
            batch: network and images.
            state: where the chains start.
            t: the temperature.
            angle: of a step (n,).

        Returns:
            The new state, and the acceptance probability (n,).
        """
        per_value = (-1, *[1] * (state.z.ndim - 1))  # broadcasts (n,) against z
        angle = angle.to(state.z.dtype).view(per_value)
        cos = angle.cos()
        sin = angle.sin()
        half_kick = angle * (t / 2)
        first_p = torch.randn_like(state.z)
        proposal = state
        p = first_p + half_kick * state.slope
        for i in range(self.steps):
            z = cos * proposal.z + sin * p
            p = cos * p - sin * proposal.z
            proposal = self._at(batch, z)
            # Two half kicks meet between steps.
            p = p + half_kick * proposal.slope * (1 if i == self.steps - 1 else 2)
        # -(H(end) - H(start)), H = |z|^2 / 2 + |p|^2 / 2 - t log l
        start_energy = _half_square(state.z) + _half_square(first_p)
        gained_loss = t * (proposal.log_loss - state.log_loss)
        gained = start_energy - _half_square(proposal.z) - _half_square(p) + gained_loss
        acceptance = gained.clamp_max(0.0).exp().nan_to_num(0.0)
        accepted = torch.rand_like(acceptance) < acceptance
        wide = accepted.view(per_value)
        new_state = _State(
            torch.where(wide, proposal.z, state.z),
            torch.where(accepted, proposal.log_loss, state.log_loss),
            torch.where(wide, proposal.slope, state.slope),
        )
        return new_state, acceptance

    def _at(self, batch: Batch, z: Tensor) -> _State:
        """log l and its gradient at these points, one for each image."""
        points = z.detach().requires_grad_(True)
        log_loss = batch.log_loss(self.noisy(batch.images, points), batch.rows(1))
        (slope,) = torch.autograd.grad(log_loss.sum(), points)
        # Without a gradient a chain moves on by rotations alone.
        return _State(z.detach(), log_loss.detach(), slope.nan_to_num(0.0, 0.0, 0.0))


def _half_square(x: Tensor) -> Tensor:
    """|x|^2 / 2 of each image (n, *shape): (n,), float64."""
    return x.flatten(1).double().square().sum(1) / 2
