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

FEW = 10.0
"""The row has a note if the effective sample size is below this."""
_TWO_SIDED = 1.959963984540054


class QNormMc(QNorm):
    """log Z_q = [log sum_i l_i^q - log m] / q over m noisy copies, all in log space.

    `mc` uses the same copies. ESS = (sum l^q)^2 / sum l^2q falls quickly as q grows: at q = 100 a handful of copies dominate the sum,
    and the value is near the largest loss seen, far below Z_q, which no interval from the copies shows. A row with ESS < 10 says so.

    Source: Rice et al., Robustness between the worst and average case, equation 6; Kong 1992 for the effective sample size.
    """

    needs, interval = Need.LEVEL | Need.RANDOM, Interval(IntervalKind.LOGNORMAL, covers_bias=False)
    summary = "q-norm of the loss under noise, from noisy copies"
    prefer = "small q (1 to 10), or a model without gradients; larger q are biased low: use qnorm_path"
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
        values = []
        for q in self.q:
            log_z, ess = log_norm(log_loss, q)
            error = ((1 / ess - 1 / self.samples).clamp_min(0)).sqrt() / q
            values.append(torch.stack([log_z, error, ess], dim=1).tolist())
        return [
            tuple(
                Result(
                    value=math.exp(log_z),
                    lower=math.exp(log_z - _TWO_SIDED * error),
                    upper=math.exp(log_z + _TWO_SIDED * error),
                    std_error=math.exp(log_z) * error,
                    forwards=1 + self.samples,
                    interval=self.interval,
                    note=f"effective sample size {ess:.1f}: too small for q = {q:g}" if ess < FEW else "",
                    loss=LossNorm(against, math.exp(most)),
                    numbers={"log_value": log_z, "ess": ess},
                )
                for q, (log_z, error, ess) in zip(self.q, of_image, strict=True)
            )
            for *of_image, most, against in zip(*values, highest.tolist(), target.tolist(), strict=True)
        ]
