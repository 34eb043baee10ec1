"""What a report prints of the gates of a run."""

from __future__ import annotations

from dataclasses import replace

from robaudit.gates.sources import decisions_of
from robaudit.report.html import facts
from robaudit.report.tables import markdown_rows
from tests.report.html.tools import DECISION, hand_made, rows


def test_the_run_s_own_gates() -> None:
    run = hand_made(rows([0.2, 0.8]))
    assert decisions_of(run) == ((), "")
    (now,), problem = decisions_of(replace(run, info={**run.info, "spec": {"gates": ["mean >= 0.9"]}}))
    assert problem == ""
    assert now["gate"] == "mean(estimator=mc, sigma=0.1) >= 0.9"
    assert (now["verdict"], now["value"]) == ("fail", 0.5)
    none, problem = decisions_of(replace(run, info={**run.info, "spec": {"gates": ["mean(estimator=taylor) >= 0.9"]}}))
    assert none == ()
    assert "the run has no taylor for this gate; known: mc" in problem


def test_what_is_not_known_is_a_dash() -> None:
    """A number that is not finite is null."""
    unknown = {"value": None, "lower": None, "upper": None, "covers": "nothing", "about": "these 12 images", "verdict": "inconclusive"}
    table = facts.decision_table([{**DECISION, **unknown}])
    assert [cell.text for cell in table.rows[0]] == ["mean >= 0.9", "inconclusive", "–", "these 12 images"]
    assert "| mean &gt;= 0.9 | inconclusive | – | these 12 images |" in markdown_rows(table)
    assert facts.decision_table([{**DECISION, "lower": None}]).rows[0][2].text == "0.5000 [..., 0.6000] (95%)"
