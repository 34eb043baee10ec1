"""Accepted findings: the file of them, and a run held against it."""

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

from robaudit.compare.matching import described, image_digests
from robaudit.errors import RunError
from robaudit.files import write_atomically
from robaudit.gates.decide import Covers, Decision, judge
from robaudit.gates.measure import Method
from robaudit.quantities import Quantity
from robaudit.rows import LARGEST, Row
from robaudit.spec.gates import Gate
from robaudit.stats.flags import Certainty, check_threshold, flag, usual_threshold
from robaudit.stats.groups import json_values
from robaudit.store.run import Run
from robaudit.text import printable

SCHEMA_VERSION = 1
_REMEDY = "restore it, or delete it and write another one with --update"
_LARGEST_FILE = 2**28

Key = tuple[str, float, str]
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, protected_namespaces=())


class AcceptedFinding(_Strict):
    """A sample that is known not to be robust.

    Attributes:
        image: digest of its pixels; None where the run did not say.
        value: what it was when it was accepted.
        reason: what somebody wrote beside it; kept as it is.
    """

    estimator: str
    sigma: Number
    sample_id: str
    image: str | None
    value: Number
    reason: str | None = None

    @property
    def key(self) -> Key:
        """What it is a finding of."""
        return self.estimator, self.sigma, self.sample_id


class Threshold(_Strict):
    """Where a finding begins, for one estimator at one noise level."""

    estimator: str
    sigma: Number
    below: Number


class _Model(_Strict):
    name: str
    sha256: str


class Accepted(_Strict):
    """The file.

    Attributes:
        model: that of the run whose findings were accepted last.
        noise: the kind of noise.
        include: whether findings are those sure beyond their interval, or all beyond the threshold.
    """

    schema_version: Literal[1]
    model: _Model
    noise: str
    include: Literal["surely", "maybe"]
    thresholds: list[Threshold]
    findings: list[AcceptedFinding]

    def by_key(self) -> dict[Key, AcceptedFinding]:
        """The findings by what they are of."""
        return {one.key: one for one in self.findings}

    def below(self) -> dict[tuple[str, float], float]:
        """The thresholds by estimator and noise level."""
        return {(one.estimator, one.sigma): one.below for one in self.thresholds}


