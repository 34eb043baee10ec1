"""Where gates come from: the command line, a spec, the run itself or pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from robaudit.errors import RobauditError, SpecError, did_you_mean
from robaudit.gates.decide import Verdict, check_confidence, decide
from robaudit.gates.interim import InterimRecord, read_record
from robaudit.spec.gates import NO_WARNINGS, QUANTITIES, Gate, parse_gate
from robaudit.store.run import Run

_LARGEST = 2**20  # bytes


@dataclass(frozen=True, slots=True)
class GateRules:
    """Gates, and how they are decided; None: not set.

    Attributes:
        gates: one or more.
        where: where they were found.
        inconclusive: what an inconclusive gate counts as.
        population, point, confidence: of :func:`robaudit.gates.decide.decide`.
    """

    gates: tuple[Gate, ...]
    where: str
    inconclusive: Verdict | None = None
    population: bool | None = None
    point: bool | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class RunGates:
    """The gates of a run: those that it was sampled for, else those of its spec.

    Attributes:
        written: the gates as they were written; empty where it has none.
        where: their source, for messages.
        point: whether values without an interval decided by themselves when it was sampled for them.
        record: of its interim analyses, if it was sampled until gates were decided.
    """

    written: tuple[str, ...]
    where: str
    point: bool
    record: InterimRecord | None


def gates_of(run: Run) -> RunGates:
    """The gates of a run.

    Raises:
        RunError: the record of its interim analyses is not what robaudit wrote.
    """
    record = read_record(run.path, run.info)
    if record is not None:
        return RunGates(tuple(record.asked.gates), f"the interim analyses of {run.path}", record.point, record)
    return RunGates(tuple(run.info["spec"].get("gates", ())), f"the spec of {run.path}", False, None)


def decisions_of(run: Run) -> tuple[tuple[dict[str, Any], ...], str]:
    """The decisions on a finished run's gates as documents: those of its last interim analysis if it was sampled for them, else
    new ones.

    Returns:
        The decisions, and why there are none where the run has gates that cannot be decided (empty otherwise).

    Raises:
        RunError: the record of its interim analyses is damaged.
    """
    of_run = gates_of(run)
    if of_run.record is not None and of_run.record.run.identity == run.info["identity"]:
        return tuple(one.model_dump() for one in of_run.record.gates), ""
    if not of_run.written:
        return (), ""
    try:
        gates = parsed(of_run.written, of_run.where)
        decisions = decide(run, gates, point=of_run.point, confidence=confidence_of(of_run.record, None, None))
    except RobauditError as error:
        return (), str(error)
    return tuple(one.document() for one in decisions), ""


def confidence_of(record: InterimRecord | None, option: float | None, rules: float | None) -> float:
    """The confidence at which each gate is read.

    ``option`` (--confidence) comes first. Otherwise a run that was sampled for gates is read at the confidence of one interim analysis,
    where all possible ones share the error of ``rules`` (pyproject.toml) or of the request; any other run at that of ``rules``, or 95 %.

    Raises:
        SpecError: one of them is out of range.
    """
    for given in (option, rules):
        if given is not None:
            check_confidence(given)
    if option is not None:
        return option
    if record is not None:
        return record.asked.each(rules)
    return 0.95 if rules is None else rules


def find_rules(
    given: Sequence[str], *, spec: Path | None = None, pyproject: Path | None = None, of_run: RunGates | None = None, strict: bool = False
) -> GateRules:
    """The gates of the first source that has any: the command line, ``--spec``, ``--pyproject``, the run itself, and the
    pyproject.toml of the working folder. The other keys of a pyproject.toml apply only with its gates.

    Args:
        given: on the command line.
        spec, pyproject: files named on the command line.
        of_run: the gates of the run.
        strict: no gate is needed besides the one on warnings.

    Raises:
        SpecError: there are none, one is not a gate, or a file cannot be read or has other contents.
    """
    if given:
        return GateRules(parsed(given, "gate"), "the command line")
    if spec is not None:
        from robaudit.spec.load import load_spec

        written = load_spec(spec, complete=False).gates
        if not written:
            raise SpecError(str(spec), "has no gates", "for example gates: [mean >= 0.9]")
        return GateRules(parsed(written, str(spec)), str(spec))
    if pyproject is not None:
        rules = _from_pyproject(pyproject)
        if rules is None:
            raise SpecError(str(pyproject), "has no gates", '[tool.robaudit] gates = ["mean >= 0.9"]')
        return rules
    if of_run is not None and of_run.written:
        return GateRules(parsed(of_run.written, f"{of_run.where}, gates"), of_run.where)
    nearest = Path("pyproject.toml")
    rules = _from_pyproject(nearest) if nearest.is_file() else None
    if rules is None and strict:
        return GateRules((NO_WARNINGS,), "the command line")
    if rules is None:
        raise SpecError(
            "robaudit gate",
            "there is no gate on the command line, in the run's spec or in pyproject.toml",
            'write robaudit gate RUN "mean >= 0.9", or gates: [mean >= 0.9] in the spec',
        )
    return rules


def parsed(written: Sequence[str], where: str) -> tuple[Gate, ...]:
    """Parse gates.

    Raises:
        SpecError: one is not a gate.
    """
    return tuple(parse_gate(text, QUANTITIES, where) for text in written)


def _from_pyproject(path: Path) -> GateRules | None:
    """The section [tool.robaudit]; None where it is missing or has no gates."""
    section = _section(path)
    known = ("gates", "inconclusive", "population", "point", "confidence")
    where = f"{path}, [tool.robaudit]"
    for key in section:
        if key not in known:
            raise SpecError(where, f"unknown key {key!r}", did_you_mean(key, known))
    if not section.get("gates"):
        return None
    gates = section["gates"]
    if not isinstance(gates, list) or not all(isinstance(gate, str) for gate in gates):
        raise SpecError(where, "gates must be a list of strings", 'for example gates = ["mean >= 0.9"]')
    for key in ("population", "point"):
        if not isinstance(section.get(key, False), bool):
            raise SpecError(where, f"{key} must be true or false", f"for example {key} = true")
    confidence = section.get("confidence")
    if confidence is not None and (isinstance(confidence, bool) or not isinstance(confidence, int | float)):
        raise SpecError(where, "confidence must be a number", "for example confidence = 0.95")
    inconclusive = section.get("inconclusive")
    if inconclusive is not None and inconclusive not in get_args(Verdict):
        raise SpecError(where, f"inconclusive is {inconclusive!r}", "write one of " + ", ".join(map(repr, get_args(Verdict))))
    return GateRules(parsed(gates, where), where, inconclusive, section.get("population"), section.get("point"), confidence)


def _section(path: Path) -> Mapping[str, Any]:
    try:
        if not path.is_file():
            raise SpecError(str(path), "no such file", "name a pyproject.toml")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise SpecError(str(path), "is larger than 1 MB", "name a pyproject.toml")
        document = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise SpecError(str(path), f"is not valid TOML: {error}") from error
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror or error}") from error
    tool = document.get("tool")
    section = tool.get("robaudit", {}) if isinstance(tool, dict) else {}
    if not isinstance(section, dict):
        raise SpecError(f"{path}, tool.robaudit", "is not a section", '[tool.robaudit] gates = ["mean >= 0.9"]')
    return section
