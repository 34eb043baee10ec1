"""robaudit: audits of how robust an image classifier is to everyday sensor noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robaudit.auditing import audit
    from robaudit.errors import RobauditError
    from robaudit.estimators.base import Estimate, Estimator
    from robaudit.estimators.work import Work
    from robaudit.numerics.intervals import clopper_pearson
    from robaudit.numerics.margins import margins
    from robaudit.quantities import CONFIDENCE, P_ROBUST, Interval, IntervalKind, Quantity
    from robaudit.rows import Row
    from robaudit.runs import Run, read_run
    from robaudit.spec import AuditSpec
    from robaudit.spec_file import load_spec

__all__ = [
    "CONFIDENCE",
    "P_ROBUST",
    "AuditSpec",
    "Estimate",
    "Estimator",
    "Interval",
    "IntervalKind",
    "Quantity",
    "RobauditError",
    "Row",
    "Run",
    "Work",
    "audit",
    "clopper_pearson",
    "load_spec",
    "margins",
    "read_run",
]

_HOMES = {
    "audit": "robaudit.auditing",
    "AuditSpec": "robaudit.spec",
    "load_spec": "robaudit.spec_file",
    "CONFIDENCE": "robaudit.quantities",
    "Estimate": "robaudit.estimators.base",
    "Estimator": "robaudit.estimators.base",
    "P_ROBUST": "robaudit.quantities",
    "Interval": "robaudit.quantities",
    "IntervalKind": "robaudit.quantities",
    "Quantity": "robaudit.quantities",
    "RobauditError": "robaudit.errors",
    "Row": "robaudit.rows",
    "Run": "robaudit.runs",
    "Work": "robaudit.estimators.work",
    "clopper_pearson": "robaudit.numerics.intervals",
    "margins": "robaudit.numerics.jacobian",
    "read_run": "robaudit.runs",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import robaudit`` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robaudit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
