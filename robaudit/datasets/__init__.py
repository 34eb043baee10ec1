"""Data sets: one module for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robaudit.datasets.load import open_dataset

__all__ = ["open_dataset"]


def __getattr__(name: str) -> Any:
    """Load :func:`open_dataset` (and torch with it) on first use."""
    if name == "open_dataset":
        from robaudit.datasets.load import open_dataset

        return open_dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
