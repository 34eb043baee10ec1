"""The former place of :class:`robaudit.estimators.taylor.TaylorMvSigmoid`: installations made before it moved still name it."""

from robaudit.estimators.taylor import TaylorMvSigmoid

__all__ = ["TaylorMvSigmoid"]
