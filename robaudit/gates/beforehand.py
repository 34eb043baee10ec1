"""Can these gates be decided on the results that a spec asks for? Asked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robaudit import registry
from robaudit.gates.evidence import refuse_accuracy_of, which, without_interval
from robaudit.gates.grammar import Gate
from robaudit.gates.quantities import check_range
from robaudit.spec import AuditSpec
from robaudit.store.run import Run


def refuse_impossible(spec: AuditSpec, gates: Sequence[Gate], *, point: bool) -> None:
    """Refuse gates that no run of the spec could decide.

    Raises:
        SpecError: a gate means no results or several, has a threshold that none can reach, or is on an estimator without intervals
            and ``point`` is False.
    """
    estimators = {chosen.label: chosen.estimator for chosen in registry.build(spec.estimators)}
    run = Run(Path(spec.name), {}, ())
    keys = [(label, sigma) for sigma in spec.noise.sigma for label in estimators]
    for gate in gates:
        if gate.quantity == "accuracy":
            refuse_accuracy_of(gate)
            check_range(gate, next(iter(estimators.values())).quantity)
            continue
        found = which(gate, run, keys, one=gate.quantity != "noisy_accuracy")
        estimator = estimators[found[0][0]]
        check_range(gate, estimator.quantity)
        if estimator.interval == "none" and not point and gate.quantity != "noisy_accuracy":
            raise without_interval(gate, found[0][0])
