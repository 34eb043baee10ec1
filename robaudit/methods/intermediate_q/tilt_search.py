"""The search for tilts of the noise that come near l^q N: one for each class that noise may turn an
image into.

For large q almost all of E[l^q] lies far out in the space of z, where the noise turns the image
into one particular other class. Which class that is changes with q, and chains do not cross from
one to another. So each class is searched for separately. The tilt of a class is the fixed point
t = q E[grad log l_c], the mean over p_t of the gradient with respect to the statistic s, where l_c
is the loss of the two classes c and the target. For normal tilts, p_t is then the normal
distribution of unit covariance nearest to l_c^q N (in Kullback-Leibler divergence). The mean over
the noise matters: the point of highest density is often a spike that no typical draw comes near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.engine.objective import Objective
from robaudit.methods.intermediate_q.annealing import Slopes
from robaudit.methods.intermediate_q.tilts import Tilts
from robaudit.numerics.log_losses import log_cross_entropy
from robaudit.numerics.rowwise import lengths, total

CANDIDATES = 9
"""Classes whose tilts are searched for: all others of ten."""
KEPT = 6
"""Tilts at each order. Of 120 intervals at q = 10 on a network of ten classes, 6 were too low with
four tilts and half as many copies again of each, and 1 with six."""
REFINED = 2
"""Of these, the ones that then follow the loss against all classes."""
SCOUT = 1e4
"""The order that is searched in any case: a distant region that decides q = 10 may show its slope
only at q = 1000."""
SEARCH_ROUNDS = 10
SEARCH_DRAWS = 2
REFINE_ROUNDS = 12
REFINE_DRAWS = 6
RANKING_DRAWS = 50
"""Copies that choose the candidates where there are more classes."""
_MEASURED = 3  # last rounds of a search, whose mean evidence ranks the classes
# A step is at most this long: far from the fixed point, gradients of a few draws overshoot.
_STEP = 2.0
_RELATIVE_STEP = 0.3  # of the length of the tilt

Normals = Callable[[], Tensor]
"""Fresh standard normal variables (rows, d) at each call; rows are images x searches x pairs."""


@dataclass(frozen=True, slots=True)
class FoundTilts:
    """The tilts at one order q, the best first.

    Attributes:
        parameters: t (images, up to KEPT, d), of the type of the pixels.
        evidence: E[q log l] - KL(p_t | N) over p_t at each (images, up to KEPT), float64: a noisy
            lower bound of log E[l^q].
        toward: the class that the search was for (images, up to KEPT), int64.
    """

    parameters: Tensor
    evidence: Tensor
    toward: Tensor

    def best(self, number: int) -> FoundTilts:
        """The tilts of largest evidence, the best first."""
        order = self.evidence.argsort(dim=1, descending=True, stable=True)[:, :number]
        places = order[..., None].expand(-1, -1, self.parameters.shape[2])
        return FoundTilts(
            self.parameters.gather(1, places),
            self.evidence.gather(1, order),
            self.toward.gather(1, order),
        )

    def first(self, number: int) -> FoundTilts:
        """The first tilts."""
        return FoundTilts(
            self.parameters[:, :number], self.evidence[:, :number], self.toward[:, :number]
        )

    def rest(self, number: int) -> FoundTilts:
        """The tilts after the first ``number``."""
        return FoundTilts(
            self.parameters[:, number:], self.evidence[:, number:], self.toward[:, number:]
        )

    def joined(self, other: FoundTilts) -> FoundTilts:
        """These tilts and others of the same images."""
        return FoundTilts(
            torch.cat([self.parameters, other.parameters], 1),
            torch.cat([self.evidence, other.evidence], 1),
            torch.cat([self.toward, other.toward], 1),
        )

    def other_classes(self) -> Tensor:
        """The log of what the classes of the other tilts may add to E[l^q], relative to the best
        tilt's class (images,), by their evidence."""
        shares = (self.evidence - self.evidence[:, :1]).exp().nan_to_num(0.0)
        others = torch.where(self.toward == self.toward[:, :1], 0.0, shares)
        return torch.log1p(total(others))


