"""Trained models as functions from pixels to logits: one module per format."""

from robaudit.models.base import LoadedNetwork
from robaudit.models.load import from_module, load_model
from robaudit.models.logits import LogitModel

__all__ = ["LoadedNetwork", "LogitModel", "from_module", "load_model"]