def read_accepted(path: Path) -> Accepted | None:
    """Read the file; None where there is none.

    Raises:
        RunError: it is not such a file, or of a newer version.
    """
    where = str(path)
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise RunError(where, "is not a file of accepted findings", "name a JSON file that --update has written")
        document = json.loads(path.read_bytes(), object_pairs_hook=_once)
    except OSError as error:
        raise RunError(where, f"cannot be read: {error.strerror or error}") from error
    except _TwiceError as error:
        raise RunError(where, f"is damaged (the key {error.args[0]!r} appears twice in one place)", _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise RunError(where, "is damaged (not valid JSON)", _REMEDY) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version is not None and (type(version) is not int or version != SCHEMA_VERSION):
        raise RunError(where, f"is not of schema version {SCHEMA_VERSION}", "read it with the robaudit that wrote it")
    try:
        found = Accepted.model_validate_json(json.dumps(document))  # as JSON: a whole number is a float, too
    except (ValidationError, ValueError) as error:
        what = "not a list of findings"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RunError(where, f"is damaged ({what})", _REMEDY) from error
    if len(found.by_key()) < len(found.findings):
        raise RunError(where, "is damaged (a finding appears twice in it)", _REMEDY)
    if len(found.below()) < len(found.thresholds):
        raise RunError(where, "is damaged (one result has two thresholds)", _REMEDY)
    return found


class _TwiceError(ValueError):
    """A key that appears twice in an object."""


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object of its keys and values, each key once."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(printable(key))
        found[key] = value
    return found


def write_accepted(
    path: Path, header: Mapping[str, Any], thresholds: Mapping[tuple[str, float], float], found: Iterable[AcceptedFinding]
) -> None:
    """Write the file by an atomic rename: sorted, so that the same findings give the same bytes. Of a link, the file that it leads to
    is written; one that is there keeps its permissions.

    Raises:
        RunError: it is write-protected, or the disk refuses; an old file is untouched.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        **header,
        "thresholds": [{"estimator": name, "sigma": sigma, "below": below} for (name, sigma), below in sorted(thresholds.items())],
        "findings": [
            {key: value for key, value in one.model_dump().items() if key != "reason" or value is not None}
            for one in sorted(found, key=lambda one: one.key)
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
    """Why nothing is known of a finding now."""

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
        state: new (found, and not accepted), unknown (not accepted, and not known: it was skipped, or its value is not finite),
            persisting (accepted, and not surely gone), fixed (accepted, and surely no finding any more), stale (accepted, but the
            image is another one now, or is not in this run).
        value, lower, upper: now; None where it is stale or not known.
        accepted: the value when it was accepted.
        reason: what somebody wrote beside it.
    """

    state: State
    estimator: str
    sigma: float
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
        """What it is a finding of."""
        return self.estimator, self.sigma, self.sample_id

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class BaselineReport:
    """A run against the accepted findings.

    Attributes:
        thresholds: by estimator and noise level; those of the groups that were looked at.
        findings: by state, then as in the run.
        kept: accepted findings of results that were not looked at.
        absent: accepted findings that this run does not have; they are stale.
    """

    thresholds: Mapping[tuple[str, float], float]
    findings: tuple[Finding, ...]
    kept: tuple[AcceptedFinding, ...]
    absent: tuple[AcceptedFinding, ...] = ()

    def of(self, state: State, group: tuple[str, float] | None = None) -> list[Finding]:
        """Those in a state, of one group or of all."""
        return [one for one in self.findings if one.state == state and group in (None, one.key[:2])]

    def accepted_now(self, *, prune: bool = False) -> list[AcceptedFinding]:
        """What --update writes: findings, with what was written beside them, what was not looked at, and what is not in this run
        (unless ``prune``). Of a finding that is not known now, the value when it was accepted."""
        present = [one for one in self.findings if one.state in ("new", "persisting")]
        return [
            *self.kept,
            *(() if prune else self.absent),
            *(
                AcceptedFinding(
                    estimator=one.estimator,
                    sigma=one.sigma,
                    sample_id=one.sample_id,
                    image=one.image,
                    value=one.value if one.value is not None else one.accepted or 0.0,
                    reason=one.reason,
                )
                for one in present
            ),
        ]

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "thresholds": [{"estimator": name, "sigma": sigma, "below": below} for (name, sigma), below in self.thresholds.items()],
            "counts": {state: len(self.of(state)) for state in STATES},
            "findings": [one.document() for one in self.findings],
        }


def against_accepted(
    run: Run, accepted: Accepted | None, below: float | None, estimators: Sequence[str], sigmas: Sequence[float], *, maybe: bool
) -> BaselineReport:
    """Find the samples of a run beyond the threshold and look each up.

    Args:
        run: finished.
        accepted: the file, if there is one.
        below: the threshold; None: that of the file, else the usual one.
        estimators, sigmas: only these.
        maybe: findings are all samples beyond the threshold, else those whose whole interval is.

    Raises:
        RobauditError: a threshold that the quantity cannot reach, or other noise than that of the file.
    """
    noise = described(run).kind
    if accepted is not None and accepted.noise != noise:
        raise RunError(str(run.path), f"has {noise} noise, and the accepted findings {accepted.noise}", "name another --baseline file")
    known = {} if accepted is None else accepted.by_key()
    before = {} if accepted is None else accepted.below()
    images = image_digests(run)
    skipped = [skip["sample_id"] for skip in run.info.get("skipped", ())]
    thresholds: dict[tuple[str, float], float] = {}
    found: list[Finding] = []
    all_groups = run.groups()
    groups = {key: all_groups[key] for key in run.chosen(all_groups, estimators, sigmas)}
    for group, rows in groups.items():
        quantity = run.quantities[rows[0].quantity]
        usual = usual_threshold(quantity)
        edge = below if below is not None else before.get(group, usual)
        where = "--below" if below is not None else "the threshold of the accepted findings"
        if below is not None or edge != usual:
            check_threshold(edge, quantity, where, f"{group[0]} at sigma {group[1]:g}")
        thresholds[group] = edge
        found += _unknown(rows, skipped, group, known, images)
        found += _seen([row for row in rows if math.isfinite(row.value)], edge, quantity, known, images, maybe=maybe)
    looked_at = set(groups)
    kept, absent = [], []
    for there in known.values():
        group = there.estimator, there.sigma
        if group in looked_at:
            found.append(_stale(there, Why.NO_SAMPLE))
            absent.append(there)
        elif group in all_groups:
            kept.append(there)  # left out by --estimator or --sigma
        elif not estimators and not sigmas:
            found.append(_stale(there, Why.NO_GROUP))
            absent.append(there)
        else:
            kept.append(there)
    found.sort(key=lambda one: STATES.index(one.state))
    elsewhere = {(one.estimator, one.sigma) for one in (*kept, *absent)}
    kept_edges = {key: edge for key, edge in before.items() if key not in thresholds and key in elsewhere}
    return BaselineReport({**kept_edges, **thresholds}, tuple(found), tuple(kept), tuple(absent))


