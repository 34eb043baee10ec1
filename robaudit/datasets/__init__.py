"""Data sets: one module for each kind."""

from robaudit.datasets.load import open_dataset

__all__ = ["open_dataset"]
