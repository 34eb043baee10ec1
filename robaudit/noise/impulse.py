"""Salt and pepper: a share of the values becomes black or white."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from robaudit.levels import LevelName
from robaudit.noise.noise import Noise


class Impulse(Noise):
    """Each value becomes 0 with probability share / 2, 1 with probability share / 2, and stays as
    it is otherwise.

    The level is the share of replaced values (not pixels), so the channels of a colour pixel are
    hit independently. A value becomes 0 where z < q and 1 where z >= -q, with q = Phi^-1(share /
    2).

    Source: Gonzalez and Woods (2018), Digital Image Processing, section 5.2; Hendrycks and
        Dietterich (2019), Benchmarking neural network robustness (impulse noise).
    """

    level_name = LevelName.SHARE
    least = 1e-6
    most = 1.0
    nearly_normal = quantises = True
    summary = "that share of the values becomes 0 or 1, each with half of it"
    prefer = "dead and hot pixels, transmission errors"
    source = "Hendrycks and Dietterich 2019"

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """0 below the quantile of half the share, 1 above its mirror image, x between them."""
        # Draws are float32 numbers. With an edge rounded to float32, runs in float64 decide alike.
        edge = float(np.float32(ndtri(level / 2)))
        return torch.where(z < edge, 0.0, x).masked_fill_(z >= -edge, 1.0)
