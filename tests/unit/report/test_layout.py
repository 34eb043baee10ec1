"""Sections that have only a typed table: what people, CSV and JSON have of it, alone and side by
side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from robaudit.estimates import Estimate
from robaudit.report import sections
from robaudit.report.sections import Entry, Section, SectionRequest, section_csv, section_json
from robaudit.report.tables import Table, latex_text, markdown_text
from robaudit.report.typed import (
    COUNT,
    NUMBER,
    PROSE,
    SHARE,
    TEXT,
    Beside,
    Kind,
    TypedColumn,
    TypedTable,
    Value,
)
from robaudit.runs.run import Run

ESTIMATE = Estimate.population(0.5, (0.25, 0.75), "a test's")
COLUMNS = (
    TypedColumn("result"),
    TypedColumn("images", COUNT),
    TypedColumn("robust", SHARE, head="robust copies"),
    TypedColumn("seed", NUMBER, head=None),
    TypedColumn("", TEXT, head="short"),
    TypedColumn("why", PROSE, detail=True),
)
TABLE = TypedTable(
    "A table",
    COLUMNS,
    [("mc", 1200, ESTIMATE, 7, "m", "because"), ("qnorm", 3, None, 8, "q", None)],
    about={"estimator": "x"},
    lines=("12 images",),
    facts=("seen twice",),
    notes=("how to read it",),
    remarks=("one is missing",),
)


class OfTable(Section[TypedTable]):
    """Has one table of every run."""

    title = "A table"

    def __init__(self, table: TypedTable) -> None:
        self.made = table

    def table(self, entry: Entry[TypedTable], request: SectionRequest) -> TypedTable:
        return self.made


def run(name: str) -> Run:
    return cast("Run", SimpleNamespace(info=SimpleNamespace(name=name), class_names=None))


def entries(table: TypedTable, *names: str) -> list[Entry[TypedTable]]:
    return OfTable(table).find([run(name) for name in names], SectionRequest())


def texts(table: Table) -> list[tuple[str, ...]]:
    return [
        tuple(column.head for column in table.columns),
        *(tuple(cell.text for cell in row) for row in table.rows),
    ]


def laid(table: TypedTable, *names: str) -> Table:
    (found,) = OfTable(table).tables(entries(table, *names), SectionRequest())
    return found


def test_people_see_the_heads_and_the_kinds() -> None:
    found = laid(TABLE, "a")
    assert texts(found) == [
        ("result", "short", "images", "robust copies", "why"),
        ("mc", "m", "1,200", "50.0% [25.0%, 75.0%]", "because"),
        ("qnorm", "q", "3", "–", "–"),
    ]
    assert [column.number for column in found.columns] == [False, False, True, True, False]
    assert [column.head for column in found.columns if column.detail] == ["why"]
    assert (found.heading, found.lines, found.notes) == (
        "A table",
        ("12 images", "seen twice"),
        ("how to read it", "one is missing"),
    )
    assert "1,200" in markdown_text([found])
    assert "because" not in latex_text([found])


def test_runs_stand_side_by_side() -> None:
    found = laid(TABLE, "a", "b")
    assert [row[:2] for row in texts(found)] == [
        ("run", "result"),
        ("a", "mc"),
        ("a", "qnorm"),
        ("b", "mc"),
        ("b", "qnorm"),
    ]
    assert found.lines == ("12 images", "a: seen twice", "b: seen twice")
    assert found.notes == ("how to read it", "a: one is missing", "b: one is missing")
    found = laid(replace(TABLE, beside=Beside.KEYS), "a", "b")
    share = "50.0% [25.0%, 75.0%]"
    assert [row[::2] for row in texts(found)][:3] == [
        ("result", "run", "robust copies"),
        ("mc", "a", share),
        ("mc", "b", share),
    ]


LEVEL = Kind(lambda level: f"at {level:g}")
SPREAD = TypedTable(
    "Levels",
    (
        TypedColumn("noise"),
        TypedColumn("level", LEVEL),
        TypedColumn("value", NUMBER, across="level", missing=""),
        TypedColumn("", COUNT, head="in all"),
    ),
    [("fog", 2.0, 0.25, 9), ("fog", 1.0, 0.5, 9), ("snow", 1.0, 0.125, 8)],
)


def test_a_column_across_another_has_a_head_for_each_value() -> None:
    assert texts(laid(SPREAD, "a")) == [
        ("noise", "at 1", "at 2", "in all"),
        ("fog", "0.5", "0.25", "9"),
        ("snow", "0.125", "", "8"),
    ]


def test_a_run_that_lacks_a_line_has_a_line_of_nothing() -> None:
    other = replace(SPREAD, rows=SPREAD.rows[2:])
    both = [replace(SPREAD, beside=Beside.KEYS), replace(other, beside=Beside.KEYS)]
    given = [Entry(name, run(name), table) for name, table in zip("ab", both, strict=True)]
    (found,) = OfTable(SPREAD).tables(given, SectionRequest())
    assert texts(found)[2:4] == [("fog", "b", "", "", "–"), ("snow", "a", "0.125", "", "8")]


def test_tables_of_other_headings_stand_below_each_other() -> None:
    given = [Entry(name, run(name), replace(SPREAD, heading=name)) for name in "ab"]
    found = list(OfTable(SPREAD).tables(given, SectionRequest()))
    assert [table.heading for table in found] == ["a", "b"]
    assert [texts(table)[1][0] for table in found] == ["a", "b"], "each still says whose it is"


@pytest.fixture
def section(monkeypatch: pytest.MonkeyPatch) -> OfTable:
    found = OfTable(TABLE)
    monkeypatch.setattr(sections, "section_of", lambda name: found)
    return found


def test_csv_has_three_columns_for_an_estimate(section: OfTable) -> None:
    head, first, second = section_csv("x", entries(TABLE, "a"), SectionRequest()).splitlines()
    assert head == "run,estimator,result,images,robust,robust_lower,robust_upper,seed,why"
    assert first == "a,x,mc,1200,0.5,0.25,0.75,7,because"
    assert second == "a,x,qnorm,3,,,,8,"


def test_json_has_an_object_for_each_row(section: OfTable) -> None:
    found: dict[str, Any] = json.loads(
        section_json("x", entries(TABLE, "a", "b"), SectionRequest())
    )
    assert [line["run"] for line in found["results"]] == ["a", "a", "b", "b"]
    about = {"run": "a", "estimator": "x", "result": "mc", "images": 1200}
    assert found["results"][0] == {
        **about,
        "robust": {"value": 0.5, "lower": 0.25, "upper": 0.75},
        "seed": 7,
        "why": "because",
    }
    assert found["results"][1]["robust"] is None


def test_the_ends_of_the_only_estimate_may_have_bare_names() -> None:
    rows: Sequence[Sequence[Value]] = [(ESTIMATE,)]
    table = TypedTable("", (TypedColumn("value", SHARE, bare_ends=True),), rows)
    assert list(table.csv_lines()) == [{"value": 0.5, "lower": 0.25, "upper": 0.75}]


def test_numbers_that_are_not_finite_are_null(section: OfTable) -> None:
    table = TypedTable("", (TypedColumn("value", NUMBER),), [(float("inf"),)])
    assert list(table.objects()) == [{"value": None}]
