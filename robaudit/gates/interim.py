"""Interim analyses: start with few draws and add more until every gate is decided or all draws are taken.

The error is split over all possible analyses in advance (Bonferroni), so that every interval holds whichever analysis decides. The
record of the request and its decisions is ``looks.json`` in the run folder.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robaudit.errors import AnotherRunError, RunError
from robaudit.estimators import registry
from robaudit.estimators.registry import tasks_of
from robaudit.files import SEAL, json_bytes, read_json, sealed, unsealed, write_atomically
from robaudit.gates.decide import Covers, Decision, Verdict, decide
from robaudit.gates.evidence import matching_groups, needed_by, needed_group, refuse_results_of
from robaudit.gates.measure import OF_THE_RUN, check_range
from robaudit.quantities import IntervalKind
from robaudit.spec.gates import QUANTITIES, Gate, parse_gate
from robaudit.spec.model import AuditSpec, identity
from robaudit.stats.intervals import simultaneous
from robaudit.store.folder import INTERIM_RECORD, RunFolder, sampled_for_other_gates
from robaudit.store.info import Number
from robaudit.store.run import Run, read_run

FIRST, PART = 64, 16
"""Draws at the first analysis: ``FIRST``, or 1/``PART`` of all if that is more."""

_REMEDY = "restore it, or sample again in another folder"


@dataclass(frozen=True, slots=True)
class InterimAnalysis:
    """One interim analysis.

    Attributes:
        draws: noisy copies per image so far.
        run: all results with that many.
        decisions: on all gates.
    """

    draws: int
    run: Run
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The outcome of sampling until gates were decided.

    Attributes:
        analyses: in order; a run that was decided before has only its last.
        most: draws per image that were allowed.
        drawn: draws per image that all analyses took together.
    """

    analyses: tuple[InterimAnalysis, ...]
    most: int
    drawn: int

    @property
    def last(self) -> InterimAnalysis:
        """The analysis that decided."""
        return self.analyses[-1]


# --- the schedule


