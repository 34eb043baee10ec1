"""The matrix of a small convolution, to compare bounds of its norms with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def dense_convolution(
    weight: Tensor, size: Sequence[int], *, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
) -> Tensor:
    """The matrix of a two-dimensional convolution (outputs, inputs), float64: its size is the product of both, so for small ones only.

    Args:
        weight: (out, in / groups, height, width).
        size: height and width of its input.
        stride, padding, dilation, groups: as of ``torch.nn.functional.conv2d``.
    """
    shape = (weight.shape[1] * groups, *size)
    each = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    return F.conv2d(each, weight.detach().double(), None, stride, padding, dilation, groups).flatten(1).T
