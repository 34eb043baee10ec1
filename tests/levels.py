"""Noise levels, and the run's usual noise, for tests."""

from __future__ import annotations

import torch

from robaudit.levels import GAUSSIAN, LevelName, NoiseLevel
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.process import NoiseProcess


def sigma(value: float) -> NoiseLevel:
    """Isotropic Gaussian noise of this standard deviation."""
    return NoiseLevel(GAUSSIAN, value, LevelName.SIGMA)


def gaussian_process(
    seed: int, device: torch.device, dtype: torch.dtype = torch.float32, *, stream: str = ""
) -> NoiseProcess:
    """Isotropic Gaussian noise, the default of a run."""
    return NoiseProcess(Gaussian(), GAUSSIAN, seed, device, dtype, stream=stream)
