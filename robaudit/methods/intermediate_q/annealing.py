"""Annealed Hamiltonian Monte Carlo between a standard normal distribution and its tilt by a power
of a loss.

The distributions are p_t(z) ~ l(z)^t N(z; 0, I) for temperatures t from 0 to q. Several chains per
image go up from independent draws of p_0, climb to a high loss, and come down again. They lag
towards small losses on the way up and towards large losses on the way down: the mean of both ways
is nearly free of the lag, and their difference shows the lag.

H(z, p) = |z|^2 / 2 + |p|^2 / 2 - t log l(z) is split: z - c and p rotate into each other exactly
between kicks p += h (t grad log l - c), c = t times the mean gradient of the image's *other*
chains. The space of z has no border to reflect from; at t = 0, and for a linear log l at any t,
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
from robaudit.numerics.rowwise import lengths, sums

Slopes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Image of each row (rows,) and points (rows, d) -> log l (rows,), float64, minus infinity where it
is not defined; gradients (rows, d)."""

CONTROLS = 3
# of the adaptation: log angle += rate (acceptance - target)
_RATE = 1.0
_TARGET = 0.8
# angles of a trajectory
_SMALLEST = 1e-3
_LARGEST = math.pi / 2
_CORRECTED = (-3.0, 1.0)  # log of the factor of the angles on the way down, relative to the way up
_MEMORY = 0.9  # of the running means over temperatures
_NEAR = 2  # temperatures on each side of an order that contribute to its centre
# climbing takes 1/20 of the gradients of a way; radians per step
_CLIMBING = 20
_CLIMB = 0.25


@dataclass(frozen=True, slots=True)
class Records:
    """The states on the way up or down, by ascending temperature.

    Attributes:
        log_loss: log l after the moves at each temperature (temperatures, images, chains), float64.
        controls: functions of the same states with mean 0 under p_t (CONTROLS, temperatures,
            images, chains), float64: inner products of the score s = t grad log l - z with the mean
            state and the mean gradient of the *other* chains at earlier temperatures (a mean of the
            current states would couple the fits of different chains), and z . s + d.
        acceptance: mean acceptance probability over the chains (temperatures, images), float64.
    """

    log_loss: Tensor
    controls: Tensor
    acceptance: Tensor


@dataclass(frozen=True, slots=True)
class Annealed:
    """The records of both ways.

    Attributes:
        up, down: records.
        centres: for each order q, q times the mean gradient of log l near q on the way down, about
            the mean of the states (orders, images, d).
        highest: the highest log l at any evaluated point (images,), float64.
        evaluations: number of evaluations of log l per image, with gradients if the chains use
            them.
    """

    up: Records
    down: Records
    centres: Tensor
    highest: Tensor
    evaluations: int


def climbing_steps(temperatures: int, steps: int) -> int:
    """Gradients of a chain between the two ways."""
    return max(1, round(temperatures * steps / _CLIMBING))


def gradients_of(temperatures: int, steps: int, chains: int) -> int:
    """Gradients that :func:`anneal` takes per image."""
    return chains * (1 + 2 * temperatures * steps + climbing_steps(temperatures, steps))


def anneal(
    slopes: Slopes,
    normals: Numbers,
    uniforms: Numbers,
    images: int,
    chains: int,
    temperatures: Sequence[float],
    steps: int,
    orders: Sequence[float],
) -> Annealed:
    """Run the chains up and down.

    Args:
        slopes: log l and its gradient.
        normals: standard normal variables (rows, d).
        uniforms: on [0, 1] (rows,), float64.
        images: number of images.
        chains: chains of each image, 2 or more.
        temperatures: ascending, the first 0.
        steps: leapfrog steps at each temperature.
        orders: the temperatures whose centres are returned.

    Source: Rice et al., Robustness between the worst and average case, section 4.2, for Hamiltonian
        path sampling; Neal 2001 for annealing;
    the splitting, the two ways and the controls are robaudit's.
    """
    z = normals()
    image = torch.arange(images, device=z.device).repeat_interleave(chains)
    downwards = temperatures[::-1]
    chain = _Chains(
        slopes,
        normals,
        uniforms,
        image,
        chains,
        z,
        [_around(downwards.index(q), len(downwards)) for q in orders],
    )
    angle = z.new_full((images,), math.log(_LARGEST), dtype=torch.float64)
    up, angles = chain.way(temperatures, steps, [angle] * len(temperatures), absolute=True)
    climb = climbing_steps(len(temperatures), steps)
    chain.climb(climb)
    down, _ = chain.way(downwards, steps, angles[::-1], absolute=False)
    down = Records(down.log_loss.flip(0), down.controls.flip(1), down.acceptance.flip(0))
    return Annealed(
        up, down, chain.centres, chain.highest, gradients_of(len(temperatures), steps, chains)
    )


