"""`noise_tolerance`: the largest noise level at which an image keeps its class with a given
probability."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.errors import SpecError
from robaudit.levels import LevelName
from robaudit.methods.average_case.level_search import (
    KEPT,
    DrawRequest,
    SearchPlan,
    Tolerance,
    find_tolerance,
    run_all,
)
from robaudit.noise.noise import AdditiveNoise, Noise, Shape, shape_of
from robaudit.noise.process import DrawPool
from robaudit.numerics.margins import ease
from robaudit.quantities import TOLERANCE, Interval, IntervalKind
from robaudit.results import CleanImage, Result, Searched

_ORDER_STATISTICS = Interval(IntervalKind.OTHER, remark="order-statistics")


class NoiseTolerance(Estimator):
    """t* = the level at which P[argmax f(noisy x) = argmax f(x)] falls below ``level``, in the unit
    of the noise's level.

    With ``uniform`` noise it is the isotropic trade-off eps*(alpha) of Giraudon et al., alpha = 1 -
    level, in the ball of its norm.

    Draw j uses the same normal variables at every level, as in ``mc``, so it flips at a level of
    its own, and t* is the (1 - level)-quantile of these levels. The 95 % interval lies between two
    order statistics: it needs no model of how p depends on the level, and holds at all looks
    together (:func:`robaudit.methods.average_case.level_search.find_tolerance` has the proof, also
    for draws that flip back). Nearly all draws need a pass at a single level only.

    p need not fall as the level rises: with much noise a network may see one class everywhere, and
    shifts jump by pixels. The value is *a crossing*: p is at least ``level`` just below it and less
    just above; it is the first crossing as far as 16 draws at each octave can tell.

    If p is still above ``level`` at ``cap``, the row is censored: its value is the cap, and the
    tolerance is larger. If p is already below at the smallest level searched, cap / 8192, the value
    is 0. For noise that is not additive the default of ``cap`` is the largest level, halved until
    it is valid for the image. If ``most`` passes do not suffice, the interval comes from the last
    complete look, and a note says so.

    Source: Giraudon, Gripon, Loewe and Vermet, Intrinsic robustness (isotropic trade-off);
    intervals of quantiles: Thompson 1936.
    """

    quantity = TOLERANCE
    needs = Need.NOISE | Need.RANDOM | Need.INPUT
    interval = _ORDER_STATISTICS
    summary = "the largest noise level that keeps the class with probability `level`"
    prefer = (
        "how much noise an image can take, in the noise's own unit, rather than what a "
        "chosen level does to it"
    )
    source = "Giraudon et al., isotropic trade-off"

    level: float = Field(0.95, gt=0.5, le=0.9999, description="probability to keep the class")
    tolerance: float = Field(
        0.1, ge=0.001, le=1, description="relative width of the interval at which an image is done"
    )
    most: int = Field(50_000, ge=1000, le=10**7, description="the most passes for an image")
    cap: float | None = Field(
        None, gt=0, description="the largest level searched; default: a standard deviation of 1"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, and typical passes of the search."""
        # The number does not depend on the cap or the smallest level.
        return 1 + self._plan(1.0, 0.0).usual_passes, 0

    @property
    def rows_at_once(self) -> int:
        """The draws of a late request of a search."""
        return 8  # requests are filled up to a multiple of it

    def unfit(self, form: Noise, level: float | None = None) -> str:
        """Refuse noise with whole-numbered levels, and noise whose levels fall as it grows."""
        if form.whole:
            return "its levels are whole numbers, and a tolerance lies between them"
        if form.level_name is LevelName.PHOTONS:
            return "fewer photons are more noise, and the search goes upwards"
        if self.cap is not None and not form.least < self.cap <= form.most:
            return f"cap {self.cap:g} is outside its levels, {form.least:g} to {form.most:g}"
        return ""

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Search all images side by side."""
        plan = self._plan(self.largest(batch), batch.noise.least)
        # None on the CPU; on CUDA it holds draws, so that choosing among them takes one launch.
        pool = batch.engine.pool(batch.x, batch.ids, batch.at.noise)
        predicted: NDArray[np.int64] = batch.predicted.cpu().numpy()

        def answer(
            images: Sequence[int], requests: Sequence[DrawRequest]
        ) -> list[NDArray[np.int64]]:
            answers = _results(batch, images, requests, predicted, pool)
            for image, results in zip(images, answers, strict=True):
                batch.lost[image] += int((results == batch.classes).sum())
            return answers

        tolerances = run_all([find_tolerance(plan) for _ in batch.ids], answer)
        eases = ease(batch.logits, batch.predicted)
        rows = enumerate(zip(tolerances, eases, strict=True))
        return [
            self._result(plan, tolerance, batch.lost[image], batch.classes, *difficulty_and_margin)
            for image, (tolerance, difficulty_and_margin) in rows
        ]

    def largest(self, batch: ImageBatch) -> float:
        """The cap for these images.

        Raises:
            SpecError: the cap is not valid for images of this size.
        """
        shape = shape_of(batch.x)
        form = batch.noise
        if self.cap is not None:
            form.check(shape, [self.cap])
            return self.cap
        if isinstance(form, AdditiveNoise):
            # the level with a standard deviation of 1, the range of the pixels
            deviation = batch.engine.noises[batch.at.noise].amplitude(1.0, shape)
            return min(form.most, form.shrunk(1.0, 1.0 / deviation))
        return _largest_possible(form, shape)

    def _plan(self, cap: float, least: float) -> SearchPlan:
        return SearchPlan(self.level, self.tolerance, self.most, cap, least)

    def _remarks(self, plan: SearchPlan, result: Tolerance) -> list[str]:
        """What the row notes."""
        remarks = []
        if result.censored:
            remarks.append(f"p is above {self.level:g} at the cap, {plan.cap:g}")
        if 0 < result.lower < plan.cap and math.isinf(result.upper):
            remarks.append(f"undecided at the cap, {plan.cap:g}")
        if result.upper <= plan.floor:
            remarks.append(
                f"p is below {self.level:g} at the smallest level searched, {plan.floor:.3g}"
            )
        if not result.reached and result.non_monotone:
            remarks.append("undecided: many draws flip back as the level rises")
        elif not result.reached:
            remarks.append(f"undecided: the tolerance was not reached in {self.most} passes")
        return remarks

    def _result(
        self,
        plan: SearchPlan,
        result: Tolerance,
        lost: int,
        classes: int,
        difficulty: float,
        margin: float,
    ) -> Result:
        """The row's result.

        Args:
            plan: the search.
            result: what it found.
            lost: copies with non-finite logits.
            classes: their number.
            difficulty, margin: of the clean image.
        """
        numbers = {
            "samples": result.samples,
            "checked": result.checked,
            "reversals": result.reversals,
        }
        if lost:
            numbers["not_finite"] = lost
        return Result(
            value=result.value,
            lower=result.lower,
            upper=result.upper,
            std_error=result.std_error,
            # Non-finite logits count as a class of their own in the search.
            flips_to=None if result.flips_to == classes else result.flips_to,
            forwards=1 + result.passes,
            interval=Interval(IntervalKind.CENSORED) if result.censored else self.interval,
            note="; ".join(self._remarks(plan, result)),
            search=Searched(p=self.level),
            clean=CleanImage(margin, difficulty),
            numbers=numbers,
        )


def _results(
    batch: ImageBatch,
    images: Sequence[int],
    requests: Sequence[DrawRequest],
    predicted: NDArray[np.int64],
    pool: DrawPool | None,
) -> list[NDArray[np.int64]]:
    """Answer the requests of some images in shared passes.

    Args:
        batch: the chunk.
        images: the image of each request.
        requests: levels and draws.
        predicted: the class of each clean image (images,).
        pool: draws that several levels share.

    Returns:
        For each request the class that each draw flips to; ``KEPT`` without a flip, and the number
        of classes if its logits are not finite.
    """
    levels = [request.level for request in requests]
    draws = [request.draws for request in requests]
    batches = batch.engine.chosen_logits(
        batch.x, batch.ids, batch.at.noise, images, levels, draws, pool
    )
    winners = torch.cat(
        [
            torch.where(logits.isfinite().all(1), logits.argmax(1), batch.classes)
            for logits in batches
        ]
    )
    winning: NDArray[np.int64] = winners.cpu().numpy()
    sizes = [len(numbers) for numbers in draws]
    unchanged = winning == np.repeat(predicted[list(images)], sizes)
    results: NDArray[np.int64] = np.where(unchanged, KEPT, winning)
    return np.split(results, np.cumsum(sizes)[:-1])


def _largest_possible(form: Noise, shape: Shape) -> float:
    """The largest level, halved until it is valid for images of this shape."""
    # Only the noise knows which levels an image of this size allows, and says so by an error.
    cap = float(form.most)
    while math.isfinite(cap) and cap / 2 > form.least:
        try:
            form.check(shape, [cap])
        except SpecError:
            cap /= 2
        else:
            break
    return cap
