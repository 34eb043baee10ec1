"""Noise on pixels: one module per kind, seeded by sample so that batching never changes it."""

from __future__ import annotations

from robaudit.noise.gaussian import GaussianNoise

__all__ = ["GaussianNoise"]
