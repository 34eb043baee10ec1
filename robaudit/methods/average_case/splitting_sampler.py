"""Multilevel splitting in Gaussian space for failures too rare for plain sampling, for any
score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

Judge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Points (rows, *shape) and their lanes (rows,) -> scores (rows,) float64, failures at >= 0, and
labels (rows,)."""

Draw = Callable[[int, int, int], Iterable[Tensor]]
"""A run's number n and start -> n standard normal draws of the lane from number ``start`` on, in
blocks (m, *shape)."""

TARGET = 0.3
"""The acceptance that the step adapts to."""
# ln step rises by the acceptance of a move less the target: Robbins and Monro's rule
_GAIN = 1.0
# At the smallest step particles hardly move; at the largest, z' = .1 z + .995 xi is nearly a fresh
# draw.
_LEAST_STEP = 1e-3
_MOST_STEP = 10.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Parameters of splitting.

    Attributes:
        particles: N in each lane, a multiple of 10.
        moves: pCN moves of every particle at each level.
        p_min: a lane stops once the probability of its level is lower.
    """

    particles: int = 500
    moves: int = 10
    p_min: float = 1e-12

    @property
    def killed(self) -> int:
        """Particles killed at each level: .9 N."""
        return self.particles * 9 // 10

    @property
    def most_levels(self) -> int:
        """Levels until p_min if each level keeps a tenth."""
        return math.ceil(math.log10(1 / self.p_min)) + 1


@dataclass(slots=True)
class SplittingRun:
    """An independent run of splitting.

    Attributes:
        state: ``measured``; ``below``: the probability of the level fell below p_min before enough
            particles failed; ``stuck``: all particles have the same score, so there is no next
            level.
        log_p: natural log of the estimate, or of the last level's probability, an upper bound of p.
        variance: variance of log_p in the ideal case: sum over the factors f of (1 - f) / (f N).
        factors: shares of survivors, and last the share of failures.
        accepted, proposed: moves at all levels.
        ties: number of levels where equal scores changed the number of survivors.
        calls: number of points scored.
        labels: counts of the classes of the failing particles at the end.
        step: s of the next move.
        level: the current level.
    """

    state: Literal["running", "measured", "below", "stuck"] = "running"
    log_p: float = 0.0
    variance: float = 0.0
    factors: list[float] = field(default_factory=list)
    accepted: int = 0
    proposed: int = 0
    ties: int = 0
    calls: int = 0
    labels: Counter[int] = field(default_factory=Counter)
    step: float = 1.0
    level: float = -math.inf

    def factor(self, survivors: int, particles: int) -> None:
        """Multiply the probability by survivors / particles."""
        share = survivors / particles
        self.factors.append(share)
        self.log_p += math.log(share)
        # delta method: Var(log f) = (1 - f) / (f N), and f N is the number of survivors
        self.variance += (1 - share) / survivors


def split(judge: Judge, draw: Draw, lanes: int, schedule: Schedule) -> list[SplittingRun]:
    """P[score(z) >= 0] for z ~ N(0, I), in independent lanes that advance in lock-step.

    Each lane: N particles; while fewer than a tenth fail, the level L becomes the .9 N-th smallest
    score, the particles strictly above survive (a factor survivors / N) and are cloned to N,
    equally often; then each particle moves 10 times by z' = (z + s xi) / sqrt(1 + s^2), which
    preserves N(0, I), if score(z') > L; s adapts towards an acceptance of .3. The last factor is
    the share with score >= 0. If a tenth fails at once this is plain Monte Carlo. The product is
    unbiased if the particles at a level are independent, and nearly unbiased with moves. Its
    relative variance is then about (log p / log .1) .9 / (.1 N).

    Equal scores (quantised networks): only strictly higher particles survive, and the factor counts
    them; if more than a tenth share the highest score, the level is the next lower score; if all
    scores are equal the lane is stuck.

    A lane depends only on its draws. Finished lanes leave the batch.

    Args:
        judge: scores and labels.
        draw: standard normal draws.
        lanes: number of independent runs.
        schedule: the parameters.

    Source: Cerou et al. 2012, Sequential Monte Carlo for rare event estimation; Webb et al. 2019
        (networks); Brehier et al. 2016 (unbiasedness).
    """
    n = schedule.particles
    runs = [SplittingRun() for _ in range(lanes)]
    active = list(range(lanes))
    z = torch.stack([torch.cat(list(draw(lane, n, 0))) for lane in active])  # (lanes, N, *shape)
    scores, labels = _judged(judge, z, active)
    for run in runs:
        run.calls += n
    # Tied scores make levels that keep more than a tenth: a limit, so that a lane always ends.
    for number in range(schedule.most_levels * 10):
        rows_to_go = [
            row
            for row, lane in enumerate(active)
            if _raise_level(runs[lane], scores[row], labels[row], schedule)
        ]
        if not rows_to_go:
            return runs
        if len(rows_to_go) < len(active):
            z = z[rows_to_go]
            scores = scores[rows_to_go]
            labels = labels[rows_to_go]
            active = [active[row] for row in rows_to_go]
        # N draws at the start; then N for the clones and N for every move, at each level
        start = n * (1 + number * (schedule.moves + 1))
        for row, lane in enumerate(active):
            draw_of_lane = partial(draw, lane)
            level = runs[lane].level
            _clone(z[row], scores[row], labels[row], level, draw_of_lane, start)
        moving = [runs[lane] for lane in active]
        for move in range(1, schedule.moves + 1):
            _move(judge, draw, z, scores, labels, moving, active, start + n * move)
    for lane in active:
        runs[lane].state = "stuck"
    return runs


def _judged(judge: Judge, z: Tensor, lanes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Scores and labels of the particles of some lanes (lanes, N, *shape): (lanes, N)."""
    n = z.shape[1]
    lane = torch.tensor(lanes, device=z.device).repeat_interleave(n)
    scores, labels = judge(z.flatten(0, 1), lane)
    return scores.view(-1, n), labels.view(-1, n)


def _raise_level(lane: SplittingRun, scores: Tensor, labels: Tensor, schedule: Schedule) -> bool:
    """Set the next level of the lane; False if the lane is finished."""
    ordered = scores.sort().values
    level = float(ordered[schedule.killed - 1])
    if level >= 0:
        failing = labels[scores >= 0].tolist()
        lane.factor(len(failing), len(scores))
        lane.state = "measured"
        lane.labels = Counter(failing)
        return False
    survivors = int((scores > level).sum())
    if survivors == 0:
        # More than a tenth share the highest score: take the next lower score as the level.
        lower = ordered[ordered < level]
        if not len(lower):
            lane.state = "stuck"
            return False
        level = float(lower[-1])
        survivors = int((scores > level).sum())
    lane.ties += survivors != len(scores) - schedule.killed
    lane.level = level
    lane.factor(survivors, len(scores))
    # A sum of logarithms of .1 may miss log(p_min) by rounding.
    if lane.log_p < math.log(schedule.p_min) * (1 + 1e-12):
        lane.state = "below"
        return False
    return True


def _clone(
    z: Tensor,
    scores: Tensor,
    labels: Tensor,
    level: float,
    draw: Callable[[int, int], Iterable[Tensor]],
    start: int,
) -> None:
    """Replace the particles at or below the level by clones of the others, equally many of each;
    the remainder at random."""
    survivors = (scores > level).nonzero()[:, 0]
    n = len(scores)
    number = len(survivors)
    if n % number:
        # Some have a clone more: the first in a random order, by one variable of a fresh draw each.
        keys = torch.cat([block.flatten(1)[:, 0] for block in draw(number, start)])
        survivors = survivors[keys.argsort(stable=True)]
    parents = survivors[torch.arange(n, device=z.device) % number]
    for values in (z, scores, labels):
        values.copy_(values[parents])


def _move(
    judge: Judge,
    draw: Draw,
    z: Tensor,
    scores: Tensor,
    labels: Tensor,
    runs: Sequence[SplittingRun],
    lanes: Sequence[int],
    start: int,
) -> None:
    """Move every particle of the lanes once, in place.

    Args:
        judge: scores and labels.
        draw: standard normal draws.
        z, scores, labels: the particles (lanes, N, *shape), and of each (lanes, N).
        runs: the state of each lane.
        lanes: their numbers.
        start: number of the first draw.
    """
    n = z.shape[1]
    proposal = torch.empty_like(z)
    for out, particles, lane, run in zip(proposal, z, lanes, runs, strict=True):
        # pCN: z' = (z + s xi) / sqrt(1 + s^2) preserves N(0, I) (Cotter et al. 2013)
        xi = torch.cat(list(draw(lane, len(particles), start)))
        shrinkage = 1 / math.sqrt(1 + run.step**2)
        torch.add(particles, xi, alpha=run.step, out=out).mul_(shrinkage)
    new_scores, new_labels = _judged(judge, proposal, lanes)
    levels = torch.tensor([run.level for run in runs], dtype=torch.float64, device=z.device)
    accepted = new_scores > levels[:, None]
    for old, new in ((z, proposal), (scores, new_scores), (labels, new_labels)):
        old[accepted] = new[accepted]
    for run, accepted_moves in zip(runs, accepted.sum(1).tolist(), strict=True):
        run.accepted += accepted_moves
        run.proposed += n
        run.calls += n
        step = run.step * math.exp(_GAIN * (accepted_moves / n - TARGET))
        run.step = min(_MOST_STEP, max(_LEAST_STEP, step))
