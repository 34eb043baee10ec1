"""`qnorm_path`: the q-norm of the loss, from the average to nearly the worst case."""

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
from robaudit.methods.intermediate_q import tilt_search as search
from robaudit.methods.intermediate_q.adaptive_copies import ROUNDS, adapted
from robaudit.methods.intermediate_q.annealing import anneal, gradients_of
from robaudit.methods.intermediate_q.copies import (
    AT_ONCE,
    ENOUGH,
    Copies,
    effective_sample_size,
    tilted,
)
from robaudit.methods.intermediate_q.path_sampling import (
    MOST_ERROR,
    MOST_GAP,
    NormEstimate,
    chain_estimate,
    copies_estimate,
    in_order,
    temperature_grid,
)
from robaudit.methods.intermediate_q.q_estimator import QNorm
from robaudit.methods.intermediate_q.streams import Streams
from robaudit.methods.intermediate_q.tilt_search import FoundTilts, TiltSearch, candidates
from robaudit.methods.intermediate_q.tilts import tilts_of
from robaudit.numerics.rowwise import total
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import LossNorm, Result

_COPIES = Interval(IntervalKind.LOGNORMAL)
_PLAIN_COPIES = Interval(IntervalKind.LOGNORMAL, covers_bias=False)
_GUIDED_CHAINS = Interval(IntervalKind.CHAINS, covers_bias=False)
_NO_VALUE = Interval(IntervalKind.NO_VALUE)
_PLAIN = 600  # copies of the noise itself
_EACH = 100  # copies of each tilt
# Without gradients: the temperatures at which copies look for large losses.
_HIGHEST = 1000.0
_SEARCHED = 80
_FEW = 8  # normal variables, up to which copies adapt to where earlier copies had large weights
# Of the index in the grid of temperatures: the mean of the log ratio changes most near 0. A
# straight grid is no better on networks, and leaves a tenth of the images of a narrow peak without
# a value.
_POWER = 1.5
# Noise that jumps has only an approximate gradient. Beyond this order its chains may fall behind,
# alike in all images and on both ways.
_GUIDED_REACH = 10.0
_TOO_FEW_COPIES = (
    "no value: too few copies meet the large losses that decide the norm, and there are no "
    "gradients to follow"
)


class _Sampled(NamedTuple):
    """A sampler's results for the images of a chunk.

    Attributes:
        estimates: for every q.
        acceptance: the smallest of the chains at any order (images,); NaN without chains.
        highest: the largest log l of any copy or state (images,).
        forwards, backwards: of each image.
    """

    estimates: Sequence[NormEstimate]
    acceptance: Tensor
    highest: Tensor
    forwards: Sequence[int]
    backwards: Sequence[int]


