"""What a run says of its gates is checked before a report prints it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import RunError
from robaudit.files import sealed
from robaudit.gates.sources import decisions_of
from robaudit.report.html import facts
from robaudit.report.tables import markdown_rows
from robaudit.store.folder import INTERIM_RECORD
from robaudit.store.run import Run
from tests.report.html.tools import DECISION, hand_made, rows


def made(folder: Path, document: object) -> Run:
    """A run of this identity that says so of its looks."""
    text = document if isinstance(document, str) else json.dumps(sealed(document) if isinstance(document, dict) else document)
    (folder / INTERIM_RECORD).write_text(text)
    return replace(hand_made(rows([0.2, 0.8]), identity="abc", base_identity="base"), path=folder)


def record(**changes: Any) -> dict[str, Any]:
    """Of a run that was looked at once."""
    asked = {"identity": "asked", "gates": ["mean >= 0.9"], "confidence": 0.95, "most": 64}
    run = {"identity": "abc", "base_identity": "base"}
    return {"asked": asked, "point": False, "each": 0.95, "draws": [64], "run": run, "gates": [{**DECISION, **changes}]}


def test_what_robaudit_wrote_is_told(tmp_path: Path) -> None:
    decisions, problem = decisions_of(made(tmp_path, record(more=3, evidence="x")))
    assert (decisions, problem) == ((DECISION,), "")
    extended = {**record(), "run": {"identity": "before", "base_identity": "base"}}
    (now,), problem = decisions_of(made(tmp_path, extended))
    assert problem == ""
    assert now["gate"] == "mean(estimator=mc, sigma=0.1) >= 0.9"
    assert (now["verdict"], now["value"]) == ("fail", 0.5)
    (tmp_path / INTERIM_RECORD).unlink()
    assert decisions_of(replace(hand_made(rows([0.2, 0.8])), path=tmp_path)) == ((), "")


def test_what_is_not_known_is_a_dash(tmp_path: Path) -> None:
    """A number that is not finite was written as null."""
    unknown = {"value": None, "lower": None, "upper": None, "covers": "nothing", "about": "these 12 images", "verdict": "inconclusive"}
    decisions, _ = decisions_of(made(tmp_path, record(**unknown)))
    table = facts.decision_table(decisions)
    assert [cell.text for cell in table.rows[0]] == ["mean >= 0.9", "inconclusive", "–", "these 12 images"]
    assert "| mean &gt;= 0.9 | inconclusive | – | these 12 images |" in markdown_rows(table)
    decisions, _ = decisions_of(made(tmp_path, record(lower=None)))
    assert facts.decision_table(decisions).rows[0][2].text == "0.5000 [..., 0.6000] (95%)"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        *((record(value=value), "gates.0.value") for value in ("x", [1], True, float("nan"), float("inf"), 1e300, 10**400)),
        (record(value=1e300, lower=float("-inf")), "gates.0.value"),
        (record(lower=float("-inf")), "gates.0.lower"),
        *((record(threshold=value), "gates.0.threshold") for value in ("0.5", None, 1e300)),
        *((record(confidence=value), "gates.0.confidence") for value in (None, "x")),
        *((record(verdict=value), "gates.0.verdict") for value in ([1], "maybe", None)),
        *((record(gate=value), "gates.0.gate") for value in (5, None)),
        (record(covers="all"), "gates.0.covers"),
        ({key: value for key, value in record().items() if key != "run"}, "run"),
        ({**record(), "run": [1]}, "run"),
        ({**record(), "run": {}}, "run.identity"),
        ({**record(), "gates": {"x": DECISION}}, "gates"),
        ({**record(), "gates": [5]}, "gates.0"),
        ([], "is not the record of interim analyses"),
        ("{", "not valid JSON"),
    ],
)
def test_what_robaudit_did_not_write_is_refused(tmp_path: Path, document: object, says: str) -> None:
    with pytest.raises(RunError) as caught:
        decisions_of(made(tmp_path, document))
    assert str(caught.value).startswith(f"{tmp_path}/{INTERIM_RECORD}: is ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
