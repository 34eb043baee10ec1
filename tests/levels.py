"""Noise levels for tests."""

from __future__ import annotations

from robaudit.levels import LevelName, NoiseLevel


def sigma(value: float) -> NoiseLevel:
    """Isotropic Gaussian noise of this standard deviation."""
    return NoiseLevel("gaussian", value, LevelName.SIGMA)
