"""The JSON of decided gates, and the published schemas of what robaudit writes for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from robaudit.gates.decide import EXIT_CODES, Decision, Verdict, overall
from robaudit.spec.gates import WARNINGS

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """What every format says about the run besides its gates.

    Attributes:
        command: the command that decided: gate, compare, estimate.
        name: of the run.
        model, sha256: the model's name and the checksum of its weights.
        identity: sha256 of what the run computes.
        robaudit: the version that made the run.
        against: of a comparison, the run that it was compared with.
        warnings: of the run; they lead whatever is written about its gates.
        skipped: samples that the run should have measured but could not.
        left_out: counts, by name, of other samples that the gates ignore or count only in part.
    """

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
        info: Mapping[str, Any],
        command: str = "gate",
        against: Subject | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> Subject:
        """From a run's run.json."""
        version, skipped, model = info.get("versions", {}).get("robaudit"), info.get("totals", {}).get("skipped", 0), info["model"]
        name, identity = info["name"], info["identity"]
        warnings = tuple(info["warnings"])
        return cls(command, name, model["name"], model["sha256"], identity, version, against, warnings, skipped, left_out or {})

    def untold(self, decisions: Sequence[Decision]) -> Sequence[str]:
        """The warnings, unless one of the gates is about them and tells them."""
        return () if any(one.gate.quantity == WARNINGS for one in decisions) else self.warnings

    def counts(self) -> dict[str, int]:
        """Counts of the samples left out, by name: ``skipped`` (of a comparison also ``base_skipped``), and ``left_out``."""
        base = {} if self.against is None else {"base_skipped": self.against.skipped}
        return {"skipped": self.skipped, **base, **self.left_out}

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "model": {"name": self.model, "sha256": self.sha256},
            "identity": self.identity,
            "robaudit": self.robaudit,
        }


def counted(decision: Decision, inconclusive: Verdict) -> Verdict:
    """The verdict that the exit code goes by: an inconclusive gate is what ``--inconclusive`` makes of it."""
    return inconclusive if decision.verdict == "inconclusive" else decision.verdict


def gates_json(decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive") -> str:
    """The JSON text of :func:`decisions_document`; its schema is ``robaudit list schema --for gates``."""
    return json_text(decisions_document(decisions, subject, inconclusive=inconclusive))


def decisions_document(decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive") -> dict[str, Any]:
    """Schema version, verdict, exit code, the run, and the gates in the order they were given, as JSON values.

    An absent interval and an infinite end of one are both null; an absent one has the method "none".

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    verdict = overall(decisions, inconclusive)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": subject.command,
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "inconclusive_counts_as": inconclusive,
        "warnings": list(subject.warnings),
        "run": subject.document(),
        "base": None if subject.against is None else subject.against.document(),
        "left_out": subject.counts(),
        "gates": [one.document() for one in decisions],
    }


def json_text(document: Mapping[str, Any]) -> str:
    """Indented JSON that never holds NaN or infinity."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def published(name: str) -> str:
    """The text of the newest schema of a document: gates or compare."""
    return (files("robaudit.report.ci") / f"{name}.v1.json").read_text(encoding="utf-8")