def _seen(
    rows: Sequence[Row], edge: float, quantity: Quantity, known: dict[Key, AcceptedFinding], images: Mapping[str, str], *, maybe: bool
) -> Iterator[Finding]:
    """The findings of one group's rows with a finite value; those accepted are taken out of ``known``."""
    if not rows:
        return
    group, sign = (rows[0].estimator, rows[0].sigma), 1.0 if quantity.higher_is_better else -1.0
    for one in flag(rows, below=edge, bottom=len(rows), quantity=quantity).samples:
        there = known.pop((*group, one.id), None)
        image = images.get(one.id)
        if there is not None and None not in (there.image, image) and there.image != image:
            yield _stale(there, Why.OTHER_IMAGE)
            there = None
        beyond = sign * one.value < sign * edge
        hit = beyond if maybe else one.certainty in ("surely", "likely")
        if there is None and not hit:
            continue
        gone = not beyond if one.certainty == "no interval" else one.certainty == "no"
        state: State = "new" if there is None else "fixed" if gone else "persisting"
        seen = Finding(state, *group, one.id, image, one.label, one.predicted, one.value, one.lower, one.upper, one.certainty)
        yield seen if there is None else replace(seen, accepted=there.value, reason=there.reason)


def _unknown(
    rows: Sequence[Row], skipped: Sequence[str], group: tuple[str, float], known: dict[Key, AcceptedFinding], images: Mapping[str, str]
) -> Iterator[Finding]:
    """The samples of one group of which this run says nothing: what was accepted stays so, and the others may be findings."""
    lost: list[tuple[str, int | None, int | None, Why]]
    lost = [(row.sample_id, row.label, row.predicted, Why.NOT_FINITE) for row in rows if not math.isfinite(row.value)]
    for sample_id, label, predicted, why in (*lost, *((one, None, None, Why.SKIPPED) for one in skipped)):
        there = known.pop((*group, sample_id), None)
        if there is not None:
            yield replace(_stale(there, why), state="persisting", label=label, predicted=predicted)
            continue
        yield Finding("unknown", *group, sample_id, images.get(sample_id), label, predicted, why=why)


def _stale(there: AcceptedFinding, why: Why) -> Finding:
    return Finding("stale", there.estimator, there.sigma, there.sample_id, there.image, accepted=there.value, reason=there.reason, why=why)


def decisions(report: BaselineReport, groups: Sequence[tuple[str, float]], *, accepting: bool = False) -> tuple[Decision, ...]:
    """A gate for each group: no new finding; it passes in any case where the new ones are about to be accepted.

    Samples of which nothing is known may be new findings: they leave it open.
    """
    return tuple(_decision(report, group, accepting) for group in groups)


def _decision(report: BaselineReport, group: tuple[str, float], accepting: bool) -> Decision:
    new = report.of("new", group)
    counts = ", ".join(f"{len(report.of(state, group))} {state}" for state in STATES)
    named = ", ".join(one.sample_id for one in new[:_NAMED]) + (", ..." if len(new) > _NAMED else "")
    unknown = report.of("unknown", group)
    value, most = float(len(new)), float(len(new) + len(unknown))
    verdict = "pass" if accepting else judge("<=", 0.0, value, most)
    words = f"{counts} below {report.thresholds[group]:g}" + (f"; new{' and accepted now' if accepting else ''}: {named}" if new else "")
    if unknown:
        numbers = Counter(one.why for one in unknown)
        reasons = " and ".join(f"{number} {_PREDICATES[why]}" for why, number in numbers.items())
        words += f"; {len(unknown)} may be findings: {reasons}"
    method = Method.COUNTED if unknown else Method.EXACT
    return Decision(Gate("new_findings", "<=", 0.0, *group), value, value, most, method, Covers.MEASUREMENT, 0.95, verdict, words)