def possible_analyses(most: int) -> tuple[int, ...]:
    """The draws after which an analysis may take place: a sixteenth of all, at least 64, and twice as many each time up to all of them. At
    most five.

    They are fixed in advance, and the error is split over all of them, including those that are skipped, so every interval holds
    whichever analyses take place.
    """
    draws = [min(most, max(FIRST, -(-most // PART)))]
    while draws[-1] < most:
        draws.append(min(most, 2 * draws[-1]))
    return tuple(draws)


def next_analysis(draws: int, most: int, decisions: Sequence[Decision]) -> int:
    """Draws at the next analysis: the first possible number that probably decides the gates."""
    lacking = max((one.more for one in decisions if one.verdict == "inconclusive" and one.more is not None), default=0)
    return next(possible for possible in possible_analyses(most) if possible > draws and (possible >= draws + lacking or possible == most))


def most_draws(spec: AuditSpec, limit: int | None = None) -> int:
    """The largest number of draws per image of the estimators that fix it in advance; 0 where the spec has no such estimator."""
    most = max(_fixed_samples(spec).values(), default=0)
    return most if limit is None else min(most, limit)


def with_draws(spec: AuditSpec, draws: int, gates: Sequence[str] | None = None) -> AuditSpec:
    """The spec with at most ``draws`` draws, and with other gates if given."""
    document, fixed = spec.document(), _fixed_samples(spec)
    document["gates"] = list(spec.gates if gates is None else gates)
    for entry, chosen in zip(document["estimators"], registry.build(spec.estimators), strict=True):
        if chosen.label in fixed:
            entry["options"]["samples"] = min(fixed[chosen.label], draws)
    return AuditSpec.model_validate(document).located(spec.base_dir, spec.stem)


def _fixed_samples(spec: AuditSpec) -> dict[str, int]:
    """The estimators of the spec with an exact interval and a number of draws fixed in advance, with that number."""
    exact = (one for one in registry.build(spec.estimators) if one.estimator.interval.kind is IntervalKind.CLOPPER_PEARSON)
    return {one.label: one.estimator.fixed_draws for one in exact if one.estimator.fixed_draws is not None}


def refuse_beyond(spec: AuditSpec, gates: Sequence[Gate] | None = None) -> None:
    """Refuse gates about results that the run of a spec will not have, before anything is computed.

    Args:
        spec: what to audit.
        gates: default: those of the spec.

    Raises:
        SpecError: a gate is about no results or several, or has a threshold outside its range.
    """
    gates = [parse_gate(text, QUANTITIES, "gates") for text in spec.gates] if gates is None else gates
    if not gates:
        return
    built = registry.build(spec.estimators)
    estimators = {name: chosen.estimator for chosen in built for name in chosen.names}
    run = Run(Path(spec.title), {}, ())
    keys = [(name, at) for task in tasks_of(spec, built) for at, name in task.names]
    for gate in gates:
        if gate.quantity in OF_THE_RUN:
            refuse_results_of(gate)
            check_range(gate, next(iter(estimators.values())).quantity)
            continue
        if (needed := needed_by(gate)) is not None:
            name, _ = needed_group(gate, run, {key: estimators[key[0]].quantity.name for key in keys}, needed)
        else:
            name, _ = matching_groups(gate, run, keys, one=gate.quantity != "noisy_accuracy")[0]
        check_range(gate, estimators[name].quantity)


# --- the record


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Asked(_Part):
    """The request; a run is continued only for the same one.

    Attributes:
        identity: of the spec with all its draws.
        gates: in their canonical form.
        confidence: of all analyses together.
        most: draws per image that were allowed.
    """

    identity: str
    gates: Annotated[list[str], Field(min_length=1)]
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    most: Annotated[int, Field(ge=1)]

    def each(self, confidence: float | None = None) -> float:
        """The confidence of one analysis such that all possible ones hold together with ``confidence`` (default: the requested one)."""
        return simultaneous(self.confidence if confidence is None else confidence, len(possible_analyses(self.most)))


class Decided(BaseModel):
    """The part of a decision that a report reads; a number that is not finite was written as null."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    gate: str
    verdict: Verdict
    value: Number | None
    lower: Number | None
    upper: Number | None
    threshold: Number
    confidence: Number
    covers: Annotated[Covers, Field(strict=False)]
    about: str = ""


class RunOf(_Part):
    """The run that the last analysis left."""

    identity: str
    base_identity: str


class InterimRecord(_Part):
    """The record of a run that was sampled until its gates were decided.

    Attributes:
        asked: the request.
        point: values without an interval decided by themselves.
        each: the confidence of one analysis.
        draws: per image, at each analysis.
        run: the run that the last analysis left.
        gates: the decisions.
    """

    asked: Asked
    point: bool
    each: float
    draws: Annotated[list[int], Field(min_length=1)]
    run: RunOf
    gates: list[Decided]

    @property
    def consistent(self) -> bool:
        """Whether its parts agree."""
        possible = possible_analyses(self.asked.most)
        taken = all(draws in possible for draws in self.draws) and self.draws == sorted(set(self.draws))
        return taken and math.isclose(self.each, self.asked.each(), rel_tol=1e-12) and len(self.gates) == len(self.asked.gates)


def read_record(folder: Path, info: Mapping[str, Any]) -> InterimRecord | None:
    """The record of the run in ``folder``; None for a run that was not sampled until gates were decided.

    A run that has been extended since keeps it: see docs/gates.md.

    Args:
        folder: the run's.
        info: its run.json.

    Raises:
        RunError: the file is not what robaudit wrote there, or belongs to another run.
    """
    path = folder / INTERIM_RECORD
    if not path.exists():
        return None
    document = read_json(path)
    if not isinstance(document, dict) or SEAL not in document:
        raise RunError(str(path), "is not the record of interim analyses that robaudit writes there", _REMEDY)
    try:
        record = InterimRecord.model_validate(unsealed(document, path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RunError(str(path), f"is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']})", _REMEDY) from error
    if not record.consistent:
        raise RunError(str(path), "is damaged (its analyses and their confidence disagree)", _REMEDY)
    if record.run.base_identity != info["base_identity"]:
        raise RunError(str(path), "belongs to another run", _REMEDY)
    return record


def write_record(folder: Path, record: InterimRecord) -> None:
    """Write the record, with a checksum.

    Raises:
        RunError: the file system refuses.
    """
    write_atomically(folder / INTERIM_RECORD, json_bytes(sealed(record.model_dump())))


# --- sampling


def sample_until_decided(
    spec: AuditSpec,
    gates: Sequence[Gate],
    out: Path,
    audit: Callable[[AuditSpec, Path], Run],
    *,
    limit: int | None = None,
    point: bool = False,
    confidence: float = 0.95,
    on_analysis: Callable[[InterimAnalysis, int], None] | None = None,
) -> Sampled:
    """Audit with few draws, then with more, until every gate on mc is decided, one fails, or all draws of the spec are taken.

    The error is split over the :func:`possible_analyses`: each is at 1 - (1 - confidence)/analyses, so that all intervals of a gate
    hold together with ``confidence``, however many analyses take place and however they depend on each other. Gates on other results
    are decided at the same confidence: a run has one. Each analysis is an ordinary run in ``OUT.looks/``; the last becomes ``out``.

    Args:
        spec: what to audit; the ``samples`` of its mc are the maximum.
        gates: the gates to decide.
        out: the run folder.
        audit: makes or resumes the run of a spec in a folder.
        limit: a maximum below the spec's.
        point, confidence: see :func:`robaudit.gates.decide.decide`.
        on_analysis: called with each analysis and the maximum number of draws.

    Raises:
        RobauditError: the audit or a gate is refused, or ``out`` holds another run.
        ValueError: the spec has no estimator with a fixed number of samples.
    """
    most = most_draws(spec, limit)
    if not most:
        raise ValueError("sample_until_decided: the spec has no estimator with a fixed number of samples")
    asked = Asked(identity=identity(spec.document()), gates=[str(gate) for gate in gates], confidence=confidence, most=most)
    if out.name in ("", ".."):
        raise RunError(str(out), "cannot be made a run folder", "give --out a name")
    RunFolder(out).check()
    interim_folder = interim_folder_of(out)
    sampled = _fixed_samples(spec)

    def analysis(wanted: AuditSpec, draws: int, folder: Path) -> InterimAnalysis:
        run = audit(wanted, folder)
        return InterimAnalysis(draws, run, decide(run, gates, point=point, confidence=asked.each()))

    finished = _finished(out, asked)
    if finished is not None:
        record, gates_then = finished
        last = analysis(with_draws(spec, record.draws[-1], gates_then), record.draws[-1], out)
        _remove(interim_folder)
        return Sampled((last,), most, sum(record.draws))
    analyses: list[InterimAnalysis] = []
    draws = possible_analyses(most)[0]
    while True:
        wanted = with_draws(spec, draws)
        folder = interim_folder / f"{identity(wanted.document())[:8]}-{draws}"  # analyses of another spec are no obstacle
        left_behind = RunFolder(folder).exists
        try:
            last = analysis(wanted, draws, folder)
        except AnotherRunError as error:
            if not left_behind:
                raise
            remedy = f"delete {interim_folder}, which an earlier command left, or choose another --out"
            raise RunError(error.where, error.what, remedy) from error
        analyses.append(last)
        if on_analysis is not None:
            on_analysis(last, most)
        still = [one for one in last.decisions if one.verdict == "inconclusive" and one.gate.estimator in sampled]
        if draws >= most or not still or any(one.verdict == "fail" for one in last.decisions):
            break
        draws = next_analysis(draws, most, still)
    record = InterimRecord(
        asked=asked,
        point=point,
        each=asked.each(),
        draws=[one.draws for one in analyses],
        run=RunOf(identity=last.run.info["identity"], base_identity=last.run.info["base_identity"]),
        gates=[Decided.model_validate(one.document()) for one in last.decisions],
    )
    write_record(last.run.path, record)
    try:
        last.run.path.rename(out)
    except OSError as error:
        raise RunError(str(out), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error
    _remove(interim_folder)
    analyses[-1] = InterimAnalysis(last.draws, read_run(out), last.decisions)
    return Sampled(tuple(analyses), most, sum(record.draws))


def interim_folder_of(out: Path) -> Path:
    """Where the interim analyses of the run of a folder are made."""
    return out.with_name(out.name + ".looks")


def _finished(out: Path, asked: Asked) -> tuple[InterimRecord, Sequence[str]] | None:
    """The record of a finished run of this kind in ``out``, and the gates of its spec; None where there is no run.

    Raises:
        RunError: it is another run.
    """
    folder = RunFolder(out)
    if not folder.exists:
        return None
    info = folder.info()
    record = read_record(out, info)
    if record is None:
        remedy = "decide gates on it with robaudit gate, or choose another --out"
        raise RunError(str(out), "holds a run that was not sampled for gates", remedy)
    if record.asked != asked:
        raise sampled_for_other_gates(out)
    return record, info["spec"].get("gates", ())


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # nothing of value is left in it: the last analysis was moved out
        shutil.rmtree(folder)
