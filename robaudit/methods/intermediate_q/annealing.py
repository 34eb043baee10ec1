"""Annealed Hamiltonian Monte Carlo between a standard normal distribution and its tilt by the
exponential of a function r.

The distributions are p_t(z) ~ exp(t r(z)) N(z; 0, I) for temperatures t from 0 to 1. Several chains
per image go up from independent draws of p_0, and come down again. They lag towards small r on the
way up and towards large r on the way down: the mean of both ways is nearly free of the lag, and
their difference shows the lag.

H(z, p) = |z|^2 / 2 + |p|^2 / 2 - t r(z) is split: z - c and p rotate into each other exactly
between kicks p += h (t grad r - c), c = t times the mean gradient of the image's *other*
chains. The space of z has no border to reflect from; at t = 0, and for a linear r at any t,
only the rotation remains and every proposal is accepted. The angle of a trajectory adapts to an
acceptance of 0.8, for each image separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.methods.intermediate_q.metropolis import Numbers
from robaudit.numerics.rowwise import sums

Slopes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Image of each row (rows,) and points (rows, d) -> r (rows,), float64, minus infinity where it is
not defined; gradients (rows, d)."""

CONTROLS = 3
"""Control variates of each state."""
# Of the adaptation: log angle += rate (acceptance - target).
_RATE = 1.0
_TARGET = 0.8
# Angles of a trajectory. At a right angle and t = 0 the proposal is an independent draw.
_SMALLEST = 1e-3
_LARGEST = math.pi / 2
_CORRECTED = (-3.0, 1.0)  # log of the factor of the angles on the way down, relative to the way up
_MEMORY = 0.9  # of the running means over temperatures: about the last ten count


@dataclass(frozen=True, slots=True)
class Records:
    """The states on the way up or down, by ascending temperature.

    Attributes:
        log_ratio: r after the moves at each temperature (temperatures, images, chains), float64.
        controls: functions of the same states with mean 0 under p_t (CONTROLS, temperatures,
            images, chains), float64: inner products of the score s = t grad r - z with the mean
            state and the mean gradient of the *other* chains at earlier temperatures (a mean of the
            current states would couple the fits of different chains), and z . s + d.
        acceptance: mean acceptance probability over the chains (temperatures, images), float64.
    """

    log_ratio: Tensor
    controls: Tensor
    acceptance: Tensor


@dataclass(frozen=True, slots=True)
class Annealed:
    """The records of both ways.

    Attributes:
        up, down: records.
    """

    up: Records
    down: Records


def gradients_of(temperatures: int, steps: int, chains: int) -> int:
    """Gradients that :func:`anneal` takes per image."""
    return chains * (1 + 2 * temperatures * steps)


def anneal(
    slopes: Slopes,
    normals: Numbers,
    uniforms: Numbers,
    images: int,
    chains: int,
    temperatures: Sequence[float],
    steps: int,
) -> Annealed:
    """Run the chains up and down.

    Args:
        slopes: r and its gradient.
        normals: standard normal variables (rows, d).
        uniforms: on [0, 1] (rows,), float64.
        images: number of images.
        chains: chains of each image, 2 or more.
        temperatures: ascending, the first 0.
        steps: leapfrog steps at each temperature.

    Source: Rice et al., Robustness between the worst and average case, section 4.2, for Hamiltonian
        path sampling; Neal 2001 for annealing; the splitting, the two ways and the controls are
        robaudit's.
    """
    z = normals()
    n = len(temperatures)
    image = torch.arange(images, device=z.device).repeat_interleave(chains)
    downwards = temperatures[::-1]
    all_chains = _Chains(slopes, normals, uniforms, image, chains, z)
    # At t = 0 nothing is rejected: begin with the angle of independent draws.
    log_angle = z.new_full((images,), math.log(_LARGEST), dtype=torch.float64)
    up, log_angles = all_chains.way(temperatures, steps, [log_angle] * n, absolute=True)
    # The way down starts from the angles that the way up has found for each temperature.
    down, _ = all_chains.way(downwards, steps, log_angles[::-1], absolute=False)
    down = Records(
        log_ratio=down.log_ratio.flip(0),
        controls=down.controls.flip(1),
        acceptance=down.acceptance.flip(0),
    )
    return Annealed(up, down)


