"""Which run were the gates decided on?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """

    command: str
    name: str
    model: str
    sha256: str
    identity: str
    robaudit: str | None
    against: Subject | None = None

    @classmethod
    def of(cls, info: Mapping[str, Any], command: str = "gate", against: Subject | None = None) -> Subject:
        """From a run's run.json."""
        version = info.get("versions", {}).get("robaudit")
        return cls(command, info["name"], info["model"]["name"], info["model"]["sha256"], info["identity"], version, against)

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
