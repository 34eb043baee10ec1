"""Training objectives from the papers, and the loop that trains reference models with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from robaudit.methods.training.spec import Recipe, TrainingSpec, load_training, training_spec

if TYPE_CHECKING:
    from robaudit.methods.training.run import train

__all__ = ["Recipe", "TrainingSpec", "load_training", "train", "training_spec"]


def __getattr__(name: str) -> Any:
    """Load :func:`train` (and with it torch) when it is first used."""
    if name == "train":
        from robaudit.methods.training.run import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
