"""`qnorm_mc`: the q-norm of the loss by plain Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pydantic import Field

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Need
from robaudit.methods.intermediate_q.q_estimator import QNorm
from robaudit.numerics.log_losses import log_cross_entropy, log_norm
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import LossNorm, Result
from robaudit.spec.fields import SAMPLES_ARE_DRAWS

MOST = 0.02
"""The largest share of a single copy in the sum of l^q with which the row has an upper end.

Of the upper ends so given, .6 to 2.2 % are too low with 200 to 200,000 copies, of lognormal ends
everywhere 21 to 39 % (docs/research/intermediate_q.md).
"""
UNSEEN = 2.0
"""Copies as large as the largest that the upper end adds to those seen."""
_TWO_SIDED = 1.959963984540054  # Phi^-1(.975)


class QNormMc(QNorm):
    """log Z_q = [log sum_i l_i^q - log m] / q over m noisy copies, all in log space.

    `mc` uses the same copies. As q grows, ever fewer of them carry the sum. At q = 100 it is often
    a single one: the value is near the largest loss seen, far below Z_q, and the copies cannot tell
    how far. So the interval has no upper end where one copy carries more than 2 % of the sum
    (:data:`MOST`), and the row's note says so.

    Elsewhere the interval is lognormal. Its upper end counts two more copies as large as the
    largest (:data:`UNSEEN`): a sample has too few of the large losses more often than too many. It
    does not cover a bad region that no copy meets; that is the bias of the estimator.

    Source: Rice et al., Robustness between the worst and average case, equation 6; Kong 1992 for
    the effective sample size.
    """

    needs = Need.LEVEL | Need.RANDOM
    interval = Interval(IntervalKind.LOGNORMAL, covers_bias=False)
    summary = "q-norm of the loss under noise, from noisy copies"
    prefer = (
        "q of 1 or 2, or a model without gradients; for larger q it usually gives a lower "
        "bound: use qnorm_path"
    )
    source = "Rice et al., equation 6"

    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(2000, ge=2, le=10**7, description="noisy copies of each image")

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the copies."""
        return 1 + self.draws, 0

    def estimate(self, batch: ImageBatch) -> Sequence[tuple[Result, ...]]:
        """Every q from the same copies."""
        target = self.targets(batch)
        shape = (len(batch.x), self.draws)
        log_loss = torch.empty(shape, dtype=torch.float64, device=batch.x.device)
        for noisy, logits in batch.noisy_logits(self.draws):
            losses, _ = log_cross_entropy(logits, target[noisy.image])
            log_loss[noisy.image, noisy.draw] = losses
        highest = log_loss.amax(1)
        # for each q: log Z, effective sample size and largest share of each image
        norms = [torch.stack([*log_norm(log_loss, q)], dim=1).tolist() for q in self.q]
        rows = zip(*norms, highest.tolist(), target.tolist(), strict=True)
        results = []
        for *image_norms, log_highest, target_class in rows:
            loss = LossNorm(target_class, math.exp(log_highest))
            by_order = zip(self.q, image_norms, strict=True)
            results.append(tuple(self._result(q, *norm, loss=loss) for q, norm in by_order))
        return results

    def _result(
        self, q: float, log_z: float, ess: float, largest: float, *, loss: LossNorm
    ) -> Result:
        """The result for one q.

        Args:
            q: the order.
            log_z, ess, largest: see :class:`~robaudit.numerics.log_losses.LogNorm`.
            loss: target and maximum of the copies' losses.
        """
        value = math.exp(log_z)
        # Delta method: the squared coefficient of variation of l^q is draws / ess - 1, its mean
        # over the draws has 1 / ess - 1 / draws, and log Z is the logarithm of that mean over q.
        error = math.sqrt(max(0.0, 1 / ess - 1 / self.draws)) / q
        half_width = _TWO_SIDED * error
        # two more copies like the largest would raise the sum of l^q by so much, and log Z so far
        unseen = math.log1p(UNSEEN * largest) / q
        upper: float | None = math.exp(log_z + half_width + unseen)
        std_error: float | None = value * error
        note = ""
        if largest > MOST:
            upper = None
            std_error = None
            share = f"{100 * largest:.0f} %"
            note = f"no upper end: one of {self.draws:,} copies carries {share} of the sum"
        return Result(
            value=value,
            lower=math.exp(log_z - half_width),
            upper=upper,
            std_error=std_error,
            forwards=1 + self.draws,
            interval=self.interval,
            note=note,
            loss=loss,
            numbers={"log_value": log_z, "ess": ess, "largest_share": largest},
        )
