"""The former place of :class:`robaudit.estimators.mmse.MmseMvSigmoid`: installations made before it moved still name it."""

from robaudit.estimators.mmse import MmseMvSigmoid

__all__ = ["MmseMvSigmoid"]
