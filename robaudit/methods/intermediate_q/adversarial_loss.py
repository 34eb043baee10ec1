"""`adversarial_loss`: the largest loss of an image under its noise, as found by a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.engine.objective import Objective
from robaudit.methods.intermediate_q.metropolis import Walk, metropolis
from robaudit.methods.intermediate_q.q_estimator import LossEstimator
from robaudit.methods.intermediate_q.streams import Streams
from robaudit.numerics.attack import Attack, Ball, ascend, best_rows
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import LossNorm, Result

PURPOSE = "adversarial loss"
HOTTEST = 1e4
"""The last inverse temperature of the random search: a loss lower by a thousandth is accepted with
a probability of e^-10."""


class AdversarialLoss(LossEstimator):
    """max l over everything that the noise can do to an image, bounded from below by a search.

    If the noise fills a ball about the image (``uniform``): projected gradient ascent on log l from
    several starts, the image itself and draws of the noise; the best iterate counts
    (:func:`robaudit.numerics.attack.ascend`). With ``clip`` it stays in [0, 1], too. For other
    bounded kinds (``spatial``): a random search without gradients, by Metropolis chains in the
    space of the normal variables whose temperature falls
    (:func:`robaudit.methods.intermediate_q.metropolis.metropolis`); every visited point counts.

    The value is a lower bound of the maximum: another attack may find more.

    Source: Madry et al. 2018 (projected gradient ascent); Rice et al. 2021, appendix A.3 (50 steps,
    10 restarts).
    """

    needs = Need.LEVEL | Need.GRADIENTS | Need.RANDOM | Need.BOUNDED
    interval = Interval(IntervalKind.LOWER_BOUND)
    summary = "the largest loss under the noise that an attack finds"
    prefer = "the worst case, on the same scale as the average case"
    source = "Madry et al. 2018; Rice et al. 2021"

    steps: int = Field(
        50,
        ge=1,
        le=10**5,
        description="gradient steps from each start (kinds that are no ball: temperatures of the "
        "search)",
    )
    restarts: int = Field(
        10,
        ge=1,
        le=10**4,
        description="starts: the image itself, and draws of the noise (kinds that are no ball: "
        "chains)",
    )
    moves: int = Field(
        20, ge=1, le=1000, description="of each chain at every temperature (kinds that are no ball)"
    )

    @property
    def rows_at_once(self) -> int:
        """The starts, or chains, of an image."""
        return self.restarts

    def passes(self, classes: int) -> tuple[int, int]:
        """On a ball: the clean pass, all visited points with their gradients, and the best point
        once more."""
        return 2 + self.restarts * (self.steps + 1), self.restarts * (self.steps + 1)

    @property
    def _moves(self) -> int:
        """Moves of a chain of the random search."""
        return self.steps * self.moves

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Search, in groups of images that fit into memory."""
        target = self.targets(batch)
        ball = batch.noise.ball(batch.level)  # None: a kind that fills no ball
        # The random search holds latent variables, the ascent pixels.
        values = max(math.prod(batch.x.shape[1:]), math.prod(batch.latent_shape))
        log_losses = list[Tensor]()
        classes = list[Tensor]()
        broken = list[Tensor]()
        for group in batch.groups(values * self.restarts):
            loss = Objective(batch, target[group], group, latent=ball is None)
            if ball is None:
                attack = self._search(batch, loss, group)
            else:
                attack = self._ascend(batch, loss, group, ball)
            # The class at the best point takes one more pass.
            image = torch.arange(len(group), device=group.device)
            classes.append(loss.logits(image, attack.points).argmax(1))
            log_losses.append(attack.log_l)
            broken.append(loss.broken)
        log_l = torch.where(torch.cat(broken), torch.nan, torch.cat(log_losses))
        if ball is None:
            forwards = 2 + self.restarts * (self._moves + 1)
            backwards = 0
        else:
            forwards, backwards = self.passes(batch.classes)
        columns = (log_l.exp(), log_l, torch.cat(classes), batch.predicted, target)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            Result(
                value=value,
                lower=value,
                flips_to=reached if reached != predicted else None,
                forwards=forwards,
                backwards=backwards,
                interval=self.interval,
                loss=LossNorm(target_class),
                numbers={"log_loss": log_loss, "steps": self.steps, "restarts": self.restarts},
            )
            for value, log_loss, reached, predicted, target_class in rows
        ]

    def _ascend(self, batch: ImageBatch, loss: Objective, group: Tensor, ball: Ball) -> Attack:
        """Projected gradient ascent about the images of a group."""
        x = batch.x[group]
        # (images, restarts, *pixels): the image itself, and then draws of the noise
        starts = x[:, None].repeat(1, self.restarts, *[1] * (x.ndim - 1))
        for image, draws in zip(group.tolist(), starts[:, 1:], strict=True):
            pixels = batch.x[image : image + 1]
            done = 0
            for z in batch.normals(PURPOSE, image, self.restarts - 1):
                draws[done : done + len(z)] = batch.noisy_pixels(pixels, [batch.ids[image]], z)
                done += len(z)
        domain = replace(ball, clipped=batch.noise.clip)
        return ascend(loss.loss_slopes, x, starts, domain, self.steps)

    def _search(self, batch: ImageBatch, loss: Objective, group: Tensor) -> Attack:
        """Chains with an inverse temperature that rises as the cube of the step number."""
        chains = self.restarts
        streams = Streams(batch, PURPOSE, chains, self._moves + 1, self._moves, group.tolist())
        walk = Walk.at(loss.losses, streams.normals(), chains)
        for step in range(self.steps):
            # from 0, where moves are independent draws, to HOTTEST
            t = HOTTEST * (step / max(1, self.steps - 1)) ** 3
            metropolis(
                loss.losses,
                walk,
                t,
                self.moves,
                streams.normals,
                streams.uniforms,
                first=step * self.moves,
            )
        highest, row = best_rows(walk.highest, chains)
        return Attack(highest, walk.best[row])
