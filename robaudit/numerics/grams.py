"""Products of gradients under a diagonal covariance, image by image."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.rowwise import gram


def diagonal_gram(gradients: Tensor, deviations: Tensor | None = None) -> Tensor:
    """u_i^T diag(d^2) u_j of the gradients u of every image, without a matrix of pixels by pixels.

    Args:
        gradients: (n, margins, pixels), of any floating dtype.
        deviations: the standard deviations d, (n, pixels) or (1, pixels) for all images; None: all are 1.

    Returns:
        (n, margins, margins), float64; on the CPU an image's bits do not depend on the other images.
    """
    n, margins, _ = gradients.shape
    found = gradients.new_empty(n, margins, margins, dtype=torch.float64)
    step = 1 if gradients.device.type == "cpu" else max(1, n)  # one float64 copy at a time on the host
    for start in range(0, n, step):
        rows = slice(start, start + step)
        u = gradients[rows].double()
        if deviations is not None:
            d = deviations if len(deviations) == 1 else deviations[rows]
            u = u * d.to(u).unsqueeze(1)
        found[rows] = gram(u)
    return found
