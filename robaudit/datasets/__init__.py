"""Data sets: one module per kind."""

from robaudit.datasets.load import open_dataset

__all__ = ["open_dataset"]
