"""Brightness and saturation in the HSV space, and contrast."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.rowwise import mean_over


def brightened(x: Tensor, by: float) -> Tensor:
    """The value V = max over the channels raised to min(V + by, 1), hue and saturation kept; grey images just become lighter.

    As the channels are V (1 - S g) with g of the hue alone, that is x V' / V; black becomes the grey V'.
    """
    value = x.amax(1, keepdim=True)
    raised = (value + by).clamp(0, 1)
    return torch.where(value > 0, x * (raised / torch.where(value > 0, value, 1.0)), raised)


def saturated(x: Tensor, factor: float, by: float) -> Tensor:
    """The saturation S = (max - min) / max changed to factor S + by within [0, 1], hue and value kept.

    The channels are V - S V (V - x) / (max - min). Grey pixels have no hue and get that of red, so ``by`` > 0 colours them.
    """
    value = x.amax(1, keepdim=True)
    spread = value - x.amin(1, keepdim=True)
    saturation = spread / torch.where(value > 0, value, 1.0)
    changed = (saturation * factor + by).clamp(0, 1)
    red = x.new_tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1)
    away = torch.where(spread > 0, (value - x) / torch.where(spread > 0, spread, 1.0), red)
    return value * (1 - changed * away)


def flattened(x: Tensor, factor: float) -> Tensor:
    """Contrast: (x - m) factor + m, m the mean of each channel."""
    mean = mean_over(x.flatten(2), 2)[:, :, None, None]
    return (x - mean) * factor + mean
