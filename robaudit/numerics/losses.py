"""The logarithm of the cross-entropy, and its gradient, without the underflow of the cross-entropy itself."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.rowwise import total

_TINY = -15.0  # below, log CE = s - e^s / 2 to 1e-14


def log_cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """log CE(f, t) and its gradient with respect to the logits f.

    With s = log sum_{j != t} e^f_j - f_t the cross-entropy is log(1 + e^s). In float32 it is 0 as soon as s < -16.6, and log(CE + 1e-10)
    has a gradient that explodes there; log CE is about s itself and its derivative r(s) = sigma(s) / log(1 + e^s) tends to 1.

    Args:
        logits: (n, classes), two classes at least.
        target: class indices t (n,).

    Returns:
        log CE (n,) and d log CE / d f (n, classes), float64; both are NaN where a logit is not finite.

    Source: Rice et al., Robustness between the worst and average case, for the loss; the forms are robaudit's.
    """
    f = logits.double()
    column = target[:, None]
    others = f.scatter(1, column, -torch.inf)
    highest = others.max(1, keepdim=True).values
    weights = torch.exp(others - highest)
    mass = total(weights)[:, None]
    s = highest + torch.log(mass) - f.gather(1, column)
    tiny = s < _TINY
    e = torch.exp(-s.abs())
    ce = s.clamp_min(0) + torch.log1p(e)
    value = torch.where(tiny, s - e / 2, torch.log(torch.where(tiny, 1.0, ce)))
    rate = torch.where(tiny, 1 - e / 2, torch.where(s > 0, 1.0, e) / (1 + e) / torch.where(tiny, 1.0, ce))
    gradient = rate * (weights / mass).scatter(1, column, -1.0)
    finite = f.isfinite().all(1)
    return torch.where(finite, value[:, 0], torch.nan), torch.where(finite[:, None], gradient, torch.nan)