class QNormPath(QNorm):
    """Z_q from copies of the noise, tilted towards the losses that the norm is made of, and from
    chains where copies do not suffice.

    Every kind of noise is a map of standard normal variables z, and Z_q^q = E[l(z)^q] is the mass
    of l(z)^q N(z; 0, I). For each q:

    1. Tilts of the noise that come near this distribution are searched for, one for each class that
       noise may turn the image into (:mod:`robaudit.methods.intermediate_q.tilt_search`).
    2. Copies of the mixture of the noise and of all its tilts give E[l^q] without bias
       (:mod:`robaudit.methods.intermediate_q.copies`). If their effective sample size is 30, this
       is the value.
    3. Otherwise Hamiltonian chains go from the best tilt p to l^q N and back
       (:mod:`robaudit.methods.intermediate_q.annealing`): log E[l^q] is the integral of E_b[r] over
       b from 0 to 1, r = log(l^q N / p), and E_b is the mean under p exp(b r)
       (:mod:`robaudit.methods.intermediate_q.path_sampling`).

    The interval is Student's t of log Z, between the copies or between the chains. With chains it
    is widened by half of the gap between both ways, and by half of what other classes may add. If
    the gap is too large, or copies show a far larger norm, there is no value. The interval does not
    cover what neither searches nor copies find.

    Kinds of noise without gradients use copies alone: adaptive for few variables (``spatial``;
    :mod:`robaudit.methods.intermediate_q.adaptive_copies`), plain otherwise (``impulse``).

    Source: Rice et al., Robustness between the worst and average case, equations 3, 8 and 17;
    tilts, sampler, controls and errors are robaudit's.
    """

    needs = Need.LEVEL | Need.GRADIENTS | Need.RANDOM
    interval = Interval(IntervalKind.CHAINS)
    summary = (
        "q-norm of the loss under noise, by tilted copies and chains: from the average to nearly "
        "the worst case"
    )
    prefer = "q of 10 and more, where plain copies never meet the losses that count"
    source = "Rice et al., equations 8 and 17; robaudit for the sampler"

    chains: int = Field(4, ge=4, le=1000, description="independent chains of each image")
    temperatures: int = Field(
        12,
        ge=12,
        le=10**5,
        description="from the tilted copies to the losses of the norm, and again on the way back",
    )
    steps: int = Field(3, ge=1, le=1000, description="gradients of a chain at each temperature")

    @property
    def rows_at_once(self) -> int:
        """The draws of a round of searches, for an image."""
        return search.CANDIDATES * search.SEARCH_DRAWS

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, the gradients, and the copies; all orders may need chains."""
        gradients = search.search_gradients(self.q, classes) + len(self.q) * self._chaining
        return 1 + gradients + self._copies_of(classes), gradients

    @property
    def _chaining(self) -> int:
        """Gradients of the chains at one order."""
        return gradients_of(self.temperatures, self.steps, self.chains)

    def _copies_of(self, classes: int) -> int:
        """Copies of an image, those that choose the candidates included."""
        tilts = min(search.KEPT, classes - 1) * len(self.q)
        ranking = search.RANKING_DRAWS if classes - 1 > search.CANDIDATES else 0
        return ranking + _PLAIN + tilts * _EACH

    @cached_property
    def _grid(self) -> tuple[float, ...]:
        return temperature_grid(1.0, self.temperatures, _POWER)

    def estimate(self, batch: ImageBatch) -> Sequence[tuple[Result, ...]]:
        """Every q of every image."""
        target = self.targets(batch)
        loss = Objective(batch, target, latent=True)
        has_chains = batch.noise.differentiable or batch.noise.guided
        if has_chains:
            sampled = self._along_gradients(batch, loss, target)
        else:
            sampled = self._by_copies(batch, loss)
        # Plain copies in many variables may miss the large losses: such rows are approximate.
        of_copies = _COPIES if has_chains or _few(batch) else _PLAIN_COPIES
        of_chains = self.interval
        of_far_chains = _GUIDED_CHAINS if batch.noise.guided else self.interval
        broken = loss.broken.tolist()
        highest = sampled.highest.exp().tolist()
        losses = [LossNorm(*row) for row in zip(target.tolist(), highest, strict=True)]
        acceptances = sampled.acceptance.tolist()

        results: list[list[Result]] = [[] for _ in losses]
        for q, path in zip(self.q, in_order(sampled.estimates), strict=True):
            columns = (path.log_norm, path.lower, path.upper, path.std_error, path.gap, path.ess)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            enough = path.by_copies.tolist()
            usable = path.usable.tolist()
            for image, (log_z, lower, upper, std_error, gap, ess) in enumerate(rows):
                why = ""
                if not usable[image]:
                    why = _refusal(std_error, gap) if has_chains else _TOO_FEW_COPIES
                # Non-finite logits are another reason for a NaN.
                if why and not broken[image]:
                    interval = _NO_VALUE
                elif enough[image] or not has_chains:
                    interval = of_copies
                else:
                    interval = of_chains if q <= _GUIDED_REACH else of_far_chains
                acceptance = acceptances[image]
                chained = {} if math.isnan(acceptance) else {"smallest_acceptance": acceptance}
                results[image].append(
                    Result(
                        value=math.nan if broken[image] or why else math.exp(log_z),
                        lower=None if why else math.exp(lower),
                        upper=None if why else math.exp(upper),
                        # delta method: d exp(log Z) = Z d log Z
                        std_error=None if why else math.exp(log_z) * std_error,
                        forwards=1 + sampled.forwards[image],
                        backwards=sampled.backwards[image],
                        interval=interval,
                        note=why,
                        loss=losses[image],
                        numbers={
                            "log_value": log_z,
                            "log_std_error": std_error,
                            "annealing_gap": gap,
                            "ess": ess,
                            **chained,
                        },
                    )
                )
        return [tuple(image_results) for image_results in results]

    def _along_gradients(self, batch: ImageBatch, loss: Objective, target: Tensor) -> _Sampled:
        """Sample with gradients: tilts, their copies, and chains for the images that need them."""
        tilts = tilts_of(batch.noise)
        by_order = self._tilts(batch, loss, target)
        parameters = torch.cat([found.parameters.transpose(0, 1) for found in by_order])
        lots = (_PLAIN + _EACH * len(parameters)) // AT_ONCE
        normals = Streams(batch, "qnorm_path copies", AT_ONCE, lots, 0).normals
        copies = tilted(loss.losses, normals, _PLAIN, _EACH, tilts, parameters)
        highest = copies.log_loss.amax(1)
        acceptance = torch.full_like(highest, torch.nan)
        chained = [0] * len(target)
        estimates = []
        for q, found in zip(self.q, by_order, strict=True):
            estimate = _from_copies(copies, q)
            few = (~estimate.by_copies).nonzero()[:, 0]
            if len(few):
                chains, smallest, met = self._chains(batch, loss, few, q, found)
                # Chains that all lag, or whose gradients mislead, agree, but not with the copies.
                chains = chains.at_least(copies.least(q)[few] / q)
                estimate = estimate.with_chains(few, chains)
                acceptance[few] = torch.fmin(acceptance[few], smallest)
                highest[few] = torch.maximum(highest[few], met)
                for image in few.tolist():
                    chained[image] += self._chaining
            estimates.append(estimate)
        searching = search.search_gradients(self.q, batch.classes)
        drawn = self._copies_of(batch.classes)
        backwards = [searching + chaining for chaining in chained]
        forwards = [gradients + drawn for gradients in backwards]
        return _Sampled(estimates, acceptance, highest, forwards, backwards)

    def _tilts(self, batch: ImageBatch, loss: Objective, target: Tensor) -> list[FoundTilts]:
        """The tilts at each order of the norm."""
        shape = batch.latent_shape
        ranking = Streams(batch, "qnorm_path classes", search.RANKING_DRAWS, 1, 0)
        wanted = candidates(loss, target, batch.classes, ranking.normals())
        images, searches = wanted.shape
        searched = len(search.orders_searched(self.q))
        refined = min(search.REFINED, searches)

        def normals(purpose: str, pairs: int, rounds: int) -> search.Normals:
            streams = Streams(batch, f"qnorm_path {purpose}", pairs, rounds, 0)
            return lambda: streams.normals().flatten(1)

        return TiltSearch(loss, tilts_of(batch.noise), target, wanted, shape).run(
            self.q,
            batch.x.new_zeros(images, searches, math.prod(shape)),
            normals(
                "searches",
                searches * search.SEARCH_DRAWS // 2,
                searched * search.SEARCH_ROUNDS,
            ),
            normals(
                "tilts", refined * search.REFINE_DRAWS // 2, len(self.q) * search.REFINE_ROUNDS
            ),
            normals(
                "tilts from above",
                search.REFINE_DRAWS // 2,
                (searched - 1) * search.REFINE_ROUNDS,
            ),
        )

    def _chains(
        self, batch: ImageBatch, loss: Objective, images: Tensor, q: float, found: FoundTilts
    ) -> tuple[NormEstimate, Tensor, Tensor]:
        """log Z_q of some images from chains that start at their best tilts, the smallest
        acceptance and the largest log l."""
        shape = batch.latent_shape
        tilts = tilts_of(batch.noise)
        streams = Streams(
            batch,
            f"qnorm_path chains {q:g}",
            self.chains,
            1 + 2 * self.temperatures,
            2 * self.temperatures,
            images.tolist(),
        )
        image = torch.arange(len(images), device=images.device).repeat_interleave(self.chains)
        of_chunk = images[image]
        tilt = found.parameters[images, 0][image]
        log_mass = tilts.log_mass(tilt)
        highest = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=tilt.device)

        def log_ratio(_: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
            """r = q log l(z) - t . s(z) + A(t), and its gradient with respect to the normal
            variables that z is made from."""
            z = tilts.moved(tilt, normal)
            values, slopes = loss.loss_slopes(of_chunk, z.unflatten(1, shape))
            torch.maximum(highest, values.view(len(highest), -1).amax(1), out=highest)
            along = total(tilt.double() * tilts.statistic(z))
            to_z, to_statistic = tilts.rates(tilt, normal, z)
            slope = q * slopes.flatten(1) * to_z - tilt * to_statistic
            return q * values - along + log_mass, slope

        annealed = anneal(
            log_ratio,
            lambda: streams.normals().flatten(1),
            streams.uniforms,
            len(images),
            self.chains,
            self._grid,
            self.steps,
        )
        missed = found.other_classes()[images]
        estimate = chain_estimate(annealed, self._grid, q, missed, exact=batch.noise.differentiable)
        acceptance = torch.minimum(annealed.up.acceptance.amin(0), annealed.down.acceptance.amin(0))
        return estimate, acceptance, highest

    def _by_copies(self, batch: ImageBatch, loss: Objective) -> _Sampled:
        """Sample by copies alone, as many as passes would be taken with gradients."""
        forwards, _ = self.passes(batch.classes)
        lots = forwards // AT_ONCE
        few = _few(batch)
        streams = Streams(batch, "qnorm_path copies", AT_ONCE, lots, ROUNDS if few else 0)
        if few:
            grid = temperature_grid(max(_HIGHEST, self.q[-1]), _SEARCHED)
            copies = adapted(loss.losses, streams.normals, streams.uniforms, lots, grid)
        else:
            no_tilts = batch.x.new_empty(0, len(batch.x), math.prod(batch.latent_shape))
            tilts = tilts_of(batch.noise)
            copies = tilted(loss.losses, streams.normals, lots * AT_ONCE, 0, tilts, no_tilts)
        highest = copies.log_loss.amax(1)
        images = len(batch.x)
        return _Sampled(
            [_from_copies(copies, q) for q in self.q],
            acceptance=torch.full_like(highest, torch.nan),
            highest=highest,
            forwards=[lots * AT_ONCE] * images,
            backwards=[0] * images,
        )


def _from_copies(copies: Copies, q: float) -> NormEstimate:
    """log Z_q from the copies, which suffice from an effective sample size of 30."""
    order = torch.full_like(copies.log_loss[:, 0], q)
    weights, _ = copies.weights(q, copies.log_density)
    ess = effective_sample_size(weights)
    largest = (weights.amax(1) / total(weights)).nan_to_num(1.0)
    return copies_estimate(q, *copies.log_mass(order), largest, ess, ess >= ENOUGH)


def _few(batch: ImageBatch) -> bool:
    """Whether there are few enough variables for copies to reach the large losses without
    gradients."""
    return math.prod(batch.latent_shape) <= _FEW


def _refusal(std_error: float, gap: float) -> str:
    """Why the chains give no value: they disagree, have not settled, or contradict the copies."""
    # written so that NaN is refused
    if not std_error <= MOST_ERROR:
        return f"no value: the chains disagree (standard error of log Z {std_error:.2g})"
    if not abs(gap) <= MOST_GAP:
        half = abs(gap) / 2
        return f"no value: not settled, log Z is uncertain by {half:.2g}; take more temperatures"
    return "no value: noisy copies show a far larger norm than the chains"
