"""What tests of the Python interface audit: the embedded network and the digits, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import nn

from robaudit.models.architectures import digits_cnn
from tests.specs import WEIGHTS


def network() -> nn.Module:
    module = digits_cnn()
    module.load_state_dict(load_file(WEIGHTS))
    return module


def arrays(count: int = 12) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The first digits as uint8 (n, 8, 8), and their labels."""
    digits: Any = load_digits()
    return (digits.images[:count] * 255 / 16).round().astype(np.uint8), digits.target[
        :count
    ].astype(np.int64)


def floats(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as float64 (n, 1, 8, 8) in [0, 1]."""
    images, labels = arrays(count)
    return torch.from_numpy(images)[:, None].double() / 255, torch.from_numpy(labels)