def orders_searched(orders: Sequence[float]) -> list[float]:
    """The ascending orders of the norm, and SCOUT if they stay below it."""
    return [*orders] if orders[-1] >= SCOUT else [*orders, SCOUT]


def search_gradients(orders: Sequence[float], classes: int) -> int:
    """Gradients that the searches take for an image."""
    searched = min(CANDIDATES, classes - 1)
    refined = min(REFINED, searched)
    number = len(orders_searched(orders))
    upwards = number * searched * SEARCH_ROUNDS * SEARCH_DRAWS
    # every order but a scout's follows all classes
    refinements = len(orders) * refined + number - 1
    return upwards + refinements * REFINE_ROUNDS * REFINE_DRAWS


def candidates(loss: Objective, target: Tensor, classes: int, z: Tensor) -> Tensor:
    """The classes to search for (images, up to CANDIDATES), int64.

    With more classes than that, the ones with the largest mean logits under noise.

    Args:
        loss: of the images.
        target: the class that the loss is against (images,).
        classes: of the network.
        z: normal variables of RANKING_DRAWS noisy copies of each image (rows, *latent_shape).
    """
    if classes - 1 <= CANDIDATES:
        everything = torch.arange(classes, device=target.device)
        others = everything[None].expand(len(target), -1)
        return others[others != target[:, None]].view(len(target), classes - 1)
    image = torch.arange(len(target), device=target.device).repeat_interleave(RANKING_DRAWS)
    logits = loss.logits(image, z).view(len(target), RANKING_DRAWS, classes)
    mean = total(logits.transpose(1, 2)) / RANKING_DRAWS
    mean.scatter_(1, target[:, None], -torch.inf)
    return mean.argsort(dim=1, descending=True, stable=True)[:, :CANDIDATES]


