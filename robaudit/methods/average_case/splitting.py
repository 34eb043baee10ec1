"""`splitting`: the probability of a failure too rare for plain sampling, by independent runs of
multilevel splitting."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import HELD_BYTES, ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.objective import Objective
from robaudit.estimates import Estimate
from robaudit.methods.average_case.splitting_sampler import Schedule, SplittingRun, split
from robaudit.numerics.intervals import LN10, clopper_pearson, log_mean
from robaudit.quantities import LOG10_P_FAIL, Interval, IntervalKind
from robaudit.results import Result

FAR_APART = 0.7
"""Standard deviation of ln p over repeats above which the row notes that they differ: from there on
the upper end of four repeats is about ten times the value (docs/research/rare_failures.md)."""


class Splitting(Estimator):
    """log10 P[score(z) >= 0], score = max_{j != t} f_j - f_t at the noisy image for z ~ N(0, I), by
    multilevel splitting.

    A rare failure is a product of shares that are not rare: of N noisy copies the tenth with the
    highest scores survives, is cloned and moved by pCN steps that preserve the normal distribution
    above the level, and so on until a tenth fails
    (:func:`robaudit.methods.average_case.splitting_sampler.split`). ``repeats`` independent runs
    give p (their mean, which is unbiased when the copies at a level are independent) and an
    interval for lognormal p. An image that fails in a tenth of its copies at once gets plain Monte
    Carlo. Below ``p_min`` the value is this bound, with a note.

    The interval covers sampling and mixing, as far as the repeats show it, but not a failure region
    that all repeats missed.

    Source: Webb et al. 2019, A statistical approach to assessing neural network robustness; Cerou
    et al. 2012.
    """

    quantity = LOG10_P_FAIL
    needs = Need.LEVEL | Need.RANDOM | Need.INPUT
    interval = Interval(IntervalKind.LOGNORMAL, remark="repeats")
    summary = "probability of a rare failure, as a product of probabilities that are not rare"
    prefer = (
        "very robust images (p_fail below 1e-4), where mc sees no failure; thousands of "
        "passes for each factor of ten"
    )
    source = "Webb et al. 2019; Cerou et al. 2012"

    particles: int = Field(
        500, ge=20, le=10**5, multiple_of=10, description="noisy copies in each run"
    )
    repeats: int = Field(
        4, ge=4, le=100, description="independent runs of each image, for the interval"
    )
    moves: int = Field(10, ge=1, le=1000, description="moves of every copy at each level")
    p_min: float = Field(
        1e-12, ge=1e-100, le=1e-2, description="smaller probabilities are bounded, not measured"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the passes for a failure probability of 1e-6 (or p_min); the number is
        not known in advance."""
        # A level is a factor of ten.
        levels = min(6, math.ceil(-math.log10(self.p_min)))
        return 1 + self.repeats * self.particles * (1 + self.moves * levels), 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Combine the runs, image by image."""
        schedule = Schedule(self.particles, self.moves, self.p_min)
        image_repeats = list(itertools.product(range(len(batch.x)), range(self.repeats)))
        # 4 bytes for each value of a particle
        lane_bytes = 4 * self.particles * math.prod(batch.latent_shape)
        lanes_at_once = max(1, HELD_BYTES // lane_bytes)
        lanes = list[SplittingRun]()
        for first in range(0, len(image_repeats), lanes_at_once):
            lanes += _runs(batch, image_repeats[first : first + lanes_at_once], schedule)
        return [
            _combined(lanes[i : i + self.repeats], schedule)
            for i in range(0, len(lanes), self.repeats)
        ]


def _runs(
    batch: ImageBatch, image_repeats: Sequence[tuple[int, int]], schedule: Schedule
) -> list[SplittingRun]:
    """Run splitting in lock-step, a lane for each image and repeat.

    score = max_{j != t} f_j - f_t, t the class of the clean image: a failure if it is >= 0 (for
    equal logits see :func:`_scores`). Non-finite logits are failures, as in mc. Passes are in the
    model's full precision, whatever ``run.precision`` says of noisy passes: levels are finer than
    that.
    """
    target = batch.predicted
    model = Objective(batch, batch.predicted, latent=True)
    images = torch.tensor([image for image, _ in image_repeats], device=batch.x.device)

    def judge(z: Tensor, lane: Tensor) -> tuple[Tensor, Tensor]:
        return _scores(model.logits(images[lane], z), target[images[lane]])

    def draw(lane: int, number: int, start: int) -> Iterator[Tensor]:
        # A stream for each repeat of each image: neighbours in the batch change nothing.
        image, repeat = image_repeats[lane]
        return batch.normals(f"splitting {repeat}", image, number, start)

    return split(judge, draw, len(image_repeats), schedule)


def _scores(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """max_{j != t} f_j - f_t and its j: (n, classes) and (n,) -> (n,), (n,); infinite and -1 if a
    logit is not finite.

    The first of equal logits is the class, as everywhere: if that is t, the score is just below 0
    (classes with the same weights, or a last layer that sees only zeros).
    """
    others = logits.scatter(1, target[:, None], -math.inf)
    best, winner = others.max(1)
    score = best - logits.gather(1, target[:, None])[:, 0]
    just_below = -torch.finfo(score.dtype).tiny
    target_is_first = (score == 0) & (target < winner)
    score = torch.where(target_is_first, just_below, score)
    finite = logits.isfinite().all(1)
    score = torch.where(finite, score, math.inf)
    winner = torch.where(finite, winner, -1)
    return score, winner


def _combined(lanes: Sequence[SplittingRun], schedule: Schedule) -> Result:
    """Combine the runs of one image.

    If all runs end at the first level: plain Monte Carlo with repeats * N draws and the exact
    binomial interval. Else :func:`~robaudit.numerics.intervals.log_mean`; a run that only bounds p
    enters with its bound. Without any failure: a bound.
    """
    measured = [lane for lane in lanes if lane.state == "measured"]
    if not measured:
        bound, why = _bound(lanes, schedule)
        note = f"{why}: an upper bound, not a value"
        estimate = Estimate.measured(bound, (-math.inf, bound), "upper bound")
        return _result(lanes, estimate, None, Interval(IntervalKind.UPPER_BOUND), note)
    notes = []
    unmeasured = len(lanes) - len(measured)
    if unmeasured:
        notes.append(
            f"{unmeasured} of {len(lanes)} repeats saw no failure and enter with their bound"
        )
    if ties := sum(lane.ties for lane in lanes):
        notes.append(f"equal scores at {ties} levels: corrected")
    if all(lane.state == "measured" and len(lane.factors) == 1 for lane in lanes):
        return _plain_monte_carlo(lanes, schedule, "; ".join(notes))
    logs = [lane.log_p for lane in lanes]
    mean = log_mean(logs, [lane.variance for lane in lanes])
    if mean.spread > FAR_APART:
        factor = math.exp(max(logs) - min(logs))
        notes.append(
            f"repeats differ by a factor of {factor:.2g}: more repeats or particles would help"
        )
    interval = Interval(IntervalKind.LOGNORMAL, remark=f"{len(lanes)} repeats")
    return _result(lanes, mean.estimate, mean.std_error, interval, "; ".join(notes))


def _plain_monte_carlo(lanes: Sequence[SplittingRun], schedule: Schedule, note: str) -> Result:
    """The result of an image that failed in a tenth of the first copies of every run: all of them
    are independent draws."""
    failed = sum(sum(lane.labels.values()) for lane in lanes)
    draws = schedule.particles * len(lanes)
    lower, upper = (math.log10(end) for end in clopper_pearson(failed, draws))
    estimate = Estimate.measured(math.log10(failed / draws), (lower, upper), "Clopper-Pearson")
    # delta method: sqrt(p (1 - p) / n) / (p ln 10)
    error = math.sqrt((1 - failed / draws) / failed) / LN10
    return _result(lanes, estimate, error, Interval(IntervalKind.CLOPPER_PEARSON), note)


def _result(
    lanes: Sequence[SplittingRun],
    estimate: Estimate,
    std_error: float | None,
    interval: Interval,
    note: str,
) -> Result:
    """The result with value, ends, standard error and the runs' numbers."""
    failures = sum((lane.labels for lane in lanes), Counter[int]())
    return Result(
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        std_error=std_error,
        flips_to=_most_frequent(failures),
        forwards=1 + sum(lane.calls for lane in lanes),
        interval=interval,
        note=note,
        numbers=_numbers(lanes),
    )


