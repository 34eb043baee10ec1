"""From means and covariances of the margins to standardised limits, correlations and P[all margins > 0]."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.rowwise import total


def standardise(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """z_i = c_i / s_i and R_ij = S_ij / (s_i s_j), so that P[N(c, S) > 0] = Phi_R(z).

    A margin without variance is constant: z = +inf where it is positive and -inf where it is not (a tie counts as a failure);
    its correlations are 0.

    Args:
        mean: c (batch, k).
        covariance: S (batch, k, k), positive semi-definite.

    Returns:
        z (batch, k) and R (batch, k, k) with unit diagonal and entries in [-1, 1], float64.

    Source: Han et al., "Efficient Estimation of Average-Case Robustness", Lemmas A.1 and A.3, in standardised form.
    """
    c, s2 = mean.double(), covariance.double()
    s = s2.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    constant = s == 0
    scale = torch.where(constant, 1.0, s)
    z = torch.where(constant, torch.where(c > 0, torch.inf, -torch.inf), c / scale)
    r = (s2 / scale[:, :, None] / scale[:, None, :]).clamp(-1, 1)
    r = torch.where(constant[:, :, None] | constant[:, None, :], 0.0, r)
    r = (r + r.transpose(1, 2)) / 2
    r.diagonal(dim1=1, dim2=2).fill_(1.0)
    return z, r


def mv_sigmoid(z: Tensor) -> Tensor:
    """1 / (1 + sum_i exp(-z_i)) over the last dimension, float64, without overflow.

    Source: Han et al., "Efficient Estimation of Average-Case Robustness", section 3.2.3.
    """
    exponents = torch.nn.functional.pad(-z.double(), (1, 0))
    most = exponents.amax(-1, keepdim=True)
    most = torch.where(most == torch.inf, 0.0, most)
    return torch.exp(-most.squeeze(-1) - total(torch.exp(exponents - most)).log())
