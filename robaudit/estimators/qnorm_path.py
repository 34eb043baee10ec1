"""`qnorm_path`: the q-norm of the loss by path sampling, from the average to nearly the worst case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
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

_FEWEST_TEMPERATURES = 12  # besides those of the orders
_SAMPLING = Interval(IntervalKind.LOGNORMAL, covers_bias=False, remark="chains")
_NO_VALUE = Interval(IntervalKind.NO_VALUE)
_MANY, _MODEST = 8, 10.0  # normal variables; the largest q that Metropolis moves in more of them are trusted with
_FAR = 0.25  # in log Z: standard error or half of the gap beyond which there is no value
_PLAIN, _SHIFTED = 2000, 2000  # copies of the noise, and about all centres


class _Values(NamedTuple):
    """log Z of one image at one q, and what there is to say of it."""

    log_z: float
    half_width: float
    std_error: float
    refused: bool
    note: str
    details: dict[str, float]


class _Found(NamedTuple):
    """What a sampler says of the images of a chunk.

    Attributes:
        estimates: for every q.
        last, least: acceptance at the largest q, and the smallest (images,).
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
    """log Z_q = (1 / q) int_0^q E_t[log l] dt, E_t under the noise tilted by l^t, with Hamiltonian Monte Carlo in Gaussian space.

    Every kind of noise is a map of standard normal variables z, so the tilted distributions are p_t(z) ~ l(z)^t N(z; 0, I). One
    annealing run to the largest q serves all of them. Several independent chains go up through the temperatures and down again
    (:mod:`robaudit.numerics.annealing`); log l is recorded after each trajectory, with control variates made of its gradient, and
    integrated (:mod:`robaudit.numerics.path_sampling`). Kinds without gradients (``spatial``, ``impulse``) get populations with Metropolis
    moves instead (:mod:`robaudit.numerics.populations`).

    The interval is Student's t of log Z between the chains, widened by half of the gap between the ways up and down: chains that are
    too short for the loss to settle at each temperature lag, below on the way up and above on the way down. What neither finds, it does
    not cover: a rare bad region that no chain visits. Z_q grows with q up to the largest loss, which `adversarial_loss` looks for.

    Args:
        chains: of each image, four or more.
        temperatures: from 0 to the largest q, on each way.
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
    temperatures: int = Field(80, ge=2, le=10**5, description="from 0 to the largest q, on the way up and again on the way down")
    steps: int = Field(3, ge=1, le=1000, description="gradients of a chain at each temperature")
    particles: int = Field(25, ge=2, le=10**5, description="population of each chain, under noise without gradients")
    moves: int = Field(1, ge=1, le=10**4, description="Metropolis moves at each temperature, under noise without gradients")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        least = _FEWEST_TEMPERATURES + len(self.q) - 1
        if self.temperatures < least:
            raise ValueError(f"{self.temperatures} temperatures are too few for {len(self.q)} orders; give {least} or more")
        return self

    @property
    def rows_at_once(self) -> int:
        """The chains of an image."""
        return self.chains

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the gradients; under noise without gradients it takes chains particles temperatures moves forward passes."""
        gradients = gradients_of(self.temperatures, self.steps, self.chains)
        return 1 + gradients + _PLAIN + self._each * len(self.q), gradients

    @property
    def _each(self) -> int:
        """Copies about the centre of an order."""
        return max(1, _SHIFTED // (len(self.q) * AT_ONCE)) * AT_ONCE

    def estimate(self, work: Work) -> Sequence[tuple[Estimate, ...]]:
        """Every q of every image."""
        target = self.targets(work)
        field = LossField(work, target)
        gradients, blind = work.noise.differentiable, _blind(work)
        found = self._by_gradients(work, field) if gradients else self._by_moves(work, field)
        values = self._values(found, blind=blind)
        broken, most, against = field.broken.tolist(), found.highest.tolist(), target.tolist()
        return [
            tuple(
                Estimate(
                    value=math.nan if broken[image] or one.refused else math.exp(one.log_z),
                    lower=None if one.refused else math.exp(one.log_z - one.half_width),
                    upper=None if one.refused else math.exp(one.log_z + one.half_width),
                    std_error=None if one.refused else math.exp(one.log_z) * one.std_error,
                    flips_to=None,
                    forwards=1 + found.forwards,
                    backwards=found.backwards,
                    interval=_NO_VALUE if one.refused and not broken[image] else _SAMPLING if blind else self.interval,
                    note=one.note,
                    details={**one.details, HIGHEST_LOSS: math.exp(most[image]), TARGET: against[image]},
                )
                for one in of_image
            )
            for image, of_image in enumerate(values)
        ]

    def _by_gradients(self, work: Work, field: LossField) -> _Found:
        """Hamiltonian chains, up and down."""
        images, shape = len(work.x), work.latent_shape
        temperatures = temperature_grid(self.q, self.temperatures)
        streams = FlatStreams(work, "qnorm_path", self.chains, 1 + 2 * self.temperatures, 2 * self.temperatures)

        def slopes(image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            values, slope = field.slopes(image, z.unflatten(1, shape))
            return values, slope.flatten(1)

        annealed = anneal(slopes, streams, images, self.chains, temperatures, self.steps, self.q)
        copies = self._copies(work, field, annealed.centres)
        acceptance = torch.stack([annealed.up.acceptance, annealed.down.acceptance])
        estimates = path_estimates(annealed, temperatures, self.q, starts(copies, temperatures, self.q))
        return _Found(
            estimates,
            acceptance[:, -1].sum(0) / 2,
            acceptance.amin((0, 1)),
            torch.maximum(annealed.highest, copies.log_loss.amax(1)),
            annealed.evaluations + copies.log_loss.shape[1],
            annealed.evaluations,
        )

    def _by_moves(self, work: Work, field: LossField) -> _Found:
        """Populations with Metropolis moves."""
        temperatures = temperature_grid(self.q, self.temperatures)
        steps = self.temperatures - 1
        streams = Streams(work, "qnorm_path", self.chains * self.particles, 1 + steps * self.moves, steps * (1 + self.moves))
        found = temper(field.values, streams.normals, streams.thresholds, self.chains, self.particles, temperatures, self.moves)
        copies = self._copies(work, field, None)
        estimates = population_estimates(found, temperatures, self.q, starts(copies, temperatures, self.q))
        highest = torch.maximum(found.highest, copies.log_loss.amax(1))
        return _Found(estimates, found.acceptance[-1], found.acceptance.amin(0), highest, found.evaluations + copies.log_loss.shape[1], 0)

    def _copies(self, work: Work, field: LossField, centres: Tensor | None) -> Copies:
        """Plain copies, and as many about the centres."""
        draws = _PLAIN + (0 if centres is None else self._each * len(centres))
        streams = Streams(work, "qnorm_path copies", AT_ONCE, draws // AT_ONCE, 0)
        return copied(field.values, streams.normals, len(work.x), _PLAIN, self._each, centres)

    def _values(self, run: _Found, *, blind: bool) -> list[list[_Values]]:
        """By image, then by q; ``blind``: see :func:`_blind`."""
        last, least = run.last.tolist(), run.least.tolist()
        found: list[list[_Values]] = [[] for _ in last]
        for q, one in zip(self.q, run.estimates, strict=True):
            columns = (one.value, one.half_width, one.std_error, one.gap, one.ess, one.begin)
            for image, numbers in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
                log_z, half_width, std_error, gap, ess, begin = numbers
                details = {
                    "log_value": log_z,
                    "log_std_error": std_error,
                    "annealing_gap": gap,
                    "copies_to": begin,
                    "ess": ess,
                    "last_acceptance": last[image],
                    "smallest_acceptance": least[image],
                }
                why = _refusal(std_error, gap, groping=blind and begin < q and q > _MODEST)
                found[image].append(_Values(log_z, half_width, std_error, bool(why), why, details))
        return found


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
