"""`qnorm_path`: the q-norm of the loss by path sampling, from the average to nearly the worst
case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.engine.objective import Objective
from robaudit.methods.intermediate_q.adaptive_copies import ROUNDS, adapted
from robaudit.methods.intermediate_q.annealing import anneal, gradients_of
from robaudit.methods.intermediate_q.copies import AT_ONCE, shifted, starts
from robaudit.methods.intermediate_q.path_sampling import (
    PathEstimate,
    copies_estimates,
    path_estimates,
    temperature_grid,
)
from robaudit.methods.intermediate_q.q_estimator import QNorm
from robaudit.methods.intermediate_q.streams import Streams
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import LossNorm, Result

_COPIES = Interval(IntervalKind.LOGNORMAL, covers_bias=False)
_NO_VALUE = Interval(IntervalKind.NO_VALUE)
# Chains go this far for any order: a distant region that decides q = 10 may attract them only at
# q = 1000 (docs/research/intermediate_q.md, "Plain copies do not know what they miss").
_HIGHEST = 1000.0
# temperatures, besides the highest, with copies around their tilted distributions
_CENTRES = (1.0, 10.0, 100.0)
_FEWEST_COPIES = 1950  # as many as the default chains take gradients, in whole lots of 50
_FEW = 8  # normal variables, up to which copies adapt to where earlier copies had large weights
_FAR = 0.25  # in log Z: a larger standard error, or half gap, gives no value
_TOO_FEW_COPIES = (
    "no value: too few copies meet the large losses that decide the norm, and there are no "
    "gradients to follow"
)


class _Sampled(NamedTuple):
    """A sampler's results for the images of a chunk.

    Attributes:
        estimates: for every q.
        acceptance: at the highest temperature, and the smallest (2, images); None without chains.
        highest: log l (images,).
        forwards, backwards: for each image.
    """

    estimates: Sequence[PathEstimate]
    acceptance: Tensor | None
    highest: Tensor
    forwards: int
    backwards: int


class QNormPath(QNorm):
    """log Z_q = (log E[l^s] + int_s^q E_t[log l] dt) / q: copies up to a temperature s, then
    chains; E_t under the noise tilted by l^t.

    Every kind of noise is a map of standard normal variables z, so the tilted distributions are
    p_t(z) ~ l(z)^t N(z; 0, I). Several independent Hamiltonian chains go up to t = 1000, or to the
    largest q above it, and down again (:mod:`robaudit.methods.intermediate_q.annealing`); log l is
    recorded after each trajectory, with control variates from its gradient, and integrated
    (:mod:`robaudit.methods.intermediate_q.path_sampling`). As many copies as the chains took
    gradients, half of them plain and half around the chains' states, give E[l^t] as far as their
    effective sample size allows (:mod:`robaudit.methods.intermediate_q.copies`). Kinds without
    gradients use copies alone: adaptive for few variables (``spatial``;
    :mod:`robaudit.methods.intermediate_q.adaptive_copies`), plain otherwise (``impulse``).

    The interval is Student's t of log Z between the copies and between the chains, widened by half
    of the gap between the ways up and down: chains that are too short for the loss to settle at
    each temperature lag below on the way up and above on the way down. If the gap is too large
    there is no value. The interval does not cover what neither chains nor copies find: a rare bad
    region that the loss does not rise towards. Z_q grows with q up to the largest loss, which
    `adversarial_loss` looks for. An image takes about 2 chains temperatures steps gradients.

    Source: Rice et al., Robustness between the worst and average case, equations 8 and 17; sampler,
    controls and errors are robaudit's.
    """

    needs = Need.LEVEL | Need.GRADIENTS | Need.RANDOM
    interval = Interval(IntervalKind.LOGNORMAL, remark="chains")
    summary = (
        "q-norm of the loss under noise, by annealed chains: from the average to nearly "
        "the worst case"
    )
    prefer = "q of 10 and more, where plain copies never meet the losses that count"
    source = "Rice et al., equations 8 and 17; robaudit for the sampler"

    chains: int = Field(4, ge=4, le=1000, description="independent chains of each image")
    temperatures: int = Field(
        80,
        ge=12,
        le=10**5,
        description="from 0 to 1000 or the largest q, on the way up and again on the way down",
    )
    steps: int = Field(3, ge=1, le=1000, description="gradients of a chain at each temperature")

    @property
    def rows_at_once(self) -> int:
        """The chains of an image."""
        return self.chains

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, the gradients and as many copies; without gradients, two copies for each
        gradient."""
        gradients = gradients_of(self.temperatures, self.steps, self.chains)
        return 1 + gradients + self._lots * AT_ONCE, gradients

    @property
    def _lots(self) -> int:
        """Lots of 50 copies."""
        gradients = gradients_of(self.temperatures, self.steps, self.chains)
        return max(_FEWEST_COPIES, gradients) // AT_ONCE

    @cached_property
    def _grid(self) -> tuple[float, ...]:
        return temperature_grid(max(_HIGHEST, self.q[-1]), self.temperatures)

    @cached_property
    def _centres(self) -> list[float]:
        """Temperatures of the grid whose tilted distributions get copies."""
        nearest = [min(self._grid, key=lambda t: abs(t - wanted)) for wanted in _CENTRES]
        return [*nearest, self._grid[-1]]

    def estimate(self, batch: ImageBatch) -> Sequence[tuple[Result, ...]]:
        """Every q of every image."""
        target = self.targets(batch)
        loss = Objective(batch, target, latent=True)
        has_chains = batch.noise.differentiable or batch.noise.guided
        sampled = self._chains(batch, loss) if has_chains else self._copies(batch, loss)
        # Plain copies in many variables may miss the large losses: such rows are approximate.
        interval = self.interval if has_chains or _few(batch) else _COPIES
        broken = loss.broken.tolist()
        highest = sampled.highest.exp().tolist()
        losses = [LossNorm(*row) for row in zip(target.tolist(), highest, strict=True)]
        acceptances: list[dict[str, float]] = [{} for _ in losses]
        if sampled.acceptance is not None:
            acceptances = [
                {"last_acceptance": last, "smallest_acceptance": smallest}
                for last, smallest in sampled.acceptance.T.tolist()
            ]

        results: list[list[Result]] = [[] for _ in losses]
        for q, path in zip(self.q, sampled.estimates, strict=True):
            columns = (path.value, path.half_width, path.std_error, path.gap, path.begin, path.ess)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            for image, (log_z, half_width, std_error, gap, begin, ess) in enumerate(rows):
                if has_chains:
                    why = _refusal(std_error, gap)
                else:
                    why = "" if begin == q else _TOO_FEW_COPIES
                # Non-finite logits are another reason for a NaN.
                no_value = bool(why) and not broken[image]
                results[image].append(
                    Result(
                        value=math.nan if broken[image] or why else math.exp(log_z),
                        lower=None if why else math.exp(log_z - half_width),
                        upper=None if why else math.exp(log_z + half_width),
                        # delta method: d exp(log Z) = Z d log Z
                        std_error=None if why else math.exp(log_z) * std_error,
                        forwards=1 + sampled.forwards,
                        backwards=sampled.backwards,
                        interval=_NO_VALUE if no_value else interval,
                        note=why,
                        loss=losses[image],
                        numbers={
                            "log_value": log_z,
                            "log_std_error": std_error,
                            "annealing_gap": gap,
                            "copies_to": begin,
                            "ess": ess,
                            **acceptances[image],
                        },
                    )
                )
        return [tuple(image_results) for image_results in results]

    def _chains(self, batch: ImageBatch, loss: Objective) -> _Sampled:
        """Sample by Hamiltonian chains, up and down, and copies."""
        shape = batch.latent_shape
        # A momentum for each trajectory and the first states; a decision for each trajectory.
        trajectories = 2 * self.temperatures
        streams = Streams(batch, "qnorm_path", self.chains, 1 + trajectories, trajectories)

        def slopes(image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            values, slope = loss.loss_slopes(image, z.unflatten(1, shape))
            return values, slope.flatten(1)

        def normals() -> Tensor:
            return streams.normals().flatten(1)

        annealed = anneal(
            slopes,
            normals,
            streams.uniforms,
            len(batch.x),
            self.chains,
            self._grid,
            self.steps,
            self._centres,
        )
        # Half of the copies plain, the other half shared by the centres.
        lots_per_centre = math.ceil(self._lots / (2 * len(self._centres)))
        plain_lots = self._lots - lots_per_centre * len(self._centres)
        copies = shifted(
            loss.losses,
            Streams(batch, "qnorm_path copies", AT_ONCE, self._lots, 0).normals,
            plain_lots * AT_ONCE,
            lots_per_centre * AT_ONCE,
            annealed.centres,
            self._centres,
        )
        begun = starts(copies, self._grid, self.q)
        acceptance = torch.stack([annealed.up.acceptance, annealed.down.acceptance])
        last_acceptance = acceptance[:, -1].sum(0) / 2
        return _Sampled(
            # A guided kind has the gradient of an approximation: no control variates.
            path_estimates(annealed, self._grid, self.q, begun, exact=batch.noise.differentiable),
            acceptance=torch.stack([last_acceptance, acceptance.amin((0, 1))]),
            highest=torch.maximum(annealed.highest, copies.log_loss.amax(1)),
            forwards=annealed.evaluations + self._lots * AT_ONCE,
            backwards=annealed.evaluations,
        )

    def _copies(self, batch: ImageBatch, loss: Objective) -> _Sampled:
        """Sample by copies alone, two for each gradient that chains would take."""
        lots = 2 * self._lots
        few = _few(batch)
        streams = Streams(batch, "qnorm_path copies", AT_ONCE, lots, ROUNDS if few else 0)
        if few:
            copies = adapted(loss.losses, streams.normals, streams.uniforms, lots, self._grid)
        else:
            no_centres = batch.x.new_empty(0, len(batch.x), math.prod(batch.latent_shape))
            copies = shifted(loss.losses, streams.normals, lots * AT_ONCE, 0, no_centres, ())
        estimates = copies_estimates(self.q, starts(copies, self._grid, self.q))
        highest = copies.log_loss.amax(1)
        return _Sampled(
            estimates, acceptance=None, highest=highest, forwards=lots * AT_ONCE, backwards=0
        )


def _few(batch: ImageBatch) -> bool:
    """Whether there are few enough variables for copies to reach the large losses without
    gradients."""
    return math.prod(batch.latent_shape) <= _FEW


def _refusal(std_error: float, gap: float) -> str:
    """Why the chains give no value: they disagree, or have not settled. '' if they give one."""
    # written so that NaN is refused
    if not std_error <= _FAR:
        return f"no value: the chains disagree (standard error of log Z {std_error:.2g})"
    if not abs(gap) / 2 <= _FAR:
        return (
            f"no value: not settled, log Z is uncertain by {abs(gap) / 2:.2g}; take more "
            "temperatures"
        )
    return ""
