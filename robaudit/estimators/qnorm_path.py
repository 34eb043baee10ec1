"""`qnorm_path`: the q-norm of the loss by path sampling, from the average to nearly the worst case."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from robaudit.estimators.base import Estimate, Need, NoiseNeed
from robaudit.estimators.loss_field import LossField
from robaudit.estimators.losses import QNorm
from robaudit.estimators.qnorm_mc import few_effective
from robaudit.estimators.streams import FlatStreams, Streams
from robaudit.estimators.work import Work
from robaudit.names import HIGHEST_LOSS, TARGET
from robaudit.numerics.annealing import anneal, gradients_of
from robaudit.numerics.path_sampling import PathEstimate, path_estimates, temperature_grid
from robaudit.numerics.populations import population_estimates, temper
from robaudit.quantities import Interval, IntervalKind

_FEWEST_TEMPERATURES = 12  # besides those of the orders
_LARGEST_LOG = math.log(sys.float_info.max)
_SAMPLING = Interval(IntervalKind.LOGNORMAL, covers_bias=False, remark="chains")
_MANY, _MODEST = 8, 10.0  # normal variables; the largest q that Metropolis moves in more of them are trusted with
_FAR = 0.25  # in log Z: standard error or half of the gap that a row tells of


class _Values(NamedTuple):
    """log Z of one image at one q, and what there is to say of it."""

    log_z: float
    half_width: float
    std_error: float
    note: str
    details: dict[str, float]


class _Found(NamedTuple):
    """What a sampler says of the images of a chunk.

    Attributes:
        estimates: for every q.
        last, least: acceptance at the largest q, and the smallest (images,).
        highest: log l (images,).
        evaluations: for each image.
    """

    estimates: Sequence[PathEstimate]
    last: Tensor
    least: Tensor
    highest: Tensor
    evaluations: int


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
        return 1 + gradients, gradients

    def estimate(self, work: Work) -> Sequence[tuple[Estimate, ...]]:
        """Every q of every image."""
        target = self.targets(work)
        field = LossField(work, target)
        gradients, blind = work.noise.differentiable, _blind(work)
        found = self._by_gradients(work, field) if gradients else self._by_moves(work, field)
        values = self._values(found, ways=gradients, blind=blind)
        broken, most, against = field.broken.tolist(), found.highest.tolist(), target.tolist()
        return [
            tuple(
                Estimate(
                    value=math.nan if broken[image] else math.exp(one.log_z),
                    lower=math.exp(one.log_z - one.half_width),
                    upper=_exp(one.log_z + one.half_width),
                    std_error=math.exp(one.log_z) * one.std_error,
                    flips_to=None,
                    forwards=1 + found.evaluations,
                    backwards=found.evaluations if gradients else 0,
                    interval=_SAMPLING if blind else self.interval,
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

        annealed = anneal(slopes, streams, images, self.chains, temperatures, self.steps)
        acceptance = torch.stack([annealed.up.acceptance, annealed.down.acceptance])
        estimates = path_estimates(annealed, temperatures, self.q)
        return _Found(estimates, acceptance[:, -1].sum(0) / 2, acceptance.amin((0, 1)), annealed.highest, annealed.evaluations)

    def _by_moves(self, work: Work, field: LossField) -> _Found:
        """Populations with Metropolis moves."""
        temperatures = temperature_grid(self.q, self.temperatures)
        steps = self.temperatures - 1
        streams = Streams(work, "qnorm_path", self.chains * self.particles, 1 + steps * self.moves, steps * (1 + self.moves))
        found = temper(field.values, streams.normals, streams.thresholds, self.chains, self.particles, temperatures, self.moves)
        estimates = population_estimates(found, temperatures, self.q)
        return _Found(estimates, found.acceptance[-1], found.acceptance.amin(0), found.highest, found.evaluations)

    def _values(self, run: _Found, *, ways: bool, blind: bool) -> list[list[_Values]]:
        """By image, then by q; ``ways``: whether the chains go up and down, ``blind``: see :func:`_blind`."""
        last, least = run.last.tolist(), run.least.tolist()
        found: list[list[_Values]] = [[] for _ in last]
        for q, one in zip(self.q, run.estimates, strict=True):
            columns = (one.value, one.half_width, one.std_error, one.gap, one.ess)
            for image, (log_z, half_width, std_error, gap, ess) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
                details = {
                    "log_value": log_z,
                    "log_std_error": std_error,
                    "annealing_gap": gap,
                    "ess": ess,
                    "last_acceptance": last[image],
                    "smallest_acceptance": least[image],
                }
                note = _remarks(std_error, gap, ess, q, ways=ways, blind=blind)
                found[image].append(_Values(log_z, half_width, std_error, note, details))
        return found


def _exp(x: float) -> float:
    """e^x, infinity where a float64 cannot hold it."""
    return math.exp(x) if x < _LARGEST_LOG else math.inf


def _blind(work: Work) -> bool:
    """Whether the chains move without gradients in many variables: then they lag alike on both ways, and the gap does not show it."""
    return not work.noise.differentiable and math.prod(work.latent_shape) > _MANY


def _remarks(std_error: float, gap: float, ess: float, q: float, *, ways: bool, blind: bool) -> str:
    """What a row says of chains that disagree or grope, of a gap between the ways or below the populations' mean, and of a small
    effective sample size."""
    said = ["biased low: no gradients in many variables"] if blind and q > _MODEST else []
    if std_error > _FAR:
        said.append(f"the chains disagree (standard error of log Z {std_error:.2g})")
    if abs(gap) / 2 > _FAR:
        factor = _exp(abs(gap) if ways else abs(gap) / 2)
        apart = "the ways up and down differ" if ways else "single populations lie below their mean"
        said.append(f"not settled: {apart} by a factor of {factor:.3g}, take more {'' if ways else 'particles or '}temperatures")
    return "; ".join([*said, *filter(None, [few_effective(ess, q)])])
