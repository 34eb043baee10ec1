"""`importance`: the probability of a rare failure by sampling where failures are, checked by splitting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from robaudit.estimators.base import Estimate, Estimator, Need, NoiseNeed
from robaudit.estimators.engine import padded
from robaudit.estimators.splitting import Judge, Verdict, run_splitting, verdict
from robaudit.estimators.work import Work
from robaudit.numerics.design_points import Weighted, mixture, relative_error_at, sample, search
from robaudit.numerics.intervals import LN10
from robaudit.numerics.margins import margin_gradients
from robaudit.numerics.splitting import Lane, Schedule
from robaudit.quantities import LOG10_P_FAIL, Interval, IntervalKind, Quantity

PARTICLE_STARTS = 8
_FEW_EFFECTIVE, _TOO_FEW_EFFECTIVE = 100, 10
_SURPRISE = 3.0


@dataclass(frozen=True, slots=True)
class _WeightedSample:
    """The weighted sample of one image, with its design points."""

    result: Weighted
    points: int
    nearest: float
    foretold: float | None
    searches: int


class Importance(Estimator):
    """log10 p_fail by importance sampling from .1 N(0, I) + .9 sum_k w_k N(u_k, I), weights at most 10.

    The u_k are design points: the nearest point where each class wins (Hasofer-Lind iteration from the clean image), and the nearest
    ones about failing copies that a small splitting of its own has found. Unbiased for any u_k; but a region of failures that no u_k is
    near hardly enters the sample, its standard error included. So that splitting also judges the sample: the weights of its failing
    copies foretell the standard error (:func:`robaudit.numerics.design_points.relative_error_at`). The sample is refused, so that the row
    is the splitting's and its note says so, where

    1. no draw failed, or the effective sample size of the failing ones is below 10;
    2. the error foretold is more than three times what the sample says;
    3. the larger of the two exceeds the splitting's own, which is then the better estimate;
    4. the two intervals do not overlap.

    Args:
        samples: draws of the mixture.
        particles: copies in each run of the small splitting.
        repeats: its runs.
        moves: of every copy at each level.
        p_min: smaller probabilities are bounded, not measured.
        steps: of each search for a design point.
        classes: the most classes searched for, those of the smallest clean margins.
        check: whether there is that splitting; without it every row says that it is unchecked.

    Source: Rackwitz and Fiessler 1978 (design points); Schueller and Stix 1987 (sampling there).
    """

    quantity: ClassVar[Quantity] = LOG10_P_FAIL
    needs: ClassVar[frozenset[Need]] = frozenset({"logits", "gradients"})
    needs_noise: ClassVar[frozenset[NoiseNeed]] = frozenset({"random", "differentiable"})
    summary: ClassVar[str] = "probability of a rare failure, by sampling around the likeliest failures"
    prefer: ClassVar[str] = "smooth networks with gradients: tighter than splitting at fewer passes; checked by a small splitting"
    source: ClassVar[str] = "Schueller and Stix 1987; robaudit for the check"
    interval: ClassVar[Interval] = Interval(IntervalKind.WEIGHTED_SAMPLE)

    samples: int = Field(10_000, ge=10, le=10**8, description="draws around the design points")
    particles: int = Field(100, ge=20, le=10**5, multiple_of=10, description="noisy copies in each run of the splitting that checks")
    repeats: int = Field(4, ge=4, le=100, description="runs of that splitting")
    moves: int = Field(10, ge=1, le=1000, description="its moves of every copy at each level")
    p_min: float = Field(1e-12, ge=1e-100, le=1e-2, description="smaller probabilities are bounded, not measured")
    steps: int = Field(20, ge=1, le=1000, description="gradient steps to each design point")
    classes: int = Field(9, ge=1, le=10**4, description="the most classes whose design points are searched for")
    check: bool = Field(True, description="run the splitting that finds further points and checks; rows without it say so")

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, the sample, the searches, and what splitting takes to 1e-6 (or p_min); not known exactly in advance."""
        levels = min(6, math.ceil(-math.log10(self.p_min)))
        searches = self.steps * (min(self.classes, classes - 1) + PARTICLE_STARTS * self.check)
        splitting = self.repeats * self.particles * (1 + self.moves * levels) if self.check else 0
        return 1 + self.samples + searches + splitting, searches

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Split, search, sample, compare."""
        schedule = Schedule(self.particles, self.moves, self.p_min, work.engine.rows(work.x.shape[1:]))
        images = range(len(work.x))
        lanes: list[list[Lane]] = [[] for _ in images]
        if self.check:
            lanes = run_splitting(work, images, self.repeats, schedule, "importance check", keep=self.particles)
        points = self._design_points(work, [self._starts(work, image, lanes[image]) for image in images])
        estimates = []
        for image in images:
            checked = verdict(lanes[image], schedule) if self.check else None
            sampled = None
            if checked is None or not checked.bounded:
                sampled = self._sampled(work, image, lanes[image], points[image], checked)
            estimates.append(self._estimate(checked, sampled, len(points[image])))
        return estimates

    def _starts(self, work: Work, image: int, lanes: Sequence[Lane]) -> tuple[Tensor, Tensor]:
        """Starting points (rows, d) and the class searched for from each (rows,)."""
        values = math.prod(work.latent_shape)
        nearest = work.clean.margins[image].argsort(stable=True)[: self.classes]
        points, classes = [work.x.new_zeros(len(nearest), values)], [work.others[image][nearest]]
        each = -(-PARTICLE_STARTS // max(1, len(lanes)))
        for lane in lanes:
            if lane.failing is not None and lane.failing_labels is not None:
                known = lane.failing_labels >= 0
                points.append(lane.failing[known][:each].flatten(1))
                classes.append(lane.failing_labels[known][:each])
        return torch.cat(points), torch.cat(classes)

    def _design_points(self, work: Work, starts: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """What the searches end at, image by image."""
        counts = [len(points) for points, _ in starts]
        image = torch.arange(len(counts), device=work.x.device).repeat_interleave(torch.tensor(counts, device=work.x.device))
        other = torch.cat([classes for _, classes in starts])[:, None]
        target, shape = work.clean.predicted, work.latent_shape
        rows = work.engine.gradient_rows(work.x.shape[1:], 1)

        def slope(u: Tensor) -> tuple[Tensor, Tensor]:
            values, slopes = torch.empty(len(u), dtype=torch.float64, device=u.device), torch.empty_like(u)
            for part in torch.arange(len(u), device=u.device).split(rows):
                full = padded(part, rows)
                model = _of_normals(work, image[full])
                _, g, gradients = margin_gradients(model, u[full].view(-1, *shape), target[image[full]], other[full])
                values[part], slopes[part] = g[: len(part), 0].double(), gradients[: len(part), 0]
            return values, slopes

        return list(search(slope, torch.cat([points for points, _ in starts]), self.steps).split(counts))

    def _sampled(self, work: Work, image: int, lanes: Sequence[Lane], points: Tensor, checked: Verdict | None) -> _WeightedSample:
        """The weighted sample of an image."""
        mix = mixture(points, self.samples)
        judge, lane = Judge(work, [image]), torch.zeros(1, dtype=torch.int64, device=work.x.device)
        result = sample(lambda u: judge(u, lane.expand(len(u))), work.normals("importance", image, self.samples), mix)
        foretold = None
        if checked is not None:
            failing = torch.cat([one.failing.flatten(1) for one in lanes if one.failing is not None])
            ratios = torch.cat([mix.log_ratio(part) for part in failing.split(64)])
            foretold = relative_error_at(ratios, checked.value * LN10, self.samples)
        beta = float(mix.points[0].square().cumsum(0)[-1].sqrt()) if len(mix.points) else math.nan
        return _WeightedSample(result, len(mix.points), beta, foretold, len(points))

    def _estimate(self, checked: Verdict | None, sampled: _WeightedSample | None, searches: int) -> Estimate:
        backwards = self.steps * searches
        forwards = 1 + backwards + (0 if checked is None else checked.calls) + (0 if sampled is None else self.samples)
        if sampled is None:
            if checked is None:
                raise AssertionError("without a splitting there is a sample")
            return _of_splitting(checked, checked.said(), {}, forwards, backwards)
        details = _details(sampled, checked)
        limits = _interval(sampled)
        why = "" if checked is None else _refusal(sampled, checked, limits)
        if checked is not None and why:
            note = f"importance sampling refused ({why}): this is its own splitting" + (f"; {checked.note}" if checked.note else "")
            return _of_splitting(checked, note, details | {"refused": 1.0}, forwards, backwards)
        if limits is None:  # unchecked, and nothing failed: no more is known than from the draws of N(0, I)
            bound = math.log10(1 - 0.05 ** (1 / max(1, math.ceil(self.samples / 10))))
            note = "no draw failed: an upper bound from the draws of the noise itself"
            return Estimate(
                bound, None, forwards, backwards, -math.inf, bound, None, Interval(IntervalKind.UPPER_BOUND), note, None, details
            )
        notes = ["unchecked: failure regions away from the design points are not seen"] if checked is None else []
        if sampled.result.ess < _FEW_EFFECTIVE:
            notes.append(f"effective sample size {sampled.result.ess:.0f} only")
        classes = {label: weight for label, weight in sorted(sampled.result.labels.items()) if label >= 0}
        value, lower, upper, error = limits
        return Estimate(
            value=value,
            lower=lower,
            upper=upper,
            std_error=error,
            flips_to=max(classes, key=lambda label: classes[label]) if classes else None,
            forwards=forwards,
            backwards=backwards,
            interval=self.interval if checked is not None else replace(self.interval, remark="unchecked"),
            note="; ".join(notes),
            details=details,
        )


def _of_normals(work: Work, image: Tensor) -> Callable[[Tensor], Tensor]:
    """The logits as a function of the normal variables, for images of the chunk."""
    model = work.model
    return lambda z: model(work.pixels(image, z))


def _interval(sampled: _WeightedSample) -> tuple[float, float, float, float] | None:
    """Value, ends and standard error on the scale log10, by the larger of the errors measured and foretold; None without a failure."""
    if not sampled.result.p:
        return None
    error = max(sampled.result.std_error / sampled.result.p, sampled.foretold or 0.0) / LN10
    value = min(0.0, math.log10(sampled.result.p))
    return value, value - 1.96 * error, min(0.0, value + 1.96 * error), error


def _refusal(sampled: _WeightedSample, checked: Verdict, limits: tuple[float, float, float, float] | None) -> str:
    """Why the sample is not to be trusted beside the splitting, or nothing: the rules of :class:`Importance`."""
    if limits is None or sampled.foretold is None or checked.std_error is None:
        return "none of its draws failed"
    if sampled.result.ess < _TOO_FEW_EFFECTIVE:
        return f"effective sample size {sampled.result.ess:.1f}"
    claimed = sampled.result.std_error / sampled.result.p
    if sampled.foretold > _SURPRISE * max(claimed, 1 / math.sqrt(sampled.result.failed)):
        return f"its design points miss failures: relative error {claimed:.2g} claimed, {sampled.foretold:.2g} foretold by splitting"
    if limits[3] > checked.std_error:
        return f"relative error {limits[3] * LN10:.2g}, that of splitting {checked.std_error * LN10:.2g}"
    if limits[1] > checked.upper or limits[2] < checked.lower:
        return f"its interval [{limits[1]:.2f}, {limits[2]:.2f}] and that of splitting do not overlap"
    return ""


def _of_splitting(checked: Verdict, note: str, details: dict[str, float], forwards: int, backwards: int) -> Estimate:
    return Estimate(
        value=checked.value,
        lower=checked.lower,
        upper=checked.upper,
        std_error=checked.std_error,
        flips_to=checked.flips_to,
        forwards=forwards,
        backwards=backwards,
        interval=checked.interval,
        note=note,
        details=checked.details | details,
    )


def _details(sampled: _WeightedSample, checked: Verdict | None) -> dict[str, float]:
    details = {"ess": round(sampled.result.ess, 1), "failed": sampled.result.failed, "points": sampled.points}
    if sampled.points:
        details["beta"] = sampled.nearest
    if sampled.result.p:
        details |= {"log10_p_importance": math.log10(sampled.result.p), "error_claimed": sampled.result.std_error / sampled.result.p}
    if checked is not None:
        details["log10_p_splitting"] = checked.value
    if sampled.foretold is not None:
        details["error_foretold"] = sampled.foretold
    return details
