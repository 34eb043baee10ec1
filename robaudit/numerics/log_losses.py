"""The log of the cross-entropy, its gradient and its q-norm, without the underflow of the
cross-entropy itself."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.margins import NEVER
from robaudit.numerics.rowwise import total

# CE = log(1 + e^s). Below _TINY e^s underflows, and log CE = s. Above _LARGE log(1 + e^s) = s to
# the last bit, and e^s might overflow.
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
    # f - f is 0, or NaN where a logit is not finite; the NaN spreads over its row.
    f = f + (f - f)
    column = target[:, None]
    own = f.gather(1, column)
    # A target that never wins has an infinite loss.
    own = torch.where(own <= NEVER, torch.nan, own)
    others = f.scatter(1, column, -torch.inf)
    # d s / d f_j for j != t: the softmax over the other classes.
    shares = others.softmax(1)
    # log sum_j e^f_j = max f - log(largest share).
    log_largest_share = shares.amax(1, keepdim=True).log_()
    log_sum = others.amax(1, keepdim=True).sub_(log_largest_share)
    s = log_sum.sub_(own)
    # Everywhere s < CE and log CE < s but for rounding and the clamps, so maximum and minimum pick
    # the right branch.
    ce = torch.maximum(s.clamp(_TINY, _LARGE).exp_().log1p_(), s)
    value = torch.minimum(ce.log(), s)
    # sigma(s) = 1 - e^-CE, so r(s) = (1 - e^-CE) / CE, which does not cancel for small CE.
    minus_ce = ce.neg_()
    rate = minus_ce.expm1().div_(minus_ce)
    # d s / d f_t = -1.
    gradient = shares.scatter_(1, column, -1.0).mul_(rate)
    return value[:, 0], gradient


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
    """The q-norm Z_q = (mean l^q)^(1/q) of each image, on the log scale.

    Args:
        log_loss: log l (images, copies), float64.
        q: the order of the norm.

    Source: Rice et al., Robustness between the worst and average case, for the norm; effective
        sample size (sum w)^2 / sum w^2 of the weights w = l^q: Kong 1992.
    """
    # Weights relative to the largest: l^q alone would underflow at q = 1000.
    highest = log_loss.amax(1, keepdim=True)
    weights = torch.exp(q * (log_loss - highest))
    mass = total(weights)
    copies = log_loss.shape[1]
    value = highest[:, 0] + torch.log(mass / copies) / q
    ess = mass.square() / total(weights.square())
    # The largest weight is 1.
    return LogNorm(value, ess, 1 / mass)
