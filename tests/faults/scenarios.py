"""The small runs that are disturbed."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.rig import Rig
from tests.specs import digits, write

SAMPLES = 70  # more than are computed at once
SIGMAS = {"sigma": [0.1, 0.2]}
MC = {"mc": {"samples": 8}}


def few(samples: int) -> dict[str, object]:
    """A second estimator, of the same name whatever its options."""
    return {"mc": {"samples": samples, "label": "few"}}


SPECS = {
    "spec.yaml": digits(limit=SAMPLES, noise=SIGMAS, estimators=[MC, few(4)]),
    "old.yaml": digits(limit=SAMPLES // 2, noise={"sigma": [0.1]}, estimators=[MC]),
    "other.yaml": digits(limit=SAMPLES, noise=SIGMAS, estimators=[MC, few(6)]),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One command that is disturbed.

    Attributes:
        command: the arguments of robaudit.
        base: the kept run folder it starts from, None for nothing.
        whole: the kept run folder that it makes undisturbed.
    """

    command: tuple[str, ...]
    base: str | None
    whole: str


FIRST = Scenario(("estimate", "spec.yaml", "--out", "run"), None, "whole")
EXTEND = Scenario(("estimate", "spec.yaml", "--out", "run", "--extend"), "old", "extended")
OTHER_OPTIONS = Scenario(("estimate", "other.yaml", "--out", "run", "--extend"), "old", "other")
SCENARIOS = {"first run": FIRST, "--extend": EXTEND}


def prepare(rig: Rig) -> None:
    """Write the specs and make the undisturbed runs: those of the scenarios, what they start from, and ``another`` of other noise."""
    for name, document in SPECS.items():
        write(rig.work, document, name)
    rig.make("old", None, "estimate", "old.yaml", "--out", "run")
    rig.make("another", None, "estimate", "spec.yaml", "--out", "run", "--seed", "1")
    for scenario in (*SCENARIOS.values(), OTHER_OPTIONS):
        rig.make(scenario.whole, scenario.base, *scenario.command)
