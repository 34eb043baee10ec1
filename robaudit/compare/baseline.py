"""Which findings of a run are new, which were accepted before, and which are gone?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from robaudit.compare.accepted import Accepted, AcceptedFinding, Key
from robaudit.compare.matching import described, image_digests
from robaudit.compare.sections import Section
from robaudit.errors import RunError
from robaudit.gates.grammar import Gate
from robaudit.gates.result import Decision, judge
from robaudit.reports import numbers
from robaudit.reports.headline import count
from robaudit.reports.names import Names, class_name, shortened
from robaudit.runs import Run
from robaudit.summary.flags import flag, usual_threshold
from robaudit.summary.flags_result import Certainty
from robaudit.summary.groups import json_values

State = Literal["new", "persisting", "fixed", "stale"]
STATES: tuple[State, ...] = ("new", "persisting", "fixed", "stale")
_SHOWN = 20
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """A sample beyond the threshold, now or when it was accepted.

    Attributes:
        state: new (found, and not accepted), persisting (accepted, and not surely gone), fixed (accepted, and surely no finding any
            more), stale (accepted, but the image is another one now, or is not in this run).
        value, lower, upper: now; None where it is stale.
        accepted: the value when it was accepted.
        reason: what somebody wrote beside it.
    """

    state: State
    estimator: str
    sigma: float
    sample_id: str
    image: str | None
    label: int | None
    predicted: int | None
    value: float | None
    lower: float | None
    upper: float | None
    certainty: Certainty | None
    accepted: float | None
    reason: str | None
    why: str = ""

    @property
    def key(self) -> Key:
        """What it is a finding of."""
        return self.estimator, self.sigma, self.sample_id

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class Standing:
    """A run against the accepted findings.

    Attributes:
        thresholds: by estimator and noise level; those of the groups that were looked at.
        findings: by state, then as in the run.
        kept: accepted findings of results that were not looked at.
    """

    thresholds: Mapping[tuple[str, float], float]
    findings: tuple[Finding, ...]
    kept: tuple[AcceptedFinding, ...]

    def of(self, state: State, group: tuple[str, float] | None = None) -> list[Finding]:
        """Those in a state, of one group or of all."""
        return [one for one in self.findings if one.state == state and group in (None, one.key[:2])]

    def accepted_now(self) -> list[AcceptedFinding]:
        """What --update writes: findings, with what was written beside them, and what was not looked at."""
        present = [one for one in self.findings if one.state in ("new", "persisting") and one.value is not None]
        return [
            *self.kept,
            *(
                AcceptedFinding(
                    estimator=one.estimator,
                    sigma=one.sigma,
                    sample_id=one.sample_id,
                    image=one.image,
                    value=one.value or 0.0,
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


def stand(
    run: Run, accepted: Accepted | None, below: float | None, estimators: Sequence[str], sigmas: Sequence[float], *, maybe: bool
) -> Standing:
    """Find the samples of a run beyond the threshold and look each up.

    Args:
        run: finished.
        accepted: the file, if there is one.
        below: the threshold; None: that of the file, else the usual one.
        estimators, sigmas: only these.
        maybe: findings are all samples beyond the threshold, else those whose whole interval is.

    Raises:
        RobauditError: a threshold that is no number, or other noise than that of the file.
    """
    noise = described(run).kind
    if accepted is not None and accepted.noise != noise:
        raise RunError(str(run.path), f"has {noise} noise, and the accepted findings {accepted.noise}", "name another --baseline file")
    known = {} if accepted is None else accepted.by_key()
    before = {} if accepted is None else accepted.below()
    images = image_digests(run)
    thresholds: dict[tuple[str, float], float] = {}
    found: list[Finding] = []
    all_groups = run.groups()
    groups = {key: all_groups[key] for key in run.chosen(all_groups, estimators, sigmas)}
    for group, rows in groups.items():
        quantity = run.quantities[rows[0].quantity]
        edge = below if below is not None else before.get(group, usual_threshold(quantity))
        thresholds[group] = edge
        sign = 1.0 if quantity.higher_is_better else -1.0
        for one in flag(rows, below=edge, bottom=len(rows), quantity=quantity).samples:
            there = known.pop((*group, one.id), None)
            image = images.get(one.id)
            if there is not None and None not in (there.image, image) and there.image != image:
                found.append(_stale(there, "another image"))
                there = None
            beyond = sign * one.value < sign * edge
            hit = beyond if maybe else one.certainty in ("surely", "likely")
            if there is None and not hit:
                continue
            gone = not beyond if one.certainty == "no interval" else one.certainty == "no"
            state: State = "new" if there is None else "fixed" if gone else "persisting"
            found.append(
                Finding(
                    state=state,
                    estimator=group[0],
                    sigma=group[1],
                    sample_id=one.id,
                    image=image,
                    label=one.label,
                    predicted=one.predicted,
                    value=one.value,
                    lower=one.lower,
                    upper=one.upper,
                    certainty=one.certainty,
                    accepted=None if there is None else there.value,
                    reason=None if there is None else there.reason,
                )
            )
    looked_at = set(groups)
    kept = []
    for there in known.values():
        group = there.estimator, there.sigma
        if group in looked_at:
            found.append(_stale(there, "not in this run"))
        elif group in all_groups:
            kept.append(there)  # left out by --estimator or --sigma
        elif not estimators and not sigmas:
            found.append(_stale(there, "this run has no such estimator and noise level"))
        else:
            kept.append(there)
    found.sort(key=lambda one: STATES.index(one.state))
    kept_edges = {key: edge for key, edge in before.items() if key not in thresholds and any((k.estimator, k.sigma) == key for k in kept)}
    return Standing({**kept_edges, **thresholds}, tuple(found), tuple(kept))


def decisions(standing: Standing, groups: Sequence[tuple[str, float]], *, accepting: bool = False) -> tuple[Decision, ...]:
    """A gate for each group: no new finding; it passes in any case where the new ones are about to be accepted."""
    return tuple(_decision(standing, group, accepting) for group in groups)


def _decision(standing: Standing, group: tuple[str, float], accepting: bool) -> Decision:
    new = standing.of("new", group)
    counts = ", ".join(f"{len(standing.of(state, group))} {state}" for state in STATES)
    named = ", ".join(one.sample_id for one in new[:_NAMED]) + (", ..." if len(new) > _NAMED else "")
    value = float(len(new))
    verdict = "pass" if accepting else judge("<=", 0.0, value, value)
    words = f"{counts} below {standing.thresholds[group]:g}" + (f"; new{' and accepted now' if accepting else ''}: {named}" if new else "")
    return Decision(Gate("new_findings", "<=", 0.0, *group), value, value, value, "exact", "these images", 0.95, verdict, words)


def baseline_sections(standing: Standing, names: Names | None) -> list[Section]:
    """The report for a reader."""
    head = ", ".join(f"{len(standing.of(state)):,} {state}" for state in STATES)
    rows = [_row(one, names) for one in standing.findings if one.state != "persisting"]
    left = len(rows) - _SHOWN
    notes = [f"... and {left:,} more, which --format json holds."] if left > 0 else []
    lines = [f"{count(len(standing.findings), 'finding')}: {head}"]
    if not rows:
        return [Section("against the accepted findings", lines)]
    columns = ("", "estimator", "sigma", "sample", "label", "predicted", "accepted", "now [95 %]", "remark")
    return [Section("against the accepted findings", lines, columns, rows[:_SHOWN], 6, notes)]


def _row(one: Finding, names: Names | None) -> tuple[str, ...]:
    now = "" if one.value is None else numbers.with_interval(one.value, one.lower, one.upper, float("-inf"), float("inf"))
    before = "" if one.accepted is None else f"{one.accepted:.4g}"
    classes = (class_name(index, names, 20) for index in (one.label, one.predicted))
    remark = "; ".join(filter(None, [one.why, one.reason or ""]))
    return (one.state, one.estimator, f"{one.sigma:.6g}", shortened(one.sample_id, 40), *classes, before, now, remark[:60])


def _stale(there: AcceptedFinding, why: str) -> Finding:
    return Finding(
        state="stale",
        estimator=there.estimator,
        sigma=there.sigma,
        sample_id=there.sample_id,
        image=there.image,
        label=None,
        predicted=None,
        value=None,
        lower=None,
        upper=None,
        certainty=None,
        accepted=there.value,
        reason=there.reason,
        why=why,
    )
