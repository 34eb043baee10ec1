"""`qnorm_mc`: the q-norm of the loss by plain Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pydantic import Field

from robaudit.estimators.base import Need
from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.losses import QNorm
from robaudit.numerics.losses import log_cross_entropy, log_norm
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import LossNorm, Result

MOST = 0.02
"""The largest share of a single copy in the sum of l^q with which the row has an upper end."""
UNSEEN = 2.0
"""Copies as large as the largest that the upper end adds to the sum, for larger ones that were not drawn."""
_TWO_SIDED = 1.959963984540054


class QNormMc(QNorm):
    """log Z_q = [log sum_i l_i^q - log m] / q over m noisy copies, all in log space.

    `mc` uses the same copies. As q grows, ever fewer of them carry the sum: at q = 100 often a single one, and the value is near the
    largest loss seen, far below Z_q. Copies cannot tell how much they have not seen. So the interval has no upper end where a single copy
    carries more than 2 % of the sum (:data:`MOST`), and the row's note says so. Elsewhere it is lognormal, and its upper end counts two
    more copies as large as the largest (:data:`UNSEEN`), as large losses are more often missing from the copies than too many of them. It
    does not cover a bad region that no copy meets: that is its bias.

    Source: Rice et al., Robustness between the worst and average case, equation 6; Kong 1992 for the effective sample size.
    """

    needs, interval = Need.LEVEL | Need.RANDOM, Interval(IntervalKind.LOGNORMAL, covers_bias=False)
    summary = "q-norm of the loss under noise, from noisy copies"
    prefer = "q of 1 or 2, or a model without gradients; for larger q it usually gives a lower bound: use qnorm_path"
    source = "Rice et al., equation 6"

    samples: int = Field(2000, ge=2, le=10**7, description="noisy copies of each image")

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and the copies."""
        return 1 + self.samples, 0

    def estimate(self, batch: ImageBatch) -> Sequence[tuple[Result, ...]]:
        """Every q from the same copies."""
        target = self.targets(batch)
        log_loss = torch.empty((len(batch.x), self.samples), dtype=torch.float64, device=batch.x.device)
        for noisy, logits in batch.noisy_logits(self.samples):
            log_loss[noisy.image, noisy.draw] = log_cross_entropy(logits, target[noisy.image])[0]
        highest = log_loss.amax(1)
        norms = [torch.stack([*log_norm(log_loss, q)], dim=1).tolist() for q in self.q]
        return [
            tuple(self._result(q, *norm, loss=LossNorm(against, math.exp(most))) for q, norm in zip(self.q, of_image, strict=True))
            for *of_image, most, against in zip(*norms, highest.tolist(), target.tolist(), strict=True)
        ]

    def _result(self, q: float, log_z: float, ess: float, largest: float, *, loss: LossNorm) -> Result:
        """The result for one q; ``ess`` and ``largest`` as in :class:`~robaudit.numerics.losses.LogNorm`."""
        error = math.sqrt(max(0.0, 1 / ess - 1 / self.samples)) / q
        value = math.exp(log_z)
        enough = largest <= MOST
        note = ""
        if largest > MOST:
            note = f"no upper end: one of {self.samples:,} copies carries {100 * largest:.0f} % of the sum"
        return Result(
            value=value,
            lower=math.exp(log_z - _TWO_SIDED * error),
            upper=math.exp(log_z + _TWO_SIDED * error + math.log1p(UNSEEN * largest) / q) if enough else None,
            std_error=value * error if enough else None,
            forwards=1 + self.samples,
            interval=self.interval,
            note=note,
            loss=loss,
            numbers={"log_value": log_z, "ess": ess, "largest_share": largest},
        )
