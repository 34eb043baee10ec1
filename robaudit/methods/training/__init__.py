"""Training objectives from the papers, and the loop that trains reference models with them.

It imports the family intermediate_q: the objective `qnorm_path` draws its copies as the estimator
of that name does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robaudit.methods.training.spec import Recipe, TrainingSpec, load_training, training_spec
    from robaudit.methods.training.trainer import train

__all__ = ["Recipe", "TrainingSpec", "load_training", "train", "training_spec"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the command's help needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "trainer" if name == "train" else "spec"
    return getattr(import_module(f"{__name__}.{module}"), name)
