"""Trained models as functions from pixels to logits: one module per format."""

from robaudit.models.formats import LoadedNetwork, Source
from robaudit.models.load_model import from_module, load_model
from robaudit.models.logits import LogitModel

__all__ = ["LoadedNetwork", "LogitModel", "Source", "from_module", "load_model"]
