"""`auto`: the estimator chosen image by image, after a first look at each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field

from robaudit.estimators.base import Estimate, Estimator, Need
from robaudit.estimators.logit_gaussian import LogitGaussian, SkewReview
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.splitting import Splitting, Verdict
from robaudit.estimators.work import Work
from robaudit.quantities import P_ROBUST, Interval, IntervalKind, Quantity


class Auto(Estimator):
    """P[argmax f(x + eps) = argmax f(x)], with the estimator chosen for each image; ``note`` names it.

    All images begin with ``logit_gaussian``. Then

    - an image whose interval contains ``decide`` is *near the threshold*: ``mc`` with fresh draws until its confidence sequence lies
      on one side (or ``max_samples``);
    - with ``rare``, one whose failure probability is below ``rare_below`` by the normal fit, and of whose copies none flipped, is *too
      robust to see*: ``splitting`` measures it, and value = 1 - p_fail (``details.log10_p_fail`` holds what a float near 1 cannot);
    - the others are *easy* and stop.

    A value for every image at few passes, and exact intervals where a decision hangs on them. (``mc`` with ``decide`` alone takes about
    as many passes, but leaves images far from the threshold with an interval like [.9, 1].) An easy image's interval covers sampling only,
    and the image was called easy only because that interval does not contain it: where every image matters, use ``mc``.

    Args:
        samples: copies for the first look (a multiple of 16).
        decide: the threshold that matters.
        max_samples: the most copies that ``mc`` spends on an image near it.
        rare: measure the failure probability of very robust images (thousands of passes each).
        rare_below: failure probability from which on an image is too robust to see.
        p_min: with ``rare``: smaller ones are bounded, not measured.

    Source: robaudit; the three estimators name theirs.
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits"})
    summary: ClassVar[str] = "per image: logit_gaussian, mc near a threshold, splitting where nothing fails"
    prefer: ClassVar[str] = (
        "each image is to be decided against a threshold, and its value is wanted, too; its rows say which estimator was used"
    )
    source: ClassVar[str] = "robaudit"
    interval: ClassVar[Interval] = Interval(IntervalKind.VARIES)

    samples: int = Field(64, ge=16, le=10**6, multiple_of=16, description="noisy copies of each image for the first look, a multiple of 16")
    decide: float = Field(0.9, gt=0, lt=1, description="threshold: images whose interval contains it are decided by mc")
    max_samples: int = Field(10_000, ge=16, le=10**8, description="the most copies that mc spends on an image near the threshold")
    rare: bool = Field(False, description="measure the failure probability of very robust images by splitting")
    rare_below: float = Field(1e-4, gt=0, le=0.1, description="with rare: failure probability below which splitting measures")
    p_min: float = Field(1e-12, ge=1e-100, le=1e-2, description="with rare: smaller probabilities are bounded, not measured")

    def passes(self, classes: int) -> tuple[int, int]:
        """The first look, and mc for a tenth of the images (the number is not known in advance); with rare, splitting for a half."""
        near = (self._near.passes(classes)[0] - 1) // 10
        return 1 + self.samples + near + (self._rare.passes(classes)[0] // 2 if self.rare else 0), 0

    def review(self) -> SkewReview:
        """Whether the margins of the images that stopped at the first look are skewed."""
        return SkewReview()

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """A first look at all images, then the estimator that it calls for."""
        first = list(self._first.estimate(work))
        predicted: list[int] = work.clean.predicted.tolist()
        rare = [b for b, (one, target) in enumerate(zip(first, predicted, strict=True)) if self._too_robust(one, target)]
        near = [b for b, one in enumerate(first) if b not in rare and self._undecided(one)]
        estimates = {b: _by("logit_gaussian", one) for b, one in enumerate(first)}
        if near:
            decided = zip(near, self._near.estimate(_some(work, near)), strict=True)
            estimates |= {b: _by("mc", replace(one, forwards=one.forwards + first[b].forwards - 1)) for b, one in decided}
        if rare:
            measured = zip(rare, self._rare.verdicts(_some(work, rare)), strict=True)
            estimates |= {b: _by("splitting", _kept(one, first[b].forwards + one.calls)) for b, one in measured}
        return [estimates[b] for b in range(len(first))]

    @property
    def _first(self) -> LogitGaussian:
        return LogitGaussian(samples=self.samples)

    @property
    def _near(self) -> MonteCarlo:
        return MonteCarlo(decide=self.decide, max_samples=self.max_samples)

    @property
    def _rare(self) -> Splitting:
        return Splitting(p_min=self.p_min)

    def _undecided(self, one: Estimate) -> bool:
        return one.lower is None or one.upper is None or one.lower < self.decide <= one.upper

    def _too_robust(self, one: Estimate, predicted: int) -> bool:
        return self.rare and 1 - one.value < self.rare_below and one.votes is not None and one.votes[predicted] == self.samples


def _kept(rare: Verdict, forwards: int) -> Estimate:
    """A failure probability on the scale log10 as the probability to keep the prediction."""
    failed = 10.0**rare.value
    return Estimate(
        value=1 - failed,
        lower=1 - min(1.0, 10.0**rare.upper),
        upper=1 - min(1.0, 10.0**rare.lower),
        std_error=None if rare.std_error is None else failed * rare.std_error * math.log(10),
        flips_to=rare.flips_to,
        forwards=forwards,
        backwards=0,
        interval=Interval(IntervalKind.LOWER_BOUND) if rare.bounded else rare.interval,
        note=rare.said("the value is a lower bound"),
        details={**rare.details, "log10_p_fail": rare.value},
    )


def _by(name: str, estimate: Estimate) -> Estimate:
    return replace(estimate, note="; ".join(filter(None, [f"by {name}", estimate.note])))


def _some(work: Work, images: Sequence[int]) -> Work:
    """A chunk of the given images only."""
    keep = torch.tensor(images, device=work.x.device)
    return Work([work.ids[b] for b in images], work.x[keep], work.labels[keep], work.at, work.clean.select(keep), work.engine)