class TiltSearch:
    """The searches of a chunk's images.

    They go up: at each order the searches of all classes start where those of the order before
    ended, and the best then follow the loss against all classes. They come down again: the best
    tilt of an order is refined at the order below.

    Args:
        loss: of the images.
        tilts: the family.
        target: the class that the loss is against (images,).
        wanted: the classes to search for (images, searches), from :func:`candidates`.
        shape: of the normal variables of a copy.
    """

    def __init__(
        self,
        loss: Objective,
        tilts: Tilts,
        target: Tensor,
        wanted: Tensor,
        shape: tuple[int, ...],
    ) -> None:
        self._loss = loss
        self._tilts = tilts
        self._target = target
        self._wanted = wanted
        self._shape = shape
        self._toward = wanted.repeat_interleave(SEARCH_DRAWS, 1).flatten()

    def run(
        self,
        orders: Sequence[float],
        start: Tensor,
        search_normals: Normals,
        refine_normals: Normals,
        down_normals: Normals,
    ) -> list[FoundTilts]:
        """The tilts at each order.

        Args:
            orders: of the norm, ascending.
            start: zeros (images, searches, d).
            search_normals: rows are images x searches x SEARCH_DRAWS / 2.
            refine_normals: rows are images x REFINED x REFINE_DRAWS / 2.
            down_normals: rows are images x REFINE_DRAWS / 2.
        """
        last = orders[-1]
        by_order = []
        for q in orders_searched(orders):
            start, evidence = _FixedPoints(
                self._pair_slopes, self._tilts, q, search_normals, SEARCH_ROUNDS, SEARCH_DRAWS
            ).from_start(start, tail=_MEASURED)
            found = FoundTilts(start, evidence, self._wanted).best(KEPT)
            if q <= last:
                better = self._refined(found.first(REFINED), q, refine_normals)
                found = better.joined(found.rest(REFINED)).best(KEPT)
            by_order.append(found)
        for place in reversed(range(len(by_order) - 1)):
            from_above = self._refined(by_order[place + 1].first(1), orders[place], down_normals)
            by_order[place] = by_order[place].joined(from_above).best(KEPT)
        return by_order[: len(orders)]

    def _refined(self, found: FoundTilts, q: float, normals: Normals) -> FoundTilts:
        """The tilts at an order, after they have followed the loss against all classes."""
        points, evidence = _FixedPoints(
            self._all_slopes, self._tilts, q, normals, REFINE_ROUNDS, REFINE_DRAWS
        ).from_start(found.parameters, tail=REFINE_ROUNDS // 2)
        return FoundTilts(points, evidence, found.toward)

    def _pair_slopes(self, image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """log l against all classes, and the gradient of the log loss of two classes: the target,
        and the one that the search is for."""
        toward = self._toward
        logits, slopes = self._loss.slopes(image, z.unflatten(1, self._shape), toward)
        target = self._target[image]
        pair = logits.gather(1, torch.stack([target, toward], 1))
        _, weights = log_cross_entropy(pair, torch.zeros_like(toward))
        # The margin's gradient times d log l / d margin; logits that are not finite give none.
        rate = weights[:, 1:].nan_to_num(0.0, 0.0, 0.0)
        slope = (slopes.flatten(1).double() * rate).to(z.dtype).nan_to_num(0.0, 0.0, 0.0)
        values, _ = log_cross_entropy(logits, target)
        values = values.nan_to_num(-torch.inf, -torch.inf, -torch.inf)
        # a class that is masked by minus infinity has no evidence
        return torch.where(pair[:, 1].isfinite(), values, -torch.inf), slope

    def _all_slopes(self, image: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """log l against all classes and its gradient."""
        values, slopes = self._loss.loss_slopes(image, z.unflatten(1, self._shape))
        return values, slopes.flatten(1)


@dataclass(frozen=True, slots=True)
class _FixedPoints:
    """Searches for t = q E[slope] over p_t by stochastic approximation with antithetic draws.

    Attributes:
        slopes: log l, and the gradient that is followed, with respect to z.
        tilts: the family.
        q: the order.
        normals: see :data:`Normals`.
        rounds: of a search.
        draws: of a round, an even number.

    Source: Robbins and Monro 1951; the mean of the last rounds is Polyak and Juditsky's (1992).
    """

    slopes: Slopes
    tilts: Tilts
    q: float
    normals: Normals
    rounds: int
    draws: int

    def from_start(self, start: Tensor, *, tail: int) -> tuple[Tensor, Tensor]:
        """The mean tilt of the last ``tail`` rounds (images, searches, d), and the mean evidence
        there (images, searches), float64."""
        images, searches, d = start.shape
        rows = images * searches * self.draws
        image = torch.arange(images, device=start.device).repeat_interleave(rows // images)
        tilt = start.flatten(0, 1)
        mean = torch.zeros_like(tilt)
        evidence = torch.zeros(len(tilt), dtype=torch.float64, device=start.device)
        for number in range(self.rounds):
            half = self.normals().view(len(tilt), self.draws // 2, d)
            normal = torch.cat([half, -half], 1)
            z = self.tilts.moved(tilt[:, None], normal).flatten(0, 1)
            value, slope = self.slopes(image, z)
            slope = self.tilts.slope(z, slope).view(len(tilt), self.draws, d)
            if number >= self.rounds - tail:
                mean += tilt / tail
                mean_value = total(value.view(-1, self.draws)) / self.draws
                evidence += (self.q * mean_value - self.tilts.divergence(tilt)) / tail
            step = self.q * total(slope, 1) / self.draws - tilt
            # The gain falls as 1 / round, so that the noise of the gradients averages out.
            gain = 1 / (number / 3 + 1.5)
            length = lengths(step) * gain
            longest = _STEP + _RELATIVE_STEP * lengths(tilt)
            shortened = torch.where(length > longest, longest / length.clamp_min(1e-30), 1.0)
            tilt = tilt + step * (gain * shortened)[:, None].to(step.dtype)
        return mean.view(images, searches, d), evidence.view(images, searches)
