"""Sources of gates: the command line, a spec, the run itself or pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from robaudit.errors import RobauditError, SpecError, did_you_mean
from robaudit.gates.decide import Decision, Verdict, check_confidence, decide
from robaudit.gates.evidence import group_of
from robaudit.gates.measure import check_range
from robaudit.spec.gates import NO_WARNINGS, QUANTITIES, Gate, parse_gate
from robaudit.spec.model import AuditSpec
from robaudit.stats.info import RunInfo
from robaudit.store.run import Run


@dataclass(frozen=True, slots=True)
class GateRules:
    """Gates, and the rules for deciding them; None: not set.

    Attributes:
        gates: one or more.
        where: their source.
        inconclusive: what an inconclusive gate counts as.
        population, point, confidence: of :func:`robaudit.gates.decide.decide`.
    """

    gates: tuple[Gate, ...]
    where: str
    inconclusive: Verdict | None = None
    population: bool | None = None
    point: bool | None = None
    confidence: float | None = None


def rules_of(run: Run) -> GateRules | None:
    """The gates of a run's spec; None where it has none.

    Raises:
        SpecError: a text is not a gate.
    """
    written, where, until = run.info.gates, f"the spec of {run.path}", run.info.until_decided
    return GateRules(parsed(written, where), where, point=None if until is None else until.point) if written else None


def decide_by(
    rules: GateRules, run: Run, *, population: bool = False, point: bool = False, confidence: float | None = None, strict: bool = False
) -> tuple[Decision, ...]:
    """Decide gates on a finished run; the rules set what the arguments leave open."""
    return decide(
        run,
        rules.gates,
        population=population or bool(rules.population),
        point=point or bool(rules.point),
        confidence=confidence_of(run.info, confidence, rules.confidence),
        strict=strict,
    )


def decisions_of(run: Run) -> tuple[tuple[dict[str, Any], ...], str]:
    """The decisions on a finished run's own gates as documents.

    Returns:
        The decisions, and the reason if the run's gates cannot be decided (else empty).
    """
    try:
        rules = rules_of(run)
        return () if rules is None else tuple(decision.document() for decision in decide_by(rules, run)), ""
    except RobauditError as error:
        return (), str(error)


def confidence_of(info: RunInfo, requested: float | None, rules: float | None = None) -> float:
    """The confidence of the intervals of a run's gates.

    ``requested`` (--confidence) comes first, then ``rules`` (pyproject.toml), then 95 %. If the run was sampled until its gates were
    decided, all possible analyses share the error that ``rules`` or the run allows.

    Raises:
        SpecError: a confidence is out of range.
    """
    for value in (requested, rules):
        if value is not None:
            check_confidence(value)
    if requested is not None:
        return requested
    until = info.until_decided
    return until.each(rules) if until is not None else 0.95 if rules is None else rules


def refuse_beyond(spec: AuditSpec, gates: Sequence[Gate] | None = None) -> None:
    """Refuse gates about results that the run of a spec will not have, before any computation.

    Args:
        spec: what to audit.
        gates: default: the spec's.

    Raises:
        SpecError: a gate matches no results or several, or has a threshold outside its range.
    """
    gates = parsed(spec.gates, "gates") if gates is None else gates
    if not gates:
        return
    from robaudit.estimators.registry import tasks_of

    scales = {(name, at): task.estimator.quantity for task in tasks_of(spec) for at, name in task.names}
    quantities = {key: scale.name for key, scale in scales.items()}
    for gate in gates:
        group = group_of(gate, quantities)
        check_range(gate, next(iter(scales.values())) if group is None else scales[group])


def find_rules(
    command_line: Sequence[str], run: Run, *, spec: Path | None = None, pyproject: Path | None = None, strict: bool = False
) -> GateRules:
    """The gates of the first source that has any: the command line, ``--spec``, ``--pyproject``, the run itself, and the
    pyproject.toml of the working folder. The other keys of a pyproject.toml apply only with its gates.

    Args:
        command_line: gates on the command line.
        run: the run to decide gates on.
        spec, pyproject: files named on the command line.
        strict: no gate is needed besides the gate on warnings.

    Raises:
        SpecError: there are no gates, a text is not a gate, or a file cannot be read or has other contents.
    """
    if command_line:
        return GateRules(parsed(command_line, "gate"), "the command line")
    if spec is not None:
        from robaudit.spec.load import load_spec

        written = load_spec(spec).gates
        if not written:
            raise SpecError(str(spec), "has no gates", "for example gates: [mean >= 0.9]")
        return GateRules(parsed(written, str(spec)), str(spec))
    if pyproject is not None:
        rules = _from_pyproject(pyproject)
        if rules is None:
            raise SpecError(str(pyproject), "has no gates", '[tool.robaudit] gates = ["mean >= 0.9"]')
        return rules
    nearest = Path("pyproject.toml")
    rules = rules_of(run) or (_from_pyproject(nearest) if nearest.is_file() else None)
    if rules is None and strict:
        return GateRules((NO_WARNINGS,), "the command line")
    if rules is None:
        raise SpecError(
            "robaudit gate",
            "there is no gate on the command line, in the run's spec or in pyproject.toml",
            'for example robaudit gate RUN "mean(sigma=0.05) >= 0.9"',
        )
    return rules


def parsed(written: Sequence[str], where: str) -> tuple[Gate, ...]:
    """Parse gates.

    Raises:
        SpecError: a text is not a gate.
    """
    return tuple(parse_gate(text, QUANTITIES, where) for text in written)


class _Section(BaseModel):
    """[tool.robaudit] of a pyproject.toml."""

    model_config = ConfigDict(extra="forbid", strict=True)

    gates: list[str] = []
    inconclusive: Verdict | None = None
    population: bool | None = None
    point: bool | None = None
    confidence: float | None = None


def _from_pyproject(path: Path) -> GateRules | None:
    """The section [tool.robaudit]; None where it is missing or has no gates."""
    where = f"{path}, [tool.robaudit]"
    try:
        section = _Section.model_validate(tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("robaudit", {}))
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else "it"
        remedy = did_you_mean(key, _Section.model_fields) if first["type"] == "extra_forbidden" else 'for example gates = ["mean >= 0.9"]'
        raise SpecError(where, f"{key}: {first['msg']}", remedy) from error
    except (ValueError, AttributeError) as error:  # not TOML, not UTF-8, or not a section
        raise SpecError(str(path), f"is not valid: {error}") from error
    if not section.gates:
        return None
    gates = parsed(section.gates, where)
    return GateRules(gates, where, section.inconclusive, section.population, section.point, section.confidence)
