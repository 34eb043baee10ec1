"""How a trained model becomes a logits function: one file a format."""

from robaudit.models.base import LoadedNetwork
from robaudit.models.load import from_module, load_model
from robaudit.models.logits import LogitModel

__all__ = ["LoadedNetwork", "LogitModel", "from_module", "load_model"]
