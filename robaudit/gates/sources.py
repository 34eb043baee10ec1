"""Sources of gates: the command line, a spec, or the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.errors import RobauditError, SpecError
from robaudit.gates.decide import Decision, check_confidence, decide
from robaudit.gates.statistics import check_range, group_of
from robaudit.runs.groups import GroupKey
from robaudit.runs.info import RunInfo
from robaudit.runs.run import Run
from robaudit.spec.gate_grammar import NO_WARNINGS, QUANTITIES, Gate, parse_gate
from robaudit.spec.model import AuditSpec


@dataclass(frozen=True, slots=True)
class GateRules:
    """Gates, and where they come from.

    Attributes:
        gates: one or more.
        where: their source.
        point: they were written for a run in which values without an interval decide.
    """

    gates: tuple[Gate, ...]
    where: str
    point: bool = False


def rules_of(run: Run) -> GateRules | None:
    """The gates of a run's spec; None where it has none.

    Raises:
        SpecError: a text is not a gate.
    """
    written = run.info.gates
    if not written:
        return None
    where = f"the spec of {run.path}"
    until = run.info.until_decided
    point = until is not None and until.point
    return GateRules(parsed(written, where), where, point)


def decide_by(
    rules: GateRules,
    run: Run,
    *,
    population: bool = False,
    point: bool = False,
    confidence: float | None = None,
    strict: bool = False,
) -> tuple[Decision, ...]:
    """Decide gates on a finished run."""
    return decide(
        run,
        rules.gates,
        population=population,
        point=point or rules.point,
        confidence=confidence_of(run.info, confidence),
        schedule=run.info.until_decided if confidence is None else None,
        strict=strict,
    )


def decisions_of(run: Run) -> tuple[tuple[dict[str, Any], ...], str]:
    """The decisions on a finished run's own gates as documents.

    Returns:
        The decisions, and the reason if the run's gates cannot be decided (else empty).
    """
    try:
        rules = rules_of(run)
        if rules is None:
            return (), ""
        decisions = decide_by(rules, run)
        return tuple(decision.document() for decision in decisions), ""
    except RobauditError as error:
        # A page or a notebook shows the run in any case.
        return (), str(error)


def confidence_of(info: RunInfo, requested: float | None) -> float:
    """The confidence of the intervals of a run's gates.

    It is ``requested``, else the confidence of a single analysis if the run was sampled until its
    gates were decided, else 0.95.

    Raises:
        SpecError: a confidence is out of range.
    """
    if requested is not None:
        check_confidence(requested)
        return requested
    # Analyses share the error. At the confidence of one of them, the run reaches the verdicts of
    # the analysis that decided.
    until = info.until_decided
    return 0.95 if until is None else until.each


def refuse_beyond(spec: AuditSpec, gates: Sequence[Gate] | None = None) -> None:
    """Refuse gates about results that the run of a spec will not have, before any computation.

    Args:
        spec: what to audit.
        gates: default: the spec's.

    Raises:
        SpecError: a gate matches no results or several, or has a threshold outside its range.
    """
    gates = parsed(spec.gates, "gates") if gates is None else gates
    # Without gates torch need not be loaded.
    if not gates:
        return
    from robaudit.engine.registry import tasks_of

    tasks = tasks_of(spec)
    scales = {}
    for task in tasks:
        scale = task.estimator.quantity
        for at, name in task.names:
            scales[GroupKey(name, at, scale.name)] = scale
    # A statistic of the run has the same range for every quantity, so any will do.
    any_scale = tasks[0].estimator.quantity
    for gate in gates:
        key = group_of(gate, scales)
        check_range(gate, any_scale if key is None else scales[key])


def find_rules(
    written: Sequence[str], run: Run, *, where: str, spec: Path | None = None, strict: bool = False
) -> GateRules:
    """The gates of the first source that has any: the caller, a spec, the run itself.

    Args:
        written: by the caller.
        run: the run to decide gates on.
        where: for messages about ``written``.
        spec: the file of another spec.
        strict: no gate is needed besides the gate on warnings.

    Raises:
        SpecError: there are no gates, a text is not a gate, or the spec cannot be read.
    """
    if written:
        return GateRules(parsed(written, where), "the command line")
    if spec is not None:
        from robaudit.spec.read import load_spec

        written = load_spec(spec).gates
        if not written:
            raise SpecError(str(spec), "has no gates", "for example gates: [mean >= 0.9]")
        return GateRules(parsed(written, str(spec)), str(spec))
    # With --strict alone, the gate on warnings is gate enough.
    rules = rules_of(run)
    if rules is None and not strict:
        raise SpecError(
            "gates",
            "none is given, and the spec of the run has none",
            'for example "mean(sigma=0.05) >= 0.9"',
        )
    return rules or GateRules((NO_WARNINGS,), "the command line")


def parsed(written: Sequence[str], where: str) -> tuple[Gate, ...]:
    """Parse gates.

    Raises:
        SpecError: a text is not a gate.
    """
    return tuple(parse_gate(text, QUANTITIES, where) for text in written)
