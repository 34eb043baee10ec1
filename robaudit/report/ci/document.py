"""The JSON of decided gates, and the published schemas of what robaudit writes for other
programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from robaudit.compare.result import Comparison
from robaudit.gates.decide import EXIT_CODES, Decision, Verdict, overall
from robaudit.records import Record, json_schema
from robaudit.runs.info import RunInfo
from robaudit.spec.gate_grammar import WARNINGS


@dataclass(frozen=True, slots=True)
class Weights(Record):
    """Name of a model, and sha256 of its weights."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Subject(Record):
    """What every format says about the run besides its gates.

    Attributes:
        command: the command that decided: gate, compare, estimate.
        name: of the run.
        model: The audited model.
        identity: sha256 of what the run computes.
        robaudit: the version that made the run.
        against: of a comparison, the run that it was compared with.
        warnings: of the run; they come before its gates in every format.
        skipped: samples that the run should have measured but could not.
        left_out: further samples that the gates ignore or count only in part, counted by reason.
        seconds: that the run took.
    """

    command: Annotated[str, Field(exclude=True)]
    name: str
    model: Weights
    identity: str
    robaudit: str | None
    against: Annotated[Subject | None, Field(exclude=True)] = None
    warnings: Annotated[Sequence[str], Field(exclude=True)] = ()
    skipped: Annotated[int, Field(exclude=True)] = 0
    left_out: Annotated[Mapping[str, int], Field(exclude=True)] = field(default_factory=dict)
    seconds: Annotated[float, Field(exclude=True)] = 0.0

    @classmethod
    def from_info(
        cls,
        info: RunInfo,
        command: str = "gate",
        against: Subject | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> Subject:
        """From a run's run.json."""
        return cls(
            command=command,
            name=info.name,
            model=Weights(info.model.name, info.model.sha256),
            identity=info.identity,
            robaudit=info.versions.get("robaudit"),
            against=against,
            warnings=tuple(info.notices),
            skipped=info.totals.skipped,
            left_out=left_out or {},
            seconds=info.totals.seconds,
        )

    def unreported_warnings(self, decisions: Sequence[Decision]) -> Sequence[str]:
        """The warnings; none where a gate on warnings reports them."""
        if any(decision.gate.quantity == WARNINGS for decision in decisions):
            return ()
        return self.warnings

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the samples left out by reason: ``skipped`` (in a comparison also
        ``base_skipped``), and ``left_out``."""
        # a comparison loses a sample that either run skipped
        base = {} if self.against is None else {"base_skipped": self.against.skipped}
        return {"skipped": self.skipped, **base, **self.left_out}


def counted(decision: Decision, inconclusive: Verdict) -> Verdict:
    """The verdict behind the exit code: an inconclusive gate counts as ``--inconclusive`` says."""
    return inconclusive if decision.verdict == "inconclusive" else decision.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GatesDocument(Record):
    """What robaudit gate writes: keys may be added within a version; none is taken away or changes
    its meaning.

    Attributes:
        schema_version: of this document.
        command: the command that decided: gate, compare, estimate.
        verdict: On all gates: fail if one fails, else inconclusive if one is (or what it counts
            as), else pass.
        exit_code: 0 pass, 1 fail, 4 inconclusive.
        inconclusive_counts_as: what an inconclusive gate counts as.
        warnings: of the run; they come before its gates in every format.
        run: the run.
        base: of a comparison, the run that it was compared with.
        left_out: Counts of the samples left out by reason: ``skipped`` (in a comparison also
            ``base_skipped``), and ``left_out``.
        gates: in the order they were given.
    """

    schema_version: Literal[1] = 1
    command: str
    verdict: Verdict
    exit_code: Literal[0, 1, 4]
    inconclusive_counts_as: Verdict
    warnings: Sequence[str]
    run: Subject
    base: Subject | None
    left_out: Mapping[str, int]
    gates: Sequence[Decision]

    @classmethod
    def from_decisions(
        cls, decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict, **more: Any
    ) -> Self:
        """The document on these decisions.

        Args:
            decisions: the gates.
            subject: the run.
            inconclusive: what an inconclusive gate counts as.
            more: the further members of a subclass.
        """
        verdict = overall(decisions, inconclusive)
        return cls(
            command=subject.command,
            verdict=verdict,
            exit_code=EXIT_CODES[verdict],
            inconclusive_counts_as=inconclusive,
            warnings=subject.warnings,
            run=subject,
            base=subject.against,
            left_out=subject.counts,
            gates=decisions,
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument(GatesDocument):
    """What robaudit compare writes: the gates (none without --gate), and what differs between the
    two runs.

    Attributes:
        comparison: new against base.
    """

    comparison: Comparison


def gates_json(
    decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive"
) -> str:
    """The JSON text of :class:`GatesDocument`.

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    return json_text(GatesDocument.from_decisions(decisions, subject, inconclusive).document())


def json_text(document: Mapping[str, Any]) -> str:
    """Indented JSON that never holds NaN or infinity."""
    # NaN is no JSON: an error here is better than a file that no other program reads
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def published(name: str) -> str:
    """The text of the JSON schema of a document: gates or compare."""
    documents = {"gates": GatesDocument, "compare": CompareDocument}
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:robaudit:schema:{name}:1",
    }
    return json_text({**about, **json_schema(documents[name])})
