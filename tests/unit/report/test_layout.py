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
from robaudit.report.tables import Cell, Table, latex_text, markdown_text
from robaudit.report.typed import (
    COUNT,
    NUMBER,
    PROSE,
    SHARE,
    TEXT,
    WRITTEN,
    Beside,
    Changes,
    Kind,
    TypedColumn,
    TypedTable,
    Value,
)
from robaudit.runs.run import Run
from robaudit.stats.bootstrap import PairedDifference

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


MEANS = TypedTable(
    "Means",
    (
        TypedColumn("result"),
        TypedColumn("", WRITTEN, head="mean"),
        TypedColumn("mean", NUMBER, head=None),
    ),
    [("mc", "0.50", 0.5), ("taylor", "0.60", 0.6)],
    keys=[1, 2],
    facts=("12 images",),
    conclusions=(Cell("good", tone="strong"),),
    notes=("how to read it",),
    beside=Beside.COLUMNS,
)
CHANGES = Changes(
    {"b": {1: PairedDifference(Estimate.population(0.1, (0.05, 0.15), "a test's"), 0.04, 12)}},
    tested=True,
    about=lambda key: {"result": {1: "mc"}[key]},
    notes=("p: of no difference",),
)


class Compared(OfTable):
    """Compares further runs with the first."""

    def changes(self, entries: Sequence[Entry[TypedTable]], request: SectionRequest) -> Changes:
        return CHANGES


def test_runs_have_columns_and_then_differences() -> None:
    (found,) = Compared(MEANS).tables(entries(MEANS, "a", "b"), SectionRequest())
    assert texts(found) == [
        ("result", "a", "b", "b - a", "p"),
        ("mc", "0.50", "0.50", "+0.100 [+0.050, +0.150]", "0.040"),
        ("taylor", "0.60", "0.60", "–", ""),
    ]
    assert found.lines == ("a: 12 images", "b: 12 images")
    assert [cell.text for cell in found.conclusions] == ["a: good", "b: good"]
    assert found.notes == ("how to read it", "p: of no difference")


def test_the_same_subject_has_a_difference_last() -> None:
    table = replace(MEANS, beside=Beside.KEYS)
    (found,) = Compared(table).tables(entries(table, "a", "b"), SectionRequest())
    assert texts(found)[:3] == [
        ("result", "run", "mean", "mean: difference from a"),
        ("mc", "a", "0.50", ""),
        ("mc", "b", "0.50", "+0.100 [+0.050, +0.150]"),
    ]


def test_runs_that_are_not_compared_have_no_columns_of_differences() -> None:
    assert texts(laid(MEANS, "a", "b"))[0] == ("result", "a", "b")
    assert texts(laid(MEANS, "a"))[0] == ("result", "mean")


def test_the_largest_rank_of_any_run_is_first() -> None:
    ranked = replace(MEANS, rank=lambda row: row[2])
    other = replace(ranked, rows=[("mc", "0.70", 0.7), ("mmse", "0.60", 0.6)], keys=[1, 3])
    given = [
        Entry(name, run(name), table) for name, table in zip("ab", (ranked, other), strict=True)
    ]
    (found,) = OfTable(ranked).tables(given, SectionRequest())
    assert [row[0] for row in texts(found)[1:]] == ["mc", "taylor", "mmse"], "ties as they come"
    assert texts(found)[3] == ("mmse", "–", "0.60")


def test_people_see_only_some_rows() -> None:
    (found,) = OfTable(MEANS).tables(entries(replace(MEANS, most=1), "a"), SectionRequest())
    assert (len(found.rows), found.notes[0]) == (1, "... and 1 more.")
    assert texts(laid(replace(MEANS, shows=lambda row: row[2] > 0.5), "a"))[1:] == [
        ("taylor", "0.60")
    ]
    assert laid(replace(MEANS, rows=(), keys=()), "a").columns == ()
    nothing = laid(replace(MEANS, rows=(), keys=(), empty="Nothing."), "a")
    assert (len(nothing.columns), nothing.conclusions[-1].text) == (2, "Nothing.")


