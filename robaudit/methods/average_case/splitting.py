"""`splitting`: the probability of a failure too rare for plain sampling, by independent runs of
multilevel splitting."""

from __future__ import annotations

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
from robaudit.methods.average_case.splitting_sampler import Lane, Schedule, split
from robaudit.numerics.intervals import LN10, clopper_pearson, log_mean
from robaudit.quantities import LOG10_P_FAIL, Interval, IntervalKind
from robaudit.results import Result

FAR_APART = 0.7
"""Standard deviation of ln p over repeats above which the row notes that they differ."""


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
    needs = Need.LEVEL | Need.RANDOM
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
        levels = min(6, math.ceil(-math.log10(self.p_min)))
        return 1 + self.repeats * self.particles * (1 + self.moves * levels), 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Combine the runs, image by image."""
        schedule = Schedule(self.particles, self.moves, self.p_min)
        owners = [
            (image, repeat) for image in range(len(batch.x)) for repeat in range(self.repeats)
        ]
        few = max(1, HELD_BYTES // (4 * self.particles * math.prod(batch.latent_shape)))
        lanes = [
            lane
            for first in range(0, len(owners), few)
            for lane in _runs(batch, owners[first : first + few], schedule)
        ]
        return [
            _together(lanes[i : i + self.repeats], schedule)
            for i in range(0, len(lanes), self.repeats)
        ]


def _runs(batch: ImageBatch, owners: Sequence[tuple[int, int]], schedule: Schedule) -> list[Lane]:
    """Run splitting in lock-step, a lane for each image and repeat.

    score = max_{j != t} f_j - f_t, t the class of the clean image: a failure if it is >= 0 (for
    equal logits see :func:`_scores`). Non-finite logits are failures, as in mc. Passes are in the
    model's full precision, whatever ``run.precision`` says of noisy passes: levels are finer than
    that.
    """
    target = batch.predicted
    model = Objective(batch, batch.predicted, latent=True)
    images = torch.tensor([image for image, _ in owners], device=batch.x.device)

    def judge(z: Tensor, lane: Tensor) -> tuple[Tensor, Tensor]:
        return _scores(model.logits(images[lane], z), target[images[lane]])

    def draw(lane: int, number: int, start: int) -> Iterator[Tensor]:
        image, repeat = owners[lane]
        return batch.normals(f"splitting {repeat}", image, number, start)

    return split(judge, draw, len(owners), schedule)


def _scores(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """max_{j != t} f_j - f_t and its j: (n, classes) and (n,) -> (n,), (n,); infinite and -1 if a
    logit is not finite.

    The first of equal logits is the class, as everywhere: if that is t, the score is just below 0
    (classes with the same weights, or a last layer that sees only zeros).
    """
    others = logits.scatter(1, target[:, None], -math.inf)
    best, winner = others.max(1)
    score = best - logits.gather(1, target[:, None])[:, 0]
    score = torch.where((score == 0) & (target < winner), -torch.finfo(score.dtype).tiny, score)
    finite = logits.isfinite().all(1)
    return torch.where(finite, score, math.inf), torch.where(finite, winner, -1)


def _together(lanes: Sequence[Lane], schedule: Schedule) -> Result:
    """Combine the runs of one image.

    If all runs end at the first level: plain Monte Carlo with repeats * N draws and the exact
    binomial interval. Else :func:`~robaudit.numerics.intervals.log_mean`; a run that only bounds p
    enters with its bound. Without any failure: a bound.
    """
    measured = [lane for lane in lanes if lane.state == "measured"]
    if not measured:
        bound, why = _bound(lanes, schedule)
        note = f"{why}: an upper bound, not a value"
        return _result(
            lanes,
            Estimate.measured(bound, (-math.inf, bound), "upper bound"),
            None,
            Interval(IntervalKind.UPPER_BOUND),
            note,
        )
    notes = []
    if len(measured) < len(lanes):
        notes.append(
            f"{len(lanes) - len(measured)} of {len(lanes)} repeats saw no failure and enter with "
            "their bound"
        )
    if ties := sum(lane.ties for lane in lanes):
        notes.append(f"equal scores at {ties} levels: corrected")
    if all(lane.state == "measured" and len(lane.factors) == 1 for lane in lanes):
        failed = sum(sum(lane.labels.values()) for lane in lanes)
        draws = schedule.particles * len(lanes)
        lower, upper = (math.log10(end) for end in clopper_pearson(failed, draws))
        error = math.sqrt((1 - failed / draws) / failed) / LN10
        estimate = Estimate.measured(math.log10(failed / draws), (lower, upper), "Clopper-Pearson")
        return _result(
            lanes, estimate, error, Interval(IntervalKind.CLOPPER_PEARSON), "; ".join(notes)
        )
    logs = [lane.log_p for lane in lanes]
    mean = log_mean(logs, [lane.variance for lane in lanes])
    if mean.spread > FAR_APART:
        notes.append(
            f"repeats differ by a factor of {math.exp(max(logs) - min(logs)):.2g}: more repeats "
            "or particles would help"
        )
    interval = Interval(IntervalKind.LOGNORMAL, remark=f"{len(lanes)} repeats")
    return _result(lanes, mean.estimate, mean.std_error, interval, "; ".join(notes))


def _result(
    lanes: Sequence[Lane],
    estimate: Estimate,
    std_error: float | None,
    interval: Interval,
    note: str,
) -> Result:
    """The result with value, ends, standard error and the runs' numbers."""
    return Result(
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        std_error=std_error,
        flips_to=_most(sum((lane.labels for lane in lanes), Counter[int]())),
        forwards=1 + sum(lane.calls for lane in lanes),
        interval=interval,
        note=note,
        numbers=_numbers(lanes),
    )


def _bound(lanes: Sequence[Lane], schedule: Schedule) -> tuple[float, str]:
    """The bound on log10 p if no run met a failure: the highest last level of the runs, where no
    particle failed."""
    if all(lane.state == "below" for lane in lanes):
        return math.log10(schedule.p_min), f"p < {schedule.p_min:g} in all {len(lanes)} repeats"
    independent = (
        schedule.particles
        if all(not lane.factors for lane in lanes)
        else schedule.particles - schedule.killed
    )
    unseen = math.log10(1 - 0.05 ** (1 / (independent * len(lanes))))
    reached = max(
        math.log10(schedule.p_min) if lane.state == "below" else lane.log_p / LN10 + unseen
        for lane in lanes
    )
    return reached, "no further level, as all scores are equal"


def _most(labels: Counter[int]) -> int | None:
    """The most frequent class."""
    known = [label for label in sorted(labels) if label >= 0]
    return max(known, key=lambda label: labels[label]) if known else None


def _numbers(lanes: Sequence[Lane]) -> dict[str, float]:
    numbers: dict[str, float] = {"levels": max(len(lane.factors) for lane in lanes)}
    proposed = sum(lane.proposed for lane in lanes)
    if proposed:
        numbers["acceptance"] = round(sum(lane.accepted for lane in lanes) / proposed, 4)
    numbers |= {f"log10_p_{i}": lane.log_p / LN10 for i, lane in enumerate(lanes)}
    if ties := sum(lane.ties for lane in lanes):
        numbers["tied_levels"] = ties
    return numbers
