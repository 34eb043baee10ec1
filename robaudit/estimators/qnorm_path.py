"""`qnorm_path`: the q-norm of the loss by path sampling, from the average to nearly the worst case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from robaudit.estimators.base import Estimate, Need, NoiseNeed
from robaudit.estimators.loss_field import LossField
from robaudit.estimators.losses import QNorm
from robaudit.estimators.streams import FlatStreams, Streams
from robaudit.estimators.work import Work
from robaudit.names import HIGHEST_LOSS, TARGET
from robaudit.numerics.annealing import anneal, gradients_of
from robaudit.numerics.path_sampling import PathEstimate, path_estimates, temperature_grid
from robaudit.numerics.populations import population_estimates, temper
from robaudit.numerics.shifted_copies import AT_ONCE, Copies, copied, starts
from robaudit.quantities import Interval, IntervalKind

_SAMPLING = Interval(IntervalKind.LOGNORMAL, covers_bias=False, remark="chains")
_NO_VALUE = Interval(IntervalKind.NO_VALUE)
_HIGHEST = 1000.0  # the chains go so far whatever the orders are: a far region that decides q = 10 may not pull below q = 1000
_CENTRES = (1.0, 10.0, 100.0)  # temperatures, besides the highest, about whose tilted distributions copies are made
_FEWEST = 1950  # copies
_MANY, _MODEST = 8, 10.0  # normal variables; the largest q that Metropolis moves in more of them are trusted with
_FAR = 0.25  # in log Z: standard error or half of the gap beyond which there is no value


class _Found(NamedTuple):
    """What a sampler says of the images of a chunk.

    Attributes:
        estimates: for every q.
        last, least: acceptance at the highest temperature, and the smallest (images,).
        highest: log l (images,).
        forwards, backwards: for each image.
    """

    estimates: Sequence[PathEstimate]
    last: Tensor
    least: Tensor
    highest: Tensor
    forwards: int
    backwards: int


class QNormPath(QNorm):
    """log Z_q = (log E[l^s] + int_s^q E_t[log l] dt) / q: noisy copies up to a temperature s, chains from there, E_t under the noise tilted
    by l^t.

    Every kind of noise is a map of standard normal variables z, so the tilted distributions are p_t(z) ~ l(z)^t N(z; 0, I). Several
    independent Hamiltonian chains go up to t = 1000, or to the largest q above it, and down again (:mod:`robaudit.numerics.annealing`);
    log l is recorded after each trajectory, with control variates made of its gradient, and integrated
    (:mod:`robaudit.numerics.path_sampling`). As many copies as the chains took gradients, half of them plain and half about where the chains
    were, give E[l^t] as far as their effective sample size allows (:mod:`robaudit.numerics.shifted_copies`). Kinds without gradients
    (``spatial``, ``impulse``) get populations with Metropolis moves for chains (:mod:`robaudit.numerics.populations`).

    The interval is Student's t of log Z between the copies and between the chains, widened by half of the gap between the ways up and down:
    chains that are too short for the loss to settle at each temperature lag, below on the way up and above on the way down. Where that is
    too much there is no value. What neither chains nor copies find, no interval covers: a rare bad region that the loss does not rise
    towards. Z_q grows with q up to the largest loss, which `adversarial_loss` looks for.

    Args:
        chains: of each image, four or more.
        temperatures: from 0 to 1000 or the largest q, on each way.
        steps: leapfrog steps at each temperature; an image takes about 2 chains temperatures steps gradients.
        particles, moves: for noise without gradients: population of each chain, and Metropolis moves at each temperature.

    Source: Rice et al., Robustness between the worst and average case, equations 8 and 17; sampler, controls and errors are robaudit's.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    needs_noise: ClassVar[frozenset[NoiseNeed]] = frozenset({"random"})
    summary: ClassVar[str] = "q-norm of the loss under noise, by annealed chains: from the average to nearly the worst case"
    prefer: ClassVar[str] = "q of 10 and more, where plain copies never meet the losses that count"
    source: ClassVar[str] = "Rice et al., equations 8 and 17; robaudit for the sampler"
    interval: ClassVar[Interval] = Interval(IntervalKind.LOGNORMAL, remark="chains")

    chains: int = Field(4, ge=4, le=1000, description="independent chains of each image")
    temperatures: int = Field(80, ge=12, le=10**5, description="from 0 to 1000 or the largest q, on the way up and again on the way down")
    steps: int = Field(3, ge=1, le=1000, description="gradients of a chain at each temperature")
    particles: int = Field(25, ge=2, le=10**5, description="population of each chain, under noise without gradients")
    moves: int = Field(1, ge=1, le=10**4, description="Metropolis moves at each temperature, under noise without gradients")

    @property
    def rows_at_once(self) -> int:
        """The chains of an image."""
        return self.chains

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the gradients; under noise without gradients it takes chains particles temperatures moves forward passes."""
        gradients = gradients_of(self.temperatures, self.steps, self.chains)
        return 1 + gradients + sum(_division(gradients, len(self._centres))), gradients

    @cached_property
    def _grid(self) -> tuple[float, ...]:
        return temperature_grid(max(_HIGHEST, self.q[-1]), self.temperatures)

    @cached_property
    def _centres(self) -> list[float]:
        """Temperatures of the grid."""
        return [*(min(self._grid, key=lambda t: abs(t - wanted)) for wanted in _CENTRES), self._grid[-1]]

    def estimate(self, work: Work) -> Sequence[tuple[Estimate, ...]]:
        """Every q of every image."""
        target = self.targets(work)
        field, blind = LossField(work, target), _blind(work)
        run = self._by_gradients(work, field) if work.noise.differentiable else self._by_moves(work, field)
        last, least = run.last.tolist(), run.least.tolist()
        broken, most, against = field.broken.tolist(), run.highest.exp().tolist(), target.tolist()
        found: list[list[Estimate]] = [[] for _ in against]
        for q, one in zip(self.q, run.estimates, strict=True):
            columns = (one.value, one.half_width, one.std_error, one.gap, one.begin, one.ess)
            for image, numbers in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
                log_z, half_width, std_error, gap, begin, ess = numbers
                why = _refusal(std_error, gap, groping=blind and begin < q and q > _MODEST)
                found[image].append(
                    Estimate(
                        value=math.nan if broken[image] or why else math.exp(log_z),
                        lower=None if why else math.exp(log_z - half_width),
                        upper=None if why else math.exp(log_z + half_width),
                        std_error=None if why else math.exp(log_z) * std_error,
                        flips_to=None,
                        forwards=1 + run.forwards,
                        backwards=run.backwards,
                        interval=_NO_VALUE if why and not broken[image] else _SAMPLING if blind else self.interval,
                        note=why,
                        details={
                            "log_value": log_z,
                            "log_std_error": std_error,
                            "annealing_gap": gap,
                            "copies_to": begin,
                            "ess": ess,
                            "last_acceptance": last[image],
                            "smallest_acceptance": least[image],
                            HIGHEST_LOSS: most[image],
                            TARGET: against[image],
                        },
                    )
                )
        return [tuple(of_image) for of_image in found]

    def _by_gradients(self, work: Work, field: LossField) -> _Found:
        """Hamiltonian chains, up and down."""
        shape = work.latent_shape
        streams = FlatStreams(work, "qnorm_path", self.chains, 1 + 2 * self.temperatures, 2 * self.temperatures)

        def slopes(image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            values, slope = field.slopes(image, z.unflatten(1, shape))
            return values, slope.flatten(1)

        annealed = anneal(slopes, streams, len(work.x), self.chains, self._grid, self.steps, self._centres)
        copies = self._copies(work, field, annealed.evaluations, annealed.centres, self._centres)
        acceptance = torch.stack([annealed.up.acceptance, annealed.down.acceptance])
        return _Found(
            path_estimates(annealed, self._grid, self.q, starts(copies, self._grid, self.q)),
            acceptance[:, -1].sum(0) / 2,
            acceptance.amin((0, 1)),
            torch.maximum(annealed.highest, copies.log_loss.amax(1)),
            annealed.evaluations + copies.log_loss.shape[1],
            annealed.evaluations,
        )

    def _by_moves(self, work: Work, field: LossField) -> _Found:
        """Populations with Metropolis moves."""
        steps = self.temperatures - 1
        streams = Streams(work, "qnorm_path", self.chains * self.particles, 1 + steps * self.moves, steps * (1 + self.moves))
        found = temper(field.values, streams.normals, streams.thresholds, self.chains, self.particles, self._grid, self.moves)
        copies = self._copies(work, field, 0, work.x.new_empty(0, len(work.x), math.prod(work.latent_shape)), ())
        return _Found(
            population_estimates(found, self._grid, self.q, starts(copies, self._grid, self.q)),
            found.acceptance[-1],
            found.acceptance.amin(0),
            torch.maximum(found.highest, copies.log_loss.amax(1)),
            found.evaluations + copies.log_loss.shape[1],
            0,
        )

    def _copies(self, work: Work, field: LossField, gradients: int, centres: Tensor, about: Sequence[float]) -> Copies:
        """Plain copies, and as many about the centres."""
        plain, shifted = _division(gradients, len(about))
        streams = Streams(work, "qnorm_path copies", AT_ONCE, (plain + shifted) // AT_ONCE, 0)
        return copied(field.values, streams.normals, len(work.x), plain, shifted // max(1, len(about)), centres, about)


def _division(gradients: int, centres: int) -> tuple[int, int]:
    """Plain copies, and those about all centres: as many together as gradients, in whole lots."""
    lots = max(_FEWEST, gradients) // AT_ONCE
    each = -(-lots // (2 * centres)) if centres else 0
    return (lots - each * centres) * AT_ONCE, each * centres * AT_ONCE


def _blind(work: Work) -> bool:
    """Whether the chains move without gradients in many variables: then they lag alike on both ways, and the gap does not show it."""
    return not work.noise.differentiable and math.prod(work.latent_shape) > _MANY


def _refusal(std_error: float, gap: float, *, groping: bool) -> str:
    """Why there is no value: chains that grope without gradients, disagree, or have not settled; usually nothing."""
    if groping:
        return "no value: no gradients in many variables, and too few copies meet the losses that count"
    if not std_error <= _FAR:
        return f"no value: the chains disagree (standard error of log Z {std_error:.2g})"
    if not abs(gap) / 2 <= _FAR:
        return f"no value: not settled, log Z is uncertain by {abs(gap) / 2:.2g}; take more temperatures"
    return ""
