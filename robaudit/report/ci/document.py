"""How do decided gates read as JSON? The published schema is ``robaudit schema --for gates``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from robaudit.gates.result import EXIT_CODES, Decision, Verdict, overall
from robaudit.report.ci.subject import Subject

SCHEMA_VERSION = 1


def document(decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive") -> str:
    """The JSON text: schema version, verdict, exit code, the run, and the gates in the order they were given.

    An absent interval and an infinite end of one are both null; an absent one has the method "none".

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    return json.dumps(decisions_document(decisions, subject, inconclusive=inconclusive), indent=2, allow_nan=False) + "\n"


def decisions_document(decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive") -> dict[str, Any]:
    """The document of :func:`document` as JSON values."""
    verdict = overall(decisions, inconclusive)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": subject.command,
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "inconclusive_counts_as": inconclusive,
        "run": subject.document(),
        "base": None if subject.against is None else subject.against.document(),
        "left_out": subject.counts(),
        "gates": [one.document() for one in decisions],
    }
