"""Noise on the pixels: one module for each kind, seeded by sample so that batching never changes it."""

from __future__ import annotations

from robaudit.noise.gaussian import GaussianNoise

__all__ = ["GaussianNoise"]
