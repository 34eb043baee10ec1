"""How do a finished run's own gates stand, for a report?"""

from __future__ import annotations

from typing import Any

from robaudit.errors import RobauditError
from robaudit.gates.decide import decide
from robaudit.gates.own import own_gates
from robaudit.gates.record import confidence_of
from robaudit.gates.sources import parsed
from robaudit.store.run import Run


def standing(run: Run) -> tuple[tuple[dict[str, Any], ...], str]:
    """The decisions on the run's own gates as documents: those of its last look, if it was sampled for them; else made now.

    Returns:
        The decisions, and why there are none where the run has gates that cannot be decided (empty otherwise).

    Raises:
        RunError: what the run says of its looks is damaged.
    """
    own = own_gates(run)
    if own.looks is not None and own.looks.run.identity == run.info["identity"]:
        return tuple(one.model_dump() for one in own.looks.gates), ""
    if not own.texts:
        return (), ""
    try:
        gates = parsed(own.texts, own.where)
        decisions = decide(run, gates, point=own.point, confidence=confidence_of(own.looks, None, None))
    except RobauditError as error:
        return (), str(error)
    return tuple(one.document() for one in decisions), ""
