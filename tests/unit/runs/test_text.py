"""CSV and JSON: golden text, and everything that is written reads back."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.quantities import Interval
from robaudit.results import Votes
from robaudit.runs.rows import COLUMNS, Row, read_line, read_row
from robaudit.runs.serialise import (
    compressed,
    decompressed,
    document_json,
    row_text,
    stream_rows_json,
)
from robaudit.stats.summary import summary_json
from tests.golden import Golden
from tests.rows import ROW as PLAIN_ROW
from tests.rows import ROWS, csv_text, json_text, summarise

EXACT = Interval.parse("clopper-pearson")
ROW = replace(PLAIN_ROW, interval=EXACT, votes=Votes((8, 2)))
BARE = replace(
    ROW,
    sample_id="b",
    label=None,
    correct=None,
    lower=None,
    upper=None,
    std_error=None,
    flips_to=None,
    votes=None,
)


@given(st.lists(ROWS, max_size=5))
def test_json_reads_back(written: list[Row]) -> None:
    document = json_text(written)
    assert list(stream_rows_json(io.BytesIO(document.encode()))) == written
    assert document.isascii()
    assert json.loads(document)["columns"] == list(COLUMNS)


def test_golden_csv() -> None:
    assert csv_text([ROW, replace(BARE, sample_id='x,"y"', level=8 / 255)]) == (
        "sample_id,label,label_name,predicted,predicted_name,correct,noise,level_name,level,estimator,quantity,value,lower,upper,std_error,"
        "flips_to,flips_to_name,forwards,backwards,note,interval\n"
        "a,0,,0,,true,gaussian,sigma,0.1,mc,p_robust,0.8,0.7,0.9,0.05,1,,11,0,,clopper-pearson\n"
        '"x,""y""",,,0,,,gaussian,sigma,0.03137254901960784,mc,p_robust,0.8,,,,,,11,0,,clopper-pearson\n'
    )


def test_csv_names_the_classes() -> None:
    """Quoted where CSV needs it, and not as a formula. A class beyond the names has none."""
    written = [ROW, BARE, replace(ROW, label=2, flips_to=3)]
    text = csv_text(written, ["=cmd|'/c calc'!A0", 'dog, "wet"', "a\nb\x1b[2J \ud800"])
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["label_name"], row["predicted_name"], row["flips_to_name"]) for row in found] == [
        ("'=cmd|'/c calc'!A0", "'=cmd|'/c calc'!A0", 'dog, "wet"'),
        ("", "'=cmd|'/c calc'!A0", ""),
        ("a\\nb\\x1b[2J \\ud800", "'=cmd|'/c calc'!A0", ""),
    ]
    text.encode()


def test_golden_json() -> None:
    head, columns, begin, first, second, end, last = json_text([ROW, BARE]).split("\n")
    assert (head, begin, end, last) == ('{"schema_version": 2,', '"rows": [', "]}", "")
    assert columns.startswith('"columns": ["sample_id", "label"')
    assert first.endswith(
        '"interval": "clopper-pearson", "votes": {"counts": {"0": 8, "1": 2}, "classes": 2}},'
    )
    assert '"std_error": null' in second
    assert "votes" not in second


def test_numpy_scalars_are_written_as_numbers() -> None:
    row = replace(ROW, value=np.float64(0.5), predicted=np.int64(3), forwards=np.int32(7))  # type: ignore[arg-type]
    assert csv_text([row]) == csv_text([replace(ROW, value=0.5, predicted=3, forwards=7)])


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@cmd", "\uff1d1"])
def test_no_text_is_a_formula_and_numbers_stay_numbers(name: str) -> None:
    text = csv_text([replace(ROW, sample_id=name, value=-0.5, note="a;=1")])
    assert f"\n'{name},0," in text
    assert ",-0.5," in text
    assert ',"a;=1",' in text, "where the semicolon separates cells"


@given(ROWS)
def test_both_parsers_read_the_same_row(row: Row) -> None:
    line = row_text(row)
    assert read_line(line) == read_line(line.encode()) == read_row(json.loads(line)) == row


def test_an_id_that_only_one_parser_accepts() -> None:
    row = replace(ROW, sample_id="\ud800")
    assert read_line(row_text(row)) == row


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_never_holds_a_number_that_is_none(value: float, golden: Golden) -> None:
    text = json_text([replace(ROW, value=value, upper=math.inf)])
    document = json.loads(text, parse_constant=pytest.fail)
    assert (document["rows"][0]["value"], document["rows"][0]["upper"]) == (None, None)
    assert document["rows"][0]["error"] == f"value is {value!r}"
    assert math.isnan(next(stream_rows_json(io.BytesIO(text.encode()))).value)
    with golden.raises(ValueError):
        document_json({"value": value})


@pytest.mark.parametrize(
    "odd",
    [
        {"split": -1},
        {"split": "x"},
        {"split": 0.5},
        {"split": 10**9},
        {"lost": -1},
        {"lost": 0.5},
        {"lost": 10**100},
    ],
)
def test_odd_counts_of_draws_are_refused(odd: dict[str, object], golden: Golden) -> None:
    with golden.raises(ValueError):
        read_row({**ROW.document(), "votes": {"counts": [8, 2], **odd}})


def test_only_classes_with_votes_are_stored() -> None:
    """A row of 1,000 classes is as short as one of ten."""
    counts = [0] * 1000
    counts[999] = 40
    counts[500] = 60
    row = replace(ROW, predicted=500, votes=Votes(tuple(counts)))
    text = row_text(row)
    assert text.endswith('"votes": {"counts": {"500": 60, "999": 40}, "classes": 1000}}')
    assert read_line(text) == row
    assert read_row({**row.document(), "votes": {"counts": counts}}) == row, "as once stored"
    assert decompressed(compressed(text)) == text


def test_rows_of_an_older_state_are_decompressed() -> None:
    stored = bytes.fromhex("48a8a8676d86abc612ecd84cb2d05130022a0700607c0e74")
    assert decompressed(stored) == '{"sample_id": "0", "votes": {"counts": [8, 2]}}'


@pytest.mark.parametrize(
    "votes",
    [
        {"counts": {"0": 8}},
        {"counts": {"0": 8}, "classes": "2"},
        {"counts": {"0": 8}, "classes": 2**21},
        {"counts": {"2": 8}, "classes": 2},
        {"counts": {"00": 8}, "classes": 2},
        {"counts": {"-1": 8}, "classes": 2},
        {"counts": {"0": -8}, "classes": 2},
    ],
)
def test_odd_classes_of_votes_are_refused(votes: dict[str, object], golden: Golden) -> None:
    with golden.raises(ValueError):
        read_row({**ROW.document(), "votes": votes})


def test_summary_json_has_the_version_first_and_the_groups_last() -> None:
    document = json.loads(summary_json(summarise([ROW, BARE]), images=2))
    assert list(document) == ["schema_version", "images", "groups"]
    assert document["groups"][0]["images"] == 2
