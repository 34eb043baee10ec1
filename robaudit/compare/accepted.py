"""Accepted findings: their file, and the comparison of a run with it."""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robaudit.compare.matching import described, differing_noise, image_digests
from robaudit.errors import RunError
from robaudit.files import write_atomically
from robaudit.gates.decide import Covers, Decision, judge
from robaudit.gates.measure import Method
from robaudit.levels import LevelChoice, LevelName, NoiseLevel
from robaudit.quantities import Quantity
from robaudit.rows import LARGEST, Row, with_names
from robaudit.spec.gates import Gate
from robaudit.stats.flags import Certainty, check_threshold, flag, usual_threshold
from robaudit.stats.groups import json_values
from robaudit.stats.votes import by_votes
from robaudit.store.run import Run
from robaudit.text import Names, printable

SCHEMA_VERSION = 4
_REMEDY = "restore it, or delete it and write another one with --update"
_LARGEST_FILE = 2**28

Key = tuple[str, NoiseLevel, str]
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, protected_namespaces=())


class _AtLevel(_Strict):
    """What is said about one estimator at one noise level."""

    estimator: str
    noise: str
    level_name: LevelName
    level: Number

    @property
    def at(self) -> NoiseLevel:
        """The noise and its level."""
        return NoiseLevel(self.noise, self.level, self.level_name)


class AcceptedFinding(_AtLevel):
    """A sample that is known not to be robust.

    Attributes:
        image: digest of its pixels; None where the run does not have it.
        value: the value when it was accepted.
        reason: a note that somebody added to the file; kept unchanged.
    """

    sample_id: str
    image: str | None
    value: Number
    reason: str | None = None

    @property
    def key(self) -> Key:
        """Estimator, noise level and sample."""
        return self.estimator, self.at, self.sample_id


class Threshold(_AtLevel):
    """The threshold of findings, for one estimator at one noise level."""

    below: Number


class _Model(_Strict):
    name: str
    sha256: str


class Accepted(_Strict):
    """The file.

    Attributes:
        model: of the run whose findings were accepted last.
        noises: the noises by label, without levels.
        include: "confirmed": findings whose whole interval is beyond the threshold; "all": all findings whose value is.
    """

    schema_version: Literal[4]
    model: _Model
    noises: dict[str, dict[str, Any]]
    include: Literal["confirmed", "all"]
    thresholds: list[Threshold]
    findings: list[AcceptedFinding]

    def by_key(self) -> dict[Key, AcceptedFinding]:
        """The findings by estimator, noise level and sample."""
        return {one.key: one for one in self.findings}

    def below(self) -> dict[tuple[str, NoiseLevel], float]:
        """The thresholds by estimator and noise level."""
        return {(one.estimator, one.at): one.below for one in self.thresholds}


