"""The log of the cross-entropy, its gradient and its q-norm, without the underflow of the
cross-entropy itself."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.margins import NEVER
from robaudit.numerics.rowwise import total

# below, e^s underflows and log CE = s; above, CE = s. Elsewhere s < CE and log CE < s
_TINY = -700.0
_LARGE = 40.0


def log_cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """log CE(f, t) and its gradient with respect to the logits f.

    With s = log sum_{j != t} e^f_j - f_t the cross-entropy is log(1 + e^s). In float32 it is 0 for
    s < -16.6, and the gradient of log(CE + 1e-10) explodes; log CE is about s itself and its
    derivative r(s) = sigma(s) / log(1 + e^s) tends to 1.

    Args:
        logits: (n, classes), at least two classes.
        target: class indices t (n,).

    Returns:
        log CE (n,) and d log CE / d f (n, classes), float64; both are NaN if a logit is not finite,
        or the target never wins.

    Source: Rice et al., Robustness between the worst and average case, for the loss; the formulas
    are robaudit's.
    """
    f = logits.double()
    f = f + (f - f)  # NaN where a logit is not finite, which propagates
    column = target[:, None]
    own = f.gather(1, column)
    own = torch.where(own <= NEVER, torch.nan, own)  # its loss is infinite
    others = f.scatter(1, column, -torch.inf)
    shares = others.softmax(1)
    s = others.amax(1, keepdim=True).sub_(shares.amax(1, keepdim=True).log_()).sub_(own)
    ce = torch.maximum(s.clamp(_TINY, _LARGE).exp_().log1p_(), s)
    value = torch.minimum(ce.log(), s)
    less = ce.neg_()
    rate = less.expm1().div_(less)  # sigma(s) = 1 - e^-CE
    return value[:, 0], shares.scatter_(1, column, -1.0).mul_(rate)


class LogNorm(NamedTuple):
    """The q-norm of the losses of noisy copies, (images,) each, float64.

    Attributes:
        value: log Z_q.
        ess: the effective sample size of the sum of l^q.
        largest: the share of the largest term in that sum.
    """

    value: Tensor
    ess: Tensor
    largest: Tensor


def log_norm(log_loss: Tensor, q: float) -> LogNorm:
    """The q-norm from log l (images, copies), float64."""
    highest = log_loss.amax(1, keepdim=True)
    weights = torch.exp(q * (log_loss - highest))
    mass = total(weights)
    value = highest[:, 0] + torch.log(mass / log_loss.shape[1]) / q
    return LogNorm(value, mass.square() / total(weights.square()), 1 / mass)
