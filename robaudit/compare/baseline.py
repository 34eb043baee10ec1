"""A run against the file of accepted findings: which are new, which persist, which are gone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from robaudit.compare.accepted import Accepted, AcceptedFinding, Key
from robaudit.compare.matching import described, image_digests
from robaudit.errors import RunError
from robaudit.gates.decide import Decision, judge
from robaudit.quantities import Quantity
from robaudit.rows import Row
from robaudit.spec_gates import Gate
from robaudit.stats.flags import Certainty, check_threshold, flag, usual_threshold
from robaudit.stats.groups import json_values
from robaudit.store.run import Run

State = Literal["new", "unknown", "persisting", "fixed", "stale"]
STATES: tuple[State, ...] = ("new", "unknown", "persisting", "fixed", "stale")
_NAMED = 5  # new findings in the evidence of a gate
NOT_FINITE, SKIPPED = "no finite value in this run", "skipped in this run"


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
    why: str = ""

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
            found.append(_stale(there, "not in this run"))
            absent.append(there)
        elif group in all_groups:
            kept.append(there)  # left out by --estimator or --sigma
        elif not estimators and not sigmas:
            found.append(_stale(there, "this run has no such estimator and noise level"))
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
            yield _stale(there, "another image")
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
    lost: list[tuple[str, int | None, int | None, str]]
    lost = [(row.sample_id, row.label, row.predicted, NOT_FINITE) for row in rows if not math.isfinite(row.value)]
    for sample_id, label, predicted, why in (*lost, *((one, None, None, SKIPPED) for one in skipped)):
        there = known.pop((*group, sample_id), None)
        if there is not None:
            yield replace(_stale(there, why), state="persisting", label=label, predicted=predicted)
            continue
        yield Finding("unknown", *group, sample_id, images.get(sample_id), label, predicted, why=why)


def _stale(there: AcceptedFinding, why: str) -> Finding:
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
        reasons = " and ".join(f"{sum(one.why == why for one in unknown)} {words_of}" for why, words_of in _reasons(unknown))
        words += f"; {len(unknown)} may be findings: {reasons}"
    method = "counted" if unknown else "exact"
    return Decision(Gate("new_findings", "<=", 0.0, *group), value, value, most, method, "these images", 0.95, verdict, words)


def _reasons(unknown: Sequence[Finding]) -> list[tuple[str, str]]:
    words = {NOT_FINITE: "without a finite value", SKIPPED: "skipped"}
    return [(why, words[why]) for why in dict.fromkeys(one.why for one in unknown)]
