"""Multilevel splitting in Gaussian space for failures that plain sampling never sees, for any score."""

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
"""Points (rows, *shape) and the lane of each (rows,) -> scores (rows,) float64, failure at >= 0, and a label of each (rows,)."""

Draw = Callable[[int, int, int], Iterable[Tensor]]
"""Lane, number n and start -> the lane's standard normal draws from number ``start`` on, n of them in blocks (m, *shape)."""

TARGET = 0.3
_GAIN, _LEAST_STEP, _MOST_STEP = 1.0, 1e-3, 10.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Parameters of splitting.

    Attributes:
        particles: N in each lane, a multiple of 10.
        moves: pCN moves of every particle at each level.
        p_min: a lane stops where the probability of its level falls below.
    """

    particles: int = 500
    moves: int = 10
    p_min: float = 1e-12

    @property
    def killed(self) -> int:
        """Particles that a level kills: .9 N."""
        return self.particles * 9 // 10

    @property
    def most_levels(self) -> int:
        """Levels until p_min, when each keeps a tenth."""
        return math.ceil(math.log10(1 / self.p_min)) + 1


@dataclass(slots=True)
class Lane:
    """One independent run of splitting.

    Attributes:
        state: ``measured``; ``below``: the level's probability fell below p_min before anything failed often enough; ``stuck``: all
            particles have the same score, so that there is no next level.
        log_p: natural logarithm of the estimate, or of the last level's probability, an upper bound of p.
        variance: of log_p in the ideal case: sum over the factors f of (1 - f) / (f N).
        factors: shares of survivors, the last one of failures.
        accepted, proposed: moves at all levels.
        ties: levels at which equal scores changed the number of survivors.
        calls: points scored.
        labels: of the failing particles at the end, with their counts.
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

    def factor(self, kept: int, particles: int) -> None:
        """Multiply the probability by kept / particles."""
        share = kept / particles
        self.factors.append(share)
        self.log_p += math.log(share)
        self.variance += (1 - share) / kept


def split(judge: Judge, draw: Draw, lanes: int, schedule: Schedule) -> list[Lane]:
    """P[score(z) >= 0] for z ~ N(0, I), in independent lanes that advance in lock-step.

    Each lane: N particles; while fewer than a tenth fail, the level L becomes the .9 N-th smallest score, the particles strictly above
    survive (a factor survivors / N) and are cloned to N, equally often; then each particle moves 10 times by
    z' = (z + s xi) / sqrt(1 + s^2), which keeps N(0, I), where score(z') > L; s follows the acceptance towards .3. The last factor is
    the share with score >= 0. If a tenth fails at once this is plain Monte Carlo. The product is unbiased when the particles at a level
    are independent; with moves, nearly. Its relative variance is then about (log p / log .1) .9 / (.1 N).

    Equal scores (quantised networks): only strictly higher particles survive, and the factor counts them; where the highest score is
    shared by more than a tenth, the level is the next lower score; where all are equal the lane is stuck.

    A lane depends only on its draws. Finished lanes leave the batch.

    Args:
        judge: scores and labels.
        draw: standard normal draws.
        lanes: independent runs.
        schedule: the parameters.

    Source: Cerou et al. 2012, Sequential Monte Carlo for rare event estimation; Webb et al. 2019 (networks); Brehier et al. 2016
    (unbiasedness).
    """
    n, found, active = schedule.particles, [Lane() for _ in range(lanes)], list(range(lanes))
    z = torch.stack([torch.cat(list(draw(lane, n, 0))) for lane in active])
    scores, labels = _judged(judge, z, active)
    for lane in found:
        lane.calls += n
    for number in range(schedule.most_levels * 10):
        going = [row for row, name in enumerate(active) if _raise_level(found[name], scores[row], labels[row], schedule)]
        if not going:
            return found
        if len(going) < len(active):
            z, scores, labels, active = z[going], scores[going], labels[going], [active[row] for row in going]
        start = n * (1 + number * (schedule.moves + 1))
        for row, name in enumerate(active):
            _clone(z[row], scores[row], labels[row], found[name].level, partial(draw, name), start)
        for move in range(1, schedule.moves + 1):
            _move(judge, draw, z, scores, labels, [found[name] for name in active], active, start + n * move)
    for name in active:
        found[name].state = "stuck"
    return found


def _judged(judge: Judge, z: Tensor, names: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Scores and labels of the particles of some lanes (lanes, N, *shape): (lanes, N)."""
    lane = torch.tensor(names, device=z.device).repeat_interleave(z.shape[1])
    scores, labels = judge(z.flatten(0, 1), lane)
    return scores.view(-1, z.shape[1]), labels.view(-1, z.shape[1])


def _raise_level(lane: Lane, scores: Tensor, labels: Tensor, schedule: Schedule) -> bool:
    """Set the lane's next level; False when it is done."""
    ordered = scores.sort().values
    cut = float(ordered[schedule.killed - 1])
    if cut >= 0:
        failing = labels[scores >= 0].tolist()
        lane.factor(len(failing), len(scores))
        lane.state, lane.labels = "measured", Counter(failing)
        return False
    above = int((scores > cut).sum())
    if above == 0:
        lower = ordered[ordered < cut]
        if not len(lower):
            lane.state = "stuck"
            return False
        cut = float(lower[-1])
        above = int((scores > cut).sum())
    lane.ties += above != len(scores) - schedule.killed
    lane.level = cut
    lane.factor(above, len(scores))
    if lane.log_p < math.log(schedule.p_min) * (1 + 1e-12):
        lane.state = "below"
        return False
    return True


def _clone(z: Tensor, scores: Tensor, labels: Tensor, level: float, draw: Callable[[int, int], Iterable[Tensor]], start: int) -> None:
    """Replace the particles at or below the level by clones of the others, equally many of each; the remainder is random."""
    survivors = (scores > level).nonzero()[:, 0]
    n, k = len(scores), len(survivors)
    if n % k:
        first = torch.cat([block.flatten(1)[:, 0] for block in draw(k, start)])
        survivors = survivors[first.argsort(stable=True)]
    parents = survivors[torch.arange(n, device=z.device) % k]
    for values in (z, scores, labels):
        values.copy_(values[parents])


def _move(
    judge: Judge, draw: Draw, z: Tensor, scores: Tensor, labels: Tensor, lanes: Sequence[Lane], names: Sequence[int], start: int
) -> None:
    """One move of every particle of the lanes."""
    proposal = torch.empty_like(z)
    for out, here, name, lane in zip(proposal, z, names, lanes, strict=True):
        torch.add(here, torch.cat(list(draw(name, len(here), start))), alpha=lane.step, out=out).mul_(1 / math.sqrt(1 + lane.step**2))
    new, label = _judged(judge, proposal, names)
    better = new > torch.tensor([lane.level for lane in lanes], dtype=torch.float64, device=z.device)[:, None]
    for old, other in ((z, proposal), (scores, new), (labels, label)):
        old[better] = other[better]
    for lane, count in zip(lanes, better.sum(1).tolist(), strict=True):
        lane.accepted += count
        lane.proposed += z.shape[1]
        lane.calls += z.shape[1]
        lane.step = min(_MOST_STEP, max(_LEAST_STEP, lane.step * math.exp(_GAIN * (count / z.shape[1] - TARGET))))