class _Chains:
    """All chains in lock-step; row = image * chains + chain.

    Args:
        slopes, normals, uniforms: as in :func:`anneal`.
        image: the image of each row (rows,).
        chains: of each image.
        z: the first states (rows, d).
    """

    def __init__(
        self,
        slopes: Slopes,
        normals: Numbers,
        uniforms: Numbers,
        image: Tensor,
        chains: int,
        z: Tensor,
    ) -> None:
        self._slopes = slopes
        self._normals = normals
        self._uniforms = uniforms
        self._image = image
        self._chains = chains
        # Running means of z and of grad r over temperatures, then z and grad r (4, rows, d):
        # adjacent, so that the controls are one product.
        self._known = z.new_zeros(4, *z.shape)
        self._means = self._known[:2]
        self._state = self._known[2:]
        self._log_ratio = self._move_to(z)

    def way(
        self,
        temperatures: Sequence[float],
        steps: int,
        log_angles: Sequence[Tensor],
        *,
        absolute: bool,
    ) -> tuple[Records, list[Tensor]]:
        """Move at each temperature in turn and record the states.

        Args:
            temperatures: in the order of the way.
            steps: leapfrog steps of each trajectory.
            log_angles: log of the angle at each temperature (images,); if ``absolute`` only the
                first is used, and adapts from there; otherwise an adapting factor multiplies the
                angles.
            absolute: see ``log_angles``; false on the way down.

        Returns:
            The records in the order of the way, and the log of the angles used.
        """
        rows = len(self._image)
        n = len(temperatures)
        others_count = self._chains - 1
        bounds = (math.log(_SMALLEST), math.log(_LARGEST))
        z, slope = self._state  # views: they follow the chains
        log_ratio = torch.empty((n, rows), dtype=torch.float64, device=z.device)
        controls = torch.empty((CONTROLS, n, rows), dtype=torch.float64, device=z.device)
        acceptance = torch.empty((n, rows // self._chains), dtype=torch.float64, device=z.device)
        products = torch.empty_like(self._known[:CONTROLS])
        used: list[Tensor] = []
        # the log of the angle, or of its factor (images,)
        adapted = log_angles[0] if absolute else torch.zeros_like(log_angles[0])
        others = self._others()
        self._means.copy_(others)
        for k, t in enumerate(temperatures):
            log_angle = adapted if absolute else log_angles[k] + adapted
            log_angle = log_angle.clamp(*bounds)
            used.append(log_angle)
            # t times the mean gradient of the other chains: a centre that depended on the chain's
            # own state would break detailed balance
            centre = others[1] * (t / others_count)
            acceptance[k] = self._trajectory(t, log_angle.exp(), steps, centre)
            adapted = adapted + _RATE * (acceptance[k] - _TARGET)
            adapted = adapted.clamp(*bounds) if absolute else adapted.clamp(*_CORRECTED)
            log_ratio[k] = self._log_ratio
            negative_score = torch.sub(z, slope, alpha=t)  # z - t grad r
            # Products with the mean state, the mean gradient and z, all at once.
            torch.mul(self._known[:CONTROLS], negative_score, out=products)
            controls[:, k] = sums(products)
            others = self._others()
            self._means.lerp_(others, 1 - _MEMORY)
        # The score has the other sign, and sums over the other chains become means. The third
        # control is z . s + d: E[z . s] = -d by Stein's identity.
        controls[:2] /= -others_count
        controls[2] = z.shape[1] - controls[2]
        shape = (-1, self._chains)
        records = Records(log_ratio.unflatten(1, shape), controls.unflatten(2, shape), acceptance)
        return records, used

    def _trajectory(self, t: float, angle: Tensor, steps: int, centre: Tensor) -> Tensor:
        """Run a trajectory of every chain around a centre (rows, d); return the mean acceptance
        probability of each image.

        Between gradients, half a kick -c, the rotation and half a kick -c combine to a single map:
        z' = cos z + sin p + a c, p' = cos p - sin z + b c, where h is half of the step, a = 1 - cos
        - h sin and b = sin - h cos - h.
        """
        start, start_slope = self._state
        cos, sin, half, to_z, to_p = self._coefficients(angle / steps, start)
        kick = half * t
        z_shift = to_z * centre
        p_shift = to_p * centre
        first_p = self._normals()
        z = start
        log_ratio = self._log_ratio
        slope = start_slope
        p = torch.addcmul(first_p, kick, slope)
        for i in range(steps):
            next_z = torch.addcmul(z_shift, sin, p)
            p = torch.addcmul(p_shift, cos, p).addcmul_(sin, z, value=-1)
            z = next_z.addcmul_(cos, z)
            log_ratio, slope = self._evaluated(z)
            # Two half kicks meet between steps.
            p.addcmul_(kick, slope, value=1 if i == steps - 1 else 2)
        # -(H(end) - H(start)), H = |z|^2 / 2 + |p|^2 / 2 - t r
        squares = (
            torch.mul(z, z)
            .addcmul_(p, p)
            .addcmul_(start, start, value=-1)
            .addcmul_(first_p, first_p, value=-1)
        )
        # At t = 0 the loss does not count, even if it is infinite.
        gained_loss = t * (log_ratio - self._log_ratio) if t else 0.0
        gained = sums(squares, torch.float64) / -2 + gained_loss
        probability = gained.clamp_max(0).exp().nan_to_num(0.0)
        # A chain never goes where r is not defined.
        probability = probability.where(log_ratio.isfinite(), 0.0)
        accepted = self._uniforms() < probability
        for old, new in ((start, z), (start_slope, slope)):
            torch.where(accepted[:, None], new, old, out=old)
        self._log_ratio = torch.where(accepted, log_ratio, self._log_ratio)
        return self._over_chains(probability) / self._chains

    def _coefficients(self, step: Tensor, like: Tensor) -> tuple[Tensor, ...]:
        """cos, sin, h, a and b of :meth:`_trajectory` for the steps of the images (images,), each
        (rows, 1)."""
        # In float64: a cancels to the fourth power of the angle.
        table = []
        for angle in step.tolist():
            cos = math.cos(angle)
            sin = math.sin(angle)
            half = angle / 2
            a = 1 - cos - half * sin
            b = sin - half * cos - half
            table.append((cos, sin, half, a, b))
        sent = torch.tensor(table, dtype=like.dtype).to(like.device, non_blocking=True)
        rows = sent.repeat_interleave(self._chains, 0)
        return rows.T.unsqueeze(2).unbind()

    def _move_to(self, z: Tensor) -> Tensor:
        """Set the states to z; return r (rows,)."""
        log_ratio, slope = self._evaluated(z)
        self._state[0] = z
        self._state[1] = slope
        return log_ratio

    def _evaluated(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """r (rows,) and its gradient (rows, d) at z."""
        return self._slopes(self._image, z)

    def _over_chains(self, x: Tensor) -> Tensor:
        """The sum over the chains of an image (images x chains, ...), one after the other."""
        parts = x.unflatten(0, (-1, self._chains)).unbind(1)
        result: Tensor = parts[0] + parts[1]
        for part in parts[2:]:
            result += part
        return result

    def _others(self) -> Tensor:
        """The sums of z and of grad r over the *other* chains of the image (2, rows, d)."""
        rows = self._state.flatten(0, 1)
        by_chain = rows.unflatten(0, (-1, self._chains))
        others: Tensor = self._over_chains(rows)[:, None] - by_chain
        return others.view_as(self._state)
