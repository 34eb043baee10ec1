"""What do estimators of rare failures share: the quantity, the score of a noisy image, independent runs of splitting, and their verdict?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.estimators.work import Work
from robaudit.numerics.intervals import LN10, clopper_pearson, log_mean
from robaudit.numerics.splitting import Lane, Schedule, split

HELD_BYTES = 2**27
"""Particles held at once, unless those of a single run take more."""

FAR_APART = 0.7
"""Standard deviation of ln p over repeats above which the row says that they differ."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What independent runs of splitting say about one image.

    Attributes:
        value, lower, upper, std_error: on the scale log10; where the failure was only bounded, value and upper are the bound, lower is
            minus infinity and std_error None.
        interval: how it was made.
        bounded: whether no failure was measured.
        flips_to: class of most failing particles.
        note: what there is to say.
        details: further numbers.
        calls: noisy copies judged.
    """

    value: float
    lower: float
    upper: float
    std_error: float | None
    interval: str
    bounded: bool
    flips_to: int | None
    note: str
    details: dict[str, float]
    calls: int


class Judge:
    """Scores of the noisy images x + sigma z, and the class each would go to.

    score = max_{j != t} f_j - f_t, t the class of the clean image: a failure where it is >= 0. Logits that are not finite are failures,
    as for mc. Passes are in the model's full precision, whatever ``run.precision`` says for noisy passes: levels are finer than that.

    Args:
        work: the chunk.
        images: index of the image of each lane.
    """

    def __init__(self, work: Work, images: Sequence[int]) -> None:
        self._work = work
        self._image = torch.tensor(images, device=work.x.device)

    def __call__(self, z: Tensor, lane: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and classes of points z (n, *shape) of lanes (n,)."""
        image = self._image[lane]
        noisy = torch.add(self._work.x[image], z, alpha=self._work.sigma)
        return scores(self._work.engine.logits(noisy), self._work.clean.predicted[image])


