"""What are the mean and covariance of margins under noise, from antithetic pairs of draws?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.rowwise import gram, mean_over


class PairMoments(NamedTuple):
    """Moments of g(x + eps) from pairs g(x + eps), g(x - eps).

    Attributes:
        mean: (batch, k).
        covariance: of g (batch, k, k), the even part's and the odd part's together.
        even_variance: variance of the even part alone (batch, k): the mean's own variance times the number of pairs.
    """

    mean: Tensor
    covariance: Tensor
    even_variance: Tensor


def halves(margins: Tensor) -> tuple[Tensor, Tensor]:
    """Even and odd part of each pair: (batch, draws, k) -> twice (batch, draws / 2, k), float64."""
    plus, minus = margins[:, 0::2].double(), margins[:, 1::2].double()
    return (plus + minus) / 2, (plus - minus) / 2


def pair_moments(even: Tensor, odd: Tensor) -> PairMoments:
    """Mean and covariance of g from the even and odd parts of h pairs.

    g = even + odd, and the two are uncorrelated because eps and -eps are equally likely; the odd part has mean zero. So
    mean = average of the even parts (its error is the even part's alone: zero for a linear model) and
    S = S_even (h - 1 degrees of freedom) + sum odd odd^T / h.

    Args:
        even, odd: (batch, h, k), h >= 2.
    """
    h = even.shape[1]
    mean = mean_over(even, 1)
    centred = even - mean[:, None]
    even_covariance = gram(centred.transpose(1, 2)) / (h - 1)
    covariance = even_covariance + gram(odd.transpose(1, 2)) / h
    return PairMoments(mean, covariance, even_covariance.diagonal(dim1=1, dim2=2))


def without_group(parts: Tensor, group: int, groups: int) -> Tensor:
    """The pairs that are not of a group; pair j is of group j modulo ``groups``: (batch, h, k) -> (batch, fewer, k)."""
    keep = torch.arange(parts.shape[1], device=parts.device) % groups != group
    return parts[:, keep]
