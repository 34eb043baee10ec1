"""robaudit: how robust is an image classifier to the noise that sensors make every day?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robaudit.auditing import audit
    from robaudit.errors import RobauditError
    from robaudit.estimators.base import CONFIDENCE, P_ROBUST, Estimate, Estimator, Quantity
    from robaudit.estimators.work import Work
    from robaudit.rows import Row
    from robaudit.spec import AuditSpec
    from robaudit.spec_file import load_spec
    from robaudit.store.run import Run, read_run

__all__ = [
    "CONFIDENCE",
    "P_ROBUST",
    "AuditSpec",
    "Estimate",
    "Estimator",
    "Quantity",
    "RobauditError",
    "Row",
    "Run",
    "Work",
    "audit",
    "load_spec",
    "read_run",
]

_HOMES = {
    "audit": "robaudit.auditing",
    "AuditSpec": "robaudit.spec",
    "load_spec": "robaudit.spec_file",
    "CONFIDENCE": "robaudit.estimators.base",
    "Estimate": "robaudit.estimators.base",
    "Estimator": "robaudit.estimators.base",
    "P_ROBUST": "robaudit.estimators.base",
    "Quantity": "robaudit.estimators.base",
    "RobauditError": "robaudit.errors",
    "Row": "robaudit.rows",
    "Run": "robaudit.store.run",
    "Work": "robaudit.estimators.work",
    "read_run": "robaudit.store.run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import robaudit`` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robaudit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