def scores(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """max_{j != t} f_j - f_t and its j: (n, classes) and (n,) -> (n,), (n,); infinite and -1 where a logit is not finite."""
    others = logits.scatter(1, target[:, None], -math.inf)
    best, winner = others.max(1)
    score = best - logits.gather(1, target[:, None])[:, 0]
    finite = logits.isfinite().all(1)
    return torch.where(finite, score, math.inf), torch.where(finite, winner, -1)


def latent(work: Work, purpose: str, image: int, number: int, start: int) -> Iterator[Tensor]:
    """Standard normal draws of an image for a purpose of its own, independent of the noise that other estimators see."""
    return iter(work.engine.noise.blocks(f"{purpose}\x1f{work.ids[image]}", number, tuple(work.x.shape[1:]), start))


def lanes_at_once(particles: int, values: int) -> int:
    """Runs of splitting in lock-step: their particles stay under :data:`HELD_BYTES`."""
    return max(1, HELD_BYTES // (4 * particles * values))


def particle_bytes(particles: int, values: int) -> int:
    """Bytes of the particles in lock-step; the clones of one run and the lanes that leave the batch are copies."""
    one = 4 * particles * values
    return one * (2 * lanes_at_once(particles, values) + 1)


def run_splitting(work: Work, images: Sequence[int], repeats: int, schedule: Schedule, purpose: str, *, keep: int = 0) -> list[list[Lane]]:
    """Independent runs for each of these images of the chunk, as many in lock-step as memory allows."""
    few = lanes_at_once(schedule.particles, math.prod(work.x.shape[1:]))
    owners = [(image, repeat) for image in images for repeat in range(repeats)]
    found: list[Lane] = []
    for first in range(0, len(owners), few):
        here = owners[first : first + few]

        def draw(lane: int, number: int, start: int, here: Sequence[tuple[int, int]] = here) -> Iterator[Tensor]:
            image, repeat = here[lane]
            return latent(work, f"{purpose} {repeat}", image, number, start)

        found += split(Judge(work, [image for image, _ in here]), draw, len(here), schedule, keep=keep)
    return [found[i * repeats : (i + 1) * repeats] for i in range(len(images))]


def verdict(lanes: Sequence[Lane], schedule: Schedule) -> Verdict:
    """What the runs of one image say together.

    All done at the first level: plain Monte Carlo with repeats * N draws and the exact binomial interval. Else
    :func:`~robaudit.numerics.intervals.log_mean`; a run that only bounds p enters with its bound. No run with a failure: a bound.
    """
    measured = [lane for lane in lanes if lane.state == "measured"]
    if not measured:
        bound, note = _bound(lanes, schedule)
        return _verdict(lanes, (bound, -math.inf, bound, None), "upper bound", note)
    notes = []
    if len(measured) < len(lanes):
        notes.append(f"{len(lanes) - len(measured)} of {len(lanes)} repeats saw no failure and enter with their bound")
    if ties := sum(lane.ties for lane in lanes):
        notes.append(f"equal scores at {ties} levels: corrected")
    if all(lane.state == "measured" and len(lane.factors) == 1 for lane in lanes):
        failed, draws = sum(sum(lane.labels.values()) for lane in lanes), schedule.particles * len(lanes)
        lower, upper = (math.log10(end) for end in clopper_pearson(failed, draws))
        error = math.sqrt((1 - failed / draws) / failed) / LN10
        return _verdict(lanes, (math.log10(failed / draws), lower, upper, error), "clopper-pearson", "; ".join(notes))
    logs = [lane.log_p for lane in lanes]
    mean = log_mean(logs, [lane.variance for lane in lanes])
    if mean.spread > FAR_APART:
        notes.append(f"repeats differ by a factor of {math.exp(max(logs) - min(logs)):.2g}: more repeats or particles would help")
    return _verdict(lanes, mean[:4], f"lognormal:{len(lanes)} repeats", "; ".join(notes))


def _verdict(lanes: Sequence[Lane], numbers: tuple[float, float, float, float | None], interval: str, note: str) -> Verdict:
    """Value, ends and standard error with what else the runs say."""
    labels = sum((lane.labels for lane in lanes), Counter[int]())
    calls = sum(lane.calls for lane in lanes)
    return Verdict(*numbers, interval, numbers[3] is None, _most(labels), note, _details(lanes), calls)


def _bound(lanes: Sequence[Lane], schedule: Schedule) -> tuple[float, str]:
    """The bound on log10 p where no run met a failure: the highest of the runs' last levels, and none of their particles failed there."""
    if all(lane.state == "below" for lane in lanes):
        return math.log10(schedule.p_min), f"p < {schedule.p_min:g} in all {len(lanes)} repeats: an upper bound, not a value"
    independent = schedule.particles if all(not lane.factors for lane in lanes) else schedule.particles - schedule.killed
    unseen = math.log10(1 - 0.05 ** (1 / (independent * len(lanes))))
    reached = max(math.log10(schedule.p_min) if lane.state == "below" else lane.log_p / LN10 + unseen for lane in lanes)
    return reached, "no further level, for all scores are equal: an upper bound, not a value"


def _most(labels: Counter[int]) -> int | None:
    """The most frequent class."""
    known = [label for label in sorted(labels) if label >= 0]
    return max(known, key=lambda label: labels[label]) if known else None


def _details(lanes: Sequence[Lane]) -> dict[str, float]:
    found: dict[str, float] = {"levels": max(len(lane.factors) for lane in lanes)}
    proposed = sum(lane.proposed for lane in lanes)
    if proposed:
        found["acceptance"] = round(sum(lane.accepted for lane in lanes) / proposed, 4)
    found |= {f"log10_p_{i}": lane.log_p / LN10 for i, lane in enumerate(lanes)}
    if ties := sum(lane.ties for lane in lanes):
        found["tied_levels"] = ties
    return found
