"""Which run were the gates decided on?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robaudit.gates.result import Decision, Verdict


@dataclass(frozen=True, slots=True)
class Subject:
    """What every format says of the run beside its gates.

    Attributes:
        command: the command that decided: gate, compare, estimate.
        name: of the run.
        model, sha256: the model's name and the checksum of its weights.
        identity: sha256 of what the run computes.
        robaudit: the version that made the run.
        against: of a comparison, the run that it was compared with.
        skipped: samples that the run was asked for and has no results of.
        left_out: further counts of samples that the gates are not, or not fully, about, by name.
    """

    command: str
    name: str
    model: str
    sha256: str
    identity: str
    robaudit: str | None
    against: Subject | None = None
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
        return cls(command, name, model["name"], model["sha256"], identity, version, against, skipped, left_out or {})

    def counts(self) -> dict[str, int]:
        """Samples that are left out, by name: ``skipped`` (of a comparison also ``base_skipped``), and what else is known."""
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
