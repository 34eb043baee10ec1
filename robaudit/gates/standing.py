"""How do a finished run's own gates stand, for a report?"""

from __future__ import annotations

from typing import Any

from robaudit.errors import RobauditError, RunError
from robaudit.files import read_json
from robaudit.gates.decide import decide
from robaudit.gates.looks import RECORD
from robaudit.gates.sources import parsed
from robaudit.runs import Run

_KEYS = {"gate", "verdict", "value", "lower", "upper", "threshold", "confidence", "covers"}


def standing(run: Run) -> tuple[tuple[dict[str, Any], ...], str]:
    """The decisions on the gates of the run's spec as documents: those it was sampled for, if it was; else made now.

    Returns:
        The decisions, and why there are none where the spec has gates that cannot be decided (empty otherwise).

    Raises:
        RunError: what the run says of its gates is damaged.
    """
    path = run.path / RECORD
    if path.exists():
        record = read_json(path)
        gates = record.get("gates") if isinstance(record, dict) else None
        if not isinstance(gates, list) or not all(isinstance(one, dict) and one.keys() >= _KEYS for one in gates):
            raise RunError(str(path), "is not as robaudit wrote it", "delete it: the gates are decided anew")
        if record["run"]["identity"] == run.info["identity"]:
            return tuple(gates), ""
    texts = run.info["spec"].get("gates", ())
    if not texts:
        return (), ""
    try:
        return tuple(one.document() for one in decide(run, parsed(texts, f"the spec of {run.path}"))), ""
    except RobauditError as error:
        return (), str(error)