def _around(place: int, n: int) -> list[int]:
    """The indices at most two away, the index itself first."""
    return [
        place,
        *(i for i in range(max(0, place - _NEAR), min(n, place + _NEAR + 1)) if i != place),
    ]


class _Chains:
    """All chains in lock-step; row = image * chains + chain."""

    def __init__(
        self,
        slopes: Slopes,
        normals: Numbers,
        uniforms: Numbers,
        image: Tensor,
        chains: int,
        z: Tensor,
        near: Sequence[Sequence[int]],
    ) -> None:
        self._slopes = slopes
        self._normals = normals
        self._uniforms = uniforms
        self._image = image
        self._chains = chains
        self._known = z.new_zeros(4, *z.shape)
        """Running means of z and of grad log l over temperatures, then z and grad log l: adjacent,
        for joint products."""
        self._means = self._known[:2]
        self._state = self._known[2:]
        self._near = near
        self.centres = z.new_zeros(len(near), len(image) // chains, z.shape[1])
        self.highest = torch.full(
            (len(image) // chains,), -torch.inf, dtype=torch.float64, device=z.device
        )
        self._value = self._move_to(z)

    def way(
        self, temperatures: Sequence[float], steps: int, angles: Sequence[Tensor], *, absolute: bool
    ) -> tuple[Records, list[Tensor]]:
        """Move at each temperature in turn and record the states.

        Args:
            temperatures: in the order of the way.
            steps: leapfrog steps of each trajectory.
            angles: log of the angle at each temperature (images,); if ``absolute`` only the first
                is used, and adapts from there; otherwise an adapting factor multiplies the angles.
            absolute: see ``angles``.

        Returns:
            The records in the order of the way, and the log of the angles used.
        """
        rows = len(self._image)
        n = len(temperatures)
        others_count = self._chains - 1
        z, slope = self._state
        log_loss = torch.empty((n, rows), dtype=torch.float64, device=z.device)
        controls = torch.empty((CONTROLS, n, rows), dtype=torch.float64, device=z.device)
        acceptance = torch.empty((n, rows // self._chains), dtype=torch.float64, device=z.device)
        products = torch.empty_like(self._known[:CONTROLS])
        used: list[Tensor] = []
        adapted = angles[0] if absolute else torch.zeros_like(angles[0])
        others = self._others()
        self._means.copy_(others)
        for k, t in enumerate(temperatures):
            angle = (adapted if absolute else angles[k] + adapted).clamp(
                math.log(_SMALLEST), math.log(_LARGEST)
            )
            used.append(angle)
            acceptance[k] = self._trajectory(t, angle.exp(), steps, others[1] * (t / others_count))
            adapted = adapted + _RATE * (acceptance[k] - _TARGET)
            adapted = (
                adapted.clamp(math.log(_SMALLEST), math.log(_LARGEST))
                if absolute
                else adapted.clamp(*_CORRECTED)
            )
            log_loss[k] = self._value
            if not absolute:
                for centre, near in zip(self.centres, self._near, strict=True):
                    if k in near:
                        centre.add_(
                            self._over_chains(slope),
                            alpha=temperatures[near[0]] / (len(near) * self._chains),
                        )
            score = torch.sub(z, slope, alpha=t)  # the negative score
            controls[:, k] = sums(torch.mul(self._known[:CONTROLS], score, out=products))
            others = self._others()
            self._means.lerp_(others, 1 - _MEMORY)
        controls[:2] /= -others_count
        controls[2] = z.shape[1] - controls[2]
        shape = (-1, self._chains)
        return Records(log_loss.unflatten(1, shape), controls.unflatten(2, shape), acceptance), used

    def climb(self, steps: int) -> None:
        """Turn every state towards its gradient step by step, without acceptance tests, at constant
        length."""
        z, slope = self._state
        for _ in range(steps):
            length = lengths(z)[:, None]
            steepness = lengths(slope)[:, None]
            towards = slope * torch.where(
                steepness > 0, length / steepness.clamp_min(1e-30), 0.0
            ).to(z.dtype)
            ahead = math.cos(_CLIMB) * z + math.sin(_CLIMB) * towards
            turned = lengths(ahead)[:, None]
            self._value = self._move_to(
                ahead * torch.where(turned > 0, length / turned.clamp_min(1e-30), 1.0).to(z.dtype)
            )

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
        drift = to_z * centre
        push = to_p * centre
        first = self._normals()
        z = start
        value = self._value
        slope = start_slope
        p = torch.addcmul(first, kick, slope)
        for i in range(steps):
            turned = torch.addcmul(drift, sin, p)
            p = torch.addcmul(push, cos, p).addcmul_(sin, z, value=-1)
            z = turned.addcmul_(cos, z)
            value, slope = self._evaluated(z)
            p.addcmul_(kick, slope, value=1 if i == steps - 1 else 2)
        lost = (
            torch.mul(z, z)
            .addcmul_(p, p)
            .addcmul_(start, start, value=-1)
            .addcmul_(first, first, value=-1)
        )
        gained = sums(lost, torch.float64) / -2 + (t * (value - self._value) if t else 0.0)
        probability = gained.clamp_max(0).exp().nan_to_num(0.0).where(value.isfinite(), 0.0)
        accepted = self._uniforms() < probability
        for old, new in ((start, z), (start_slope, slope)):
            torch.where(accepted[:, None], new, old, out=old)
        self._value = torch.where(accepted, value, self._value)
        return self._over_chains(probability) / self._chains

    def _coefficients(self, step: Tensor, like: Tensor) -> tuple[Tensor, ...]:
        """cos, sin, h, a and b of :meth:`_trajectory` for the steps of the images (images,), each
        (rows, 1)."""
        table = []
        for angle in step.tolist():
            cos = math.cos(angle)
            sin = math.sin(angle)
            half = angle / 2
            table.append((cos, sin, half, 1 - cos - half * sin, sin - half * cos - half))
        sent = torch.tensor(table, dtype=like.dtype).to(like.device, non_blocking=True)
        return sent.repeat_interleave(self._chains, 0).T.unsqueeze(2).unbind()

    def _move_to(self, z: Tensor) -> Tensor:
        """Set the states to z; return log l (rows,)."""
        value, slope = self._evaluated(z)
        self._state[0] = z
        self._state[1] = slope
        return value

    def _evaluated(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = self._slopes(self._image, z)
        self.highest = torch.maximum(self.highest, value.view(-1, self._chains).amax(1))
        return value, slope

    def _over_chains(self, x: Tensor) -> Tensor:
        """The sum over the chains of an image (images x chains, ...), one after the other."""
        parts = x.unflatten(0, (-1, self._chains)).unbind(1)
        result: Tensor = parts[0] + parts[1]
        for part in parts[2:]:
            result += part
        return result

    def _others(self) -> Tensor:
        """The sums of z and of grad log l over the *other* chains of the image (2, rows, d)."""
        rows = self._state.flatten(0, 1)
        others: Tensor = self._over_chains(rows)[:, None] - rows.unflatten(0, (-1, self._chains))
        return others.view_as(self._state)
