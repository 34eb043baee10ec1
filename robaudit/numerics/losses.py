"""The logarithm of the cross-entropy, its gradient and its q-norm, without the underflow of the cross-entropy itself."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.rowwise import total

_TINY = -700.0  # below, e^s underflows, and log CE = s
_LARGE = 40.0  # above, CE = s


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
    f = f + (f - f)  # NaN where a logit is not finite, and so is all that is made of it
    column = target[:, None]
    others = f.scatter(1, column, -torch.inf)
    highest = others.amax(1, keepdim=True)
    weights = others.sub_(highest).exp_()
    mass = total(weights)[:, None]
    s = torch.log(mass).add_(highest).sub_(f.gather(1, column))
    tiny, bounded = s < _TINY, s.clamp_max(_LARGE)
    e = bounded.exp()
    ce = e.log1p().add_(s - bounded)
    value = torch.where(tiny, s, ce.log())
    rate = torch.where(tiny, 1.0, (e / (1 + e)).div_(ce))
    return value[:, 0], weights.div_(mass).scatter_(1, column, -1.0).mul_(rate)


def log_norm(log_loss: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """log Z_q (images,) and the effective sample size of its sum, from log l (images, copies); float64."""
    highest = log_loss.amax(1, keepdim=True)
    weights = torch.exp(q * (log_loss - highest))
    mass = total(weights)
    return highest[:, 0] + torch.log(mass / log_loss.shape[1]) / q, mass.square() / total(weights.square())
