"""Data sets: one module per kind."""

from robaudit.datasets.open_dataset import open_dataset

__all__ = ["open_dataset"]