def _bound(lanes: Sequence[SplittingRun], schedule: Schedule) -> tuple[float, str]:
    """The bound on log10 p if no run met a failure, and its reason.

    It is the highest last level of the runs, times the largest share of failures that may be unseen
    among the particles there.
    """
    floor = math.log10(schedule.p_min)
    if all(lane.state == "below" for lane in lanes):
        return floor, f"p < {schedule.p_min:g} in all {len(lanes)} repeats"
    # After a level only the survivors are independent: the others are their clones.
    independent = schedule.particles - schedule.killed
    if all(not lane.factors for lane in lanes):
        independent = schedule.particles
    # no failure among n draws: p <= 1 - .05^(1/n) with 95 % (Clopper-Pearson)
    unseen = math.log10(1 - 0.05 ** (1 / (independent * len(lanes))))
    bounds = [floor if lane.state == "below" else lane.log_p / LN10 + unseen for lane in lanes]
    return max(bounds), "no further level, as all scores are equal"


def _most_frequent(classes: Counter[int]) -> int | None:
    """The most frequent class, the first if several tie; -1, for non-finite logits, is none."""
    known = [number for number in sorted(classes) if number >= 0]
    return max(known, key=lambda number: classes[number]) if known else None


def _numbers(lanes: Sequence[SplittingRun]) -> dict[str, float]:
    """The numbers of the row: levels, acceptance, log10 p of each repeat, and levels with ties."""
    numbers: dict[str, float] = {"levels": max(len(lane.factors) for lane in lanes)}
    proposed = sum(lane.proposed for lane in lanes)
    if proposed:
        accepted = sum(lane.accepted for lane in lanes)
        numbers["acceptance"] = round(accepted / proposed, 4)
    for repeat, lane in enumerate(lanes):
        numbers[f"log10_p_{repeat}"] = lane.log_p / LN10
    if ties := sum(lane.ties for lane in lanes):
        numbers["tied_levels"] = ties
    return numbers
