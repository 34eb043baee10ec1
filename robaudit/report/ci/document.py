"""The JSON of decided gates, and the published schemas of what robaudit writes for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from robaudit.compare.result import Comparison
from robaudit.documents import Document, json_schema
from robaudit.gates.decide import EXIT_CODES, Decision, Verdict, overall
from robaudit.runs.info import RunInfo
from robaudit.spec.gates import WARNINGS


@dataclass(frozen=True, slots=True)
class Weights(Document):
    """Name of a model, and sha256 of its weights."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Subject(Document):
    """What every format says about the run besides its gates.

    Attributes:
        command: the command that decided: gate, compare, estimate.
        name: of the run.
        model, sha256: the model's name and the checksum of its weights.
        identity: sha256 of what the run computes.
        robaudit: the version that made the run.
        against: of a comparison, the run that it was compared with.
        warnings: of the run; they come before its gates in every format.
        skipped: samples that the run should have measured but could not.
        left_out: further samples that the gates ignore or count only in part, counted by reason.
    """

    members = "name model=weights identity robaudit"

    command: str
    name: str
    model: str
    sha256: str
    identity: str
    robaudit: str | None
    against: Subject | None = None
    warnings: Sequence[str] = ()
    skipped: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        info: RunInfo,
        command: str = "gate",
        against: Subject | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> Subject:
        """From a run's run.json."""
        version, skipped, model = info.versions.get("robaudit"), info.totals.skipped, info.model
        name, identity = info.name, info.identity
        warnings = tuple(info.warnings)
        return cls(command, name, model.name, model.sha256, identity, version, against, warnings, skipped, left_out or {})

    @property
    def weights(self) -> Weights:
        """The audited model."""
        return Weights(self.model, self.sha256)

    def untold(self, decisions: Sequence[Decision]) -> Sequence[str]:
        """The warnings; none where a gate on warnings reports them."""
        return () if any(decision.gate.quantity == WARNINGS for decision in decisions) else self.warnings

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the samples left out by reason: ``skipped`` (in a comparison also ``base_skipped``), and ``left_out``."""
        base = {} if self.against is None else {"base_skipped": self.against.skipped}
        return {"skipped": self.skipped, **base, **self.left_out}


def counted(decision: Decision, inconclusive: Verdict) -> Verdict:
    """The verdict behind the exit code: an inconclusive gate counts as ``--inconclusive`` says."""
    return inconclusive if decision.verdict == "inconclusive" else decision.verdict


@dataclass(frozen=True, slots=True)
class GatesDocument(Document):
    """What robaudit gate writes: keys may be added within a version; none is taken away or changes its meaning.

    Attributes:
        schema_version: of this document.
        subject: the run.
        gates: in the order they were given.
        inconclusive_counts_as: what an inconclusive gate counts as.
    """

    members = (
        "schema_version subject.command verdict exit_code inconclusive_counts_as subject.warnings run=subject base=subject.against "
        "left_out=subject.counts gates"
    )

    gates: Sequence[Decision]
    subject: Subject
    inconclusive_counts_as: Verdict
    schema_version: Literal[1] = field(default=1, kw_only=True)

    @property
    def verdict(self) -> Verdict:
        """On all gates: fail if one fails, else inconclusive if one is (or what it counts as), else pass."""
        return overall(self.gates, self.inconclusive_counts_as)

    @property
    def exit_code(self) -> Literal[0, 1, 4]:
        """0 pass, 1 fail, 4 inconclusive."""
        return EXIT_CODES[self.verdict]


@dataclass(frozen=True, slots=True)
class CompareDocument(GatesDocument):
    """What robaudit compare writes: the gates (none without --gate), and what differs between the two runs.

    Attributes:
        comparison: new against base.
    """

    members = f"{GatesDocument.members} comparison"

    comparison: Comparison


def gates_json(decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive") -> str:
    """The JSON text of :class:`GatesDocument`.

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    return json_text(GatesDocument(decisions, subject, inconclusive).document())


def json_text(document: Mapping[str, Any]) -> str:
    """Indented JSON that never holds NaN or infinity."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def published(name: str) -> str:
    """The text of the JSON schema of a document: gates or compare."""
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:robaudit:schema:{name}:1"}
    return json_text({**about, **json_schema({"gates": GatesDocument, "compare": CompareDocument}[name])})
