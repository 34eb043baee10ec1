"""Noise on pixels: one module per kind, seeded by sample so that batching never changes it."""