def test_tables_apart_have_the_run_in_the_heading() -> None:
    table = replace(MEANS, beside=Beside.APART)
    found = list(OfTable(table).tables(entries(table, "a", "b"), SectionRequest()))
    assert [table.heading for table in found] == ["a: Means", "b: Means"]
    assert found[0].lines == ("12 images",)


def test_a_noise_of_all_results_is_no_column() -> None:
    columns = (TypedColumn("", TEXT, head="noise", varying=True), TypedColumn("n", COUNT))
    one = TypedTable("", columns, [("fog", 1)], beside=Beside.COLUMNS)
    assert texts(laid(one, "a"))[0] == ("n",)
    other = replace(one, rows=[("fog", 1), ("snow", 2)])
    given = [Entry(name, run(name), table) for name, table in zip("ab", (one, other), strict=True)]
    (found,) = OfTable(one).tables(given, SectionRequest())
    assert texts(found) == [("noise", "a", "b"), ("fog", "1", "1"), ("snow", "–", "2")]


def test_a_line_that_holds_for_one_run_alone_is_left_out() -> None:
    one = replace(MEANS, facts=(), lines=("fog, higher is better", "12 images"))
    other = replace(MEANS, facts=(), lines=("higher is better", "3 images"))
    given = [Entry(name, run(name), table) for name, table in zip("ab", (one, other), strict=True)]
    (found,) = OfTable(one).tables(given, SectionRequest())
    assert found.lines == ("12 images", "higher is better", "3 images")


def test_every_run_has_a_column() -> None:
    other = replace(MEANS, heading="Others")
    given = [
        Entry(name, run(name), table) for name, table in zip("ab", (MEANS, other), strict=True)
    ]
    found = list(OfTable(MEANS).tables(given, SectionRequest()))
    assert [texts(table)[:2] for table in found] == [
        [("result", "a", "b"), ("mc", "0.50", "–")],
        [("result", "a", "b"), ("mc", "–", "0.50")],
    ]


def test_a_record_has_its_members_as_columns() -> None:
    change = CHANGES.by_run["b"][1]
    columns = (TypedColumn("result"), TypedColumn("", Kind(str), record=PairedDifference))
    table = TypedTable("", columns, [("mc", change)])
    members = {"value": 0.1, "lower": 0.05, "upper": 0.15, "p_value": 0.04, "images": 12}
    assert list(table.csv_lines()) == [{"result": "mc", **members}]
    assert table.csv_columns() == ["result", *members]


def test_differences_follow_the_results_in_csv_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "section_of", lambda name: Compared(MEANS))
    given = entries(MEANS, "a", "b")
    lines = section_csv("x", given, SectionRequest()).splitlines()
    assert lines[0].startswith("run,result,mean,base,images,difference,difference_lower,")
    assert lines[-1] == "b,mc,,a,12,0.1,0.05,0.15,0.04"
    found = json.loads(section_json("x", given, SectionRequest()))
    assert [(line["run"], line["base"], line["result"]) for line in found["differences"]] == [
        ("b", "a", "mc")
    ]
    alone = json.loads(section_json("x", given[:1], SectionRequest()))
    assert "differences" not in alone


def test_csv_without_rows_has_its_columns(section: OfTable) -> None:
    empty = replace(TABLE, rows=())
    text = section_csv("x", entries(empty, "a"), SectionRequest())
    assert text == "run,estimator,result,images,robust,seed,why\n"


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


def test_runs_with_and_without_labels_have_tables_of_their_own() -> None:
    """Their columns mean something else, so they are not put side by side."""
    by_label = TypedTable("Turns", (TypedColumn("", TEXT, head="label"),), [("1",)])
    by_prediction = replace(by_label, columns=(TypedColumn("", TEXT, head="predicted"),))
    given = [
        Entry(name, run(name), table)
        for name, table in zip("ab", (by_label, by_prediction), strict=True)
    ]
    found = list(OfTable(by_label).tables(given, SectionRequest()))
    assert [texts(table)[0] for table in found] == [("run", "label"), ("run", "predicted")]