def read_accepted(path: Path) -> Accepted | None:
    """Read the file; None where there is none.

    Raises:
        RunError: it is not such a file, or has another schema version.
    """
    where = str(path)
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise RunError(where, "is not a file of accepted findings", "name a JSON file that --update has written")
        document = json.loads(path.read_bytes(), object_pairs_hook=_refuse_repeated_keys)
    except OSError as error:
        raise RunError(where, f"cannot be read: {error.strerror or error}") from error
    except _RepeatedKeyError as error:
        raise RunError(where, f"is damaged (the key {error.args[0]!r} appears twice in one place)", _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise RunError(where, "is damaged (not valid JSON)", _REMEDY) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version is not None and (type(version) is not int or version != SCHEMA_VERSION):
        raise RunError(where, f"is not of schema version {SCHEMA_VERSION}", "read it with the robaudit that wrote it")
    try:
        accepted = Accepted.model_validate_json(json.dumps(document))  # as JSON, in which an integer is also a float
    except (ValidationError, ValueError) as error:
        what = "not a list of findings"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RunError(where, f"is damaged ({what})", _REMEDY) from error
    if len(accepted.by_key()) < len(accepted.findings):
        raise RunError(where, "is damaged (a finding appears twice in it)", _REMEDY)
    if len(accepted.below()) < len(accepted.thresholds):
        raise RunError(where, "is damaged (one result has two thresholds)", _REMEDY)
    return accepted


class _RepeatedKeyError(ValueError):
    """A key that appears twice in an object."""


def _refuse_repeated_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a list of pairs; a key must not appear twice."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _RepeatedKeyError(printable(key))
        result[key] = value
    return result


def write_accepted(
    path: Path, header: Mapping[str, Any], thresholds: Mapping[tuple[str, NoiseLevel], float], findings: Iterable[AcceptedFinding]
) -> None:
    """Write the file by an atomic rename: sorted, so that the same findings give the same bytes. For a link, its target is written; an
    existing file keeps its permissions.

    Raises:
        RunError: it is write-protected, or the file system refuses; an existing file then stays as it was.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        **header,
        "thresholds": [{"estimator": name, **at.document(), "below": below} for (name, at), below in sorted(thresholds.items())],
        "findings": [
            {key: value for key, value in one.model_dump().items() if key != "reason" or value is not None}
            for one in sorted(findings, key=lambda one: one.key)
            if math.isfinite(one.value)
        ],
    }
    target = path.resolve() if path.is_symlink() else path
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    if mode is not None and not os.access(target, os.W_OK):
        raise RunError(str(path), "is write-protected", "name another file")
    write_atomically(target, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    if mode is not None:
        target.chmod(mode)


State = Literal["new", "unknown", "persisting", "fixed", "stale"]
STATES: tuple[State, ...] = ("new", "unknown", "persisting", "fixed", "stale")
_NAMED = 5  # new findings in the evidence of a gate


class Why(StrEnum):
    """Why this run has no value for a finding."""

    KNOWN = ""
    NOT_FINITE = "no finite value in this run"
    SKIPPED = "skipped in this run"
    OTHER_IMAGE = "another image"
    NO_SAMPLE = "not in this run"
    NO_GROUP = "this run has no such estimator and noise level"


_PREDICATES = {Why.NOT_FINITE: "without a finite value", Why.SKIPPED: "skipped"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A sample beyond the threshold, now or when it was accepted.

    Attributes:
        state: new (a finding that was not accepted), unknown (not accepted, and without a value: it was skipped, or its value is not
            finite), persisting (accepted, and not shown to be fixed), fixed (accepted, and no longer a finding, beyond its interval),
            stale (accepted, but the image is another one now, or is not in this run).
        value, lower, upper: in this run; None where it is stale or has no value.
        accepted: the value when it was accepted.
        reason: the note in the file.
        why: why there is no value in this run.
    """

    state: State
    estimator: str
    at: NoiseLevel
    sample_id: str
    image: str | None
    label: int | None = None
    predicted: int | None = None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    certainty: Certainty | None = None
    accepted: float | None = None
    reason: str | None = None
    why: Why = Why.KNOWN

    @property
    def key(self) -> Key:
        """Estimator, noise level and sample."""
        return self.estimator, self.at, self.sample_id

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return self.at.in_columns(json_values(asdict(self)))


@dataclass(frozen=True, slots=True)
class BaselineReport:
    """The comparison of a run with the accepted findings.

    Attributes:
        thresholds: by estimator and noise level, of the groups that were examined.
        findings: by state, then in the run's order.
        kept: accepted findings in groups that were not examined.
        absent: accepted findings whose sample this run does not have; they are stale.
    """

    thresholds: Mapping[tuple[str, NoiseLevel], float]
    findings: tuple[Finding, ...]
    kept: tuple[AcceptedFinding, ...]
    absent: tuple[AcceptedFinding, ...] = ()

    def of(self, state: State, group: tuple[str, NoiseLevel] | None = None) -> list[Finding]:
        """The findings in a state, in one group or in all."""
        return [one for one in self.findings if one.state == state and group in (None, one.key[:2])]

    def accepted_now(self, *, prune: bool = False) -> list[AcceptedFinding]:
        """The findings that --update writes: the present ones with their notes, those not examined, and those not in this run (unless
        ``prune``). A finding without a value in this run keeps the accepted value."""
        present = [one for one in self.findings if one.state in ("new", "persisting")]
        return [
            *self.kept,
            *(() if prune else self.absent),
            *(
                AcceptedFinding(
                    estimator=one.estimator,
                    noise=one.at.noise,
                    level_name=one.at.name,
                    level=one.at.level,
                    sample_id=one.sample_id,
                    image=one.image,
                    value=one.value if one.value is not None else one.accepted or 0.0,
                    reason=one.reason,
                )
                for one in present
            ),
        ]

    def document(self, class_names: Names | None = None) -> dict[str, Any]:
        """As JSON values, with the names of the classes (by index) beside those of the samples."""
        return {
            "thresholds": [{"estimator": name, **at.document(), "below": below} for (name, at), below in self.thresholds.items()],
            "counts": {state: len(self.of(state)) for state in STATES},
            "findings": [with_names(one.document(), class_names) for one in self.findings],
        }


def against_accepted(
    run: Run,
    accepted: Accepted | None,
    below: float | None,
    estimators: Sequence[str],
    levels: LevelChoice | Sequence[float],
    *,
    every: bool,
) -> BaselineReport:
    """Compare the samples of a run beyond the threshold with the accepted findings.

    Args:
        run: finished.
        accepted: the file, if there is one.
        below: the threshold; None: that of the file, else the usual one.
        estimators, levels: only these; all by default.
        every: findings are all samples whose value is beyond the threshold, else only those whose whole interval is.

    Raises:
        RobauditError: a threshold outside the quantity's range, or noise other than that of the file.
    """
    noises = described(run).noises
    if accepted is not None and (differing := differing_noise(accepted.noises, noises)):
        raise RunError(str(run.path), f"and the accepted findings differ in {differing}", "name another --baseline file")
    known = {} if accepted is None else accepted.by_key()
    before = {} if accepted is None else accepted.below()
    images = image_digests(run)
    skipped = [skip["sample_id"] for skip in run.info.get("skipped", ())]
    thresholds: dict[tuple[str, NoiseLevel], float] = {}
    findings: list[Finding] = []
    all_groups = run.groups()
    groups = {key: all_groups[key] for key in run.chosen(all_groups, estimators, levels)}
    for group, rows in groups.items():
        quantity = run.quantities[rows[0].quantity]
        usual = usual_threshold(quantity)
        edge = below if below is not None else before.get(group, usual)
        where = "--below" if below is not None else "the threshold of the accepted findings"
        if not math.isfinite(edge):
            raise RunError(str(run.path), f"{group[0]} has no usual threshold", "give --below, or choose other results with --estimator")
        if below is not None or edge != usual:
            check_threshold(edge, quantity, where, f"{group[0]} at {group[1]}")
        thresholds[group] = edge
        findings += _without_value(rows, skipped, group, known, images)
        findings += _with_value([row for row in rows if math.isfinite(row.value)], edge, quantity, known, images, every=every)
    examined = set(groups)
    kept, absent = [], []
    for finding in known.values():
        group = finding.estimator, finding.at
        if group in examined:
            findings.append(_stale(finding, Why.NO_SAMPLE))
            absent.append(finding)
        elif group in all_groups:
            kept.append(finding)  # left out by --estimator, --noise or --sigma
        elif not estimators and not levels:
            findings.append(_stale(finding, Why.NO_GROUP))
            absent.append(finding)
        else:
            kept.append(finding)
    findings.sort(key=lambda one: STATES.index(one.state))
    elsewhere = {(one.estimator, one.at) for one in (*kept, *absent)}
    kept_edges = {key: edge for key, edge in before.items() if key not in thresholds and key in elsewhere}
    return BaselineReport({**kept_edges, **thresholds}, tuple(findings), tuple(kept), tuple(absent))


def _with_value(
    rows: Sequence[Row], edge: float, quantity: Quantity, known: dict[Key, AcceptedFinding], images: Mapping[str, str], *, every: bool
) -> Iterator[Finding]:
    """The findings among one group's rows with a finite value; accepted ones are removed from ``known``."""
    if not rows:
        return
    group, sign = (rows[0].estimator, rows[0].at), 1.0 if quantity.higher_is_better else -1.0
    for one in flag([by_votes(row) for row in rows], below=edge, bottom=len(rows), quantity=quantity).samples:
        accepted = known.pop((*group, one.id), None)
        image = images.get(one.id)
        if accepted is not None and None not in (accepted.image, image) and accepted.image != image:
            yield _stale(accepted, Why.OTHER_IMAGE)
            accepted = None
        beyond = sign * one.value < sign * edge
        hit = beyond if every else one.certainty is Certainty.CONFIRMED
        if accepted is None and not hit:
            continue
        gone = not beyond if one.certainty is Certainty.NO_INTERVAL else one.certainty is Certainty.NO
        state: State = "new" if accepted is None else "fixed" if gone else "persisting"
        finding = Finding(state, *group, one.id, image, one.label, one.predicted, one.value, one.lower, one.upper, one.certainty)
        yield finding if accepted is None else replace(finding, accepted=accepted.value, reason=accepted.reason)


def _without_value(
    rows: Sequence[Row], skipped: Sequence[str], group: tuple[str, NoiseLevel], known: dict[Key, AcceptedFinding], images: Mapping[str, str]
) -> Iterator[Finding]:
    """The samples of one group without a value in this run: accepted ones stay accepted, and the others may be findings."""
    missing: list[tuple[str, int | None, int | None, Why]]
    missing = [(row.sample_id, row.label, row.predicted, Why.NOT_FINITE) for row in rows if not math.isfinite(row.value)]
    for sample_id, label, predicted, why in (*missing, *((one, None, None, Why.SKIPPED) for one in skipped)):
        accepted = known.pop((*group, sample_id), None)
        if accepted is not None:
            yield replace(_stale(accepted, why), state="persisting", label=label, predicted=predicted)
            continue
        yield Finding("unknown", *group, sample_id, images.get(sample_id), label, predicted, why=why)


def _stale(one: AcceptedFinding, why: Why) -> Finding:
    return Finding("stale", one.estimator, one.at, one.sample_id, one.image, accepted=one.value, reason=one.reason, why=why)


def decisions(report: BaselineReport, groups: Sequence[tuple[str, NoiseLevel]], *, accepting: bool = False) -> tuple[Decision, ...]:
    """A gate for each group: no new finding. It always passes where the new ones are about to be accepted.

    Samples without a value may be new findings: they leave it inconclusive.
    """
    return tuple(_decision(report, group, accepting) for group in groups)


def _decision(report: BaselineReport, group: tuple[str, NoiseLevel], accepting: bool) -> Decision:
    new = report.of("new", group)
    counts = ", ".join(f"{len(report.of(state, group))} {state}" for state in STATES)
    named = ", ".join(one.sample_id for one in new[:_NAMED]) + (", ..." if len(new) > _NAMED else "")
    unknown = report.of("unknown", group)
    value, most = float(len(new)), float(len(new) + len(unknown))
    verdict = "pass" if accepting else judge("<=", 0.0, value, most)
    evidence = f"{counts} below {report.thresholds[group]:g}" + (f"; new{' and accepted now' if accepting else ''}: {named}" if new else "")
    if unknown:
        numbers = Counter(one.why for one in unknown)
        reasons = " and ".join(f"{number} {_PREDICATES[why]}" for why, number in numbers.items())
        evidence += f"; {len(unknown)} may be findings: {reasons}"
    method = Method.COUNTED if unknown else Method.EXACT
    return Decision(Gate("new_findings", "<=", 0.0).about(*group), value, value, most, method, Covers.MEASUREMENT, 0.95, verdict, evidence)
