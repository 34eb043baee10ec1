"""`splitting`: how probable is a failure that no affordable number of noisy copies shows?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from robaudit.estimators import sizes
from robaudit.estimators.base import LOG10_P_FAIL, Estimate, Estimator, Need, Quantity
from robaudit.estimators.rare import particle_bytes, run_splitting, verdict
from robaudit.estimators.work import Work
from robaudit.numerics.splitting import Schedule


class Splitting(Estimator):
    """log10 P[score(z) >= 0], score = max_{j != t} f_j - f_t at x + sigma z, z ~ N(0, I), by multilevel splitting.

    A rare failure is a product of shares that are not rare: of N noisy copies the tenth with the highest scores survives, is cloned and
    moved by pCN steps that keep the noise normal and the score above the level, and so on until a tenth fails
    (:func:`robaudit.numerics.splitting.split`). ``repeats`` independent runs give p (their mean, which is unbiased when the copies at a
    level are independent) and an interval for lognormal p. An image that fails in a tenth of its copies at once gets plain Monte Carlo.

    The interval covers sampling and how the moves mix, as far as the repeats differ; not a failure region that none of them found.

    Args:
        particles: N of each run.
        repeats: independent runs.
        moves: pCN moves of every copy at each level.
        p_min: probabilities below are not measured but bounded: the row holds the bound and says so.

    Source: spec 5; Webb et al. 2019, A statistical approach to assessing neural network robustness; Cerou et al. 2012.
    """

    quantity: ClassVar[Quantity] = LOG10_P_FAIL
    needs: ClassVar[frozenset[Need]] = frozenset({"logits"})
    summary: ClassVar[str] = "probability of a rare failure, as a product of probabilities that are not rare"
    prefer: ClassVar[str] = "very robust images (p_fail below 1e-4), where mc sees no failure; thousands of passes for each factor of ten"
    source: ClassVar[str] = "Webb et al. 2019; Cerou et al. 2012"
    interval: ClassVar[str] = "lognormal:repeats"

    particles: int = Field(500, ge=20, le=10**5, multiple_of=10, description="noisy copies in each run")
    repeats: int = Field(4, ge=4, le=100, description="independent runs of each image, for the interval")
    moves: int = Field(10, ge=1, le=1000, description="moves of every copy at each level")
    p_min: float = Field(1e-12, ge=1e-100, le=1e-2, description="smaller probabilities are bounded, not measured")

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and what a failure probability of 1e-6 (or p_min) takes; the number is not known beforehand."""
        levels = min(6, math.ceil(-math.log10(self.p_min)))
        return 1 + self.repeats * self.particles * (1 + self.moves * levels), 0

    def held(self, classes: int, values: int) -> int:
        """The results of the runs."""
        return sizes.RECORD + 1024 * self.repeats

    def held_once(self, classes: int, values: int) -> int:
        """The particles of the runs that go in lock-step."""
        return sizes.WORK_SPACE + particle_bytes(self.particles, values)

    def schedule(self, work: Work) -> Schedule:
        """The options, with full batches."""
        return Schedule(self.particles, self.moves, self.p_min, work.engine.rows(work.x.shape[1:]))

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """All runs of the chunk, and what they say image by image."""
        schedule = self.schedule(work)
        found = [verdict(lanes, schedule) for lanes in run_splitting(work, range(len(work.x)), self.repeats, schedule, "splitting")]
        return [
            Estimate(
                value=one.value,
                lower=one.lower,
                upper=one.upper,
                std_error=one.std_error,
                flips_to=one.flips_to,
                forwards=1 + one.calls,
                backwards=0,
                interval=one.interval,
                note=one.note,
                details=one.details,
            )
            for one in found
        ]
