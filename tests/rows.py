"""A row of mc that tests change where they need another, and statistics of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from robaudit.levels import LevelName
from robaudit.quantities import Interval, Quantity
from robaudit.results import LARGEST, Certificate, Votes
from robaudit.runs.rows import Row
from robaudit.runs.serialise import rows_csv, rows_json
from robaudit.runs.table import Columns, ResultTable
from robaudit.stats import class_differences, flags, summary

ROW = Row(
    sample_id="a",
    label=0,
    predicted=0,
    correct=True,
    noise="gaussian",
    level_name="sigma",
    level=0.1,
    estimator="mc",
    quantity="p_robust",
    value=0.8,
    lower=0.7,
    upper=0.9,
    std_error=0.05,
    flips_to=1,
    forwards=11,
    backwards=0,
    note="",
    interval=Interval.parse("clopper-pearson"),
)


def json_text(rows: Iterable[Row]) -> str:
    """The whole of samples.json."""
    return "".join(rows_json(rows))


def csv_text(rows: Iterable[Row], class_names: Sequence[str] | None = None) -> str:
    """The whole of samples.csv."""
    return "".join(rows_csv(rows, class_names))


NUMBER = st.floats(-LARGEST, LARGEST, exclude_min=True, exclude_max=True)
TEXT = st.text(max_size=20) | st.sampled_from(
    [
        "a,b",
        'say "hi"',
        "two\nlines",
        "carriage\rreturn",
        "=1+1",
        " padded ",
        "Katze 猫",
        "",
        "\x00",
        "'",
    ]
)
ROWS = st.builds(
    Row,
    sample_id=TEXT,
    label=st.none() | st.integers(0, 999),
    predicted=st.integers(0, 999),
    correct=st.none() | st.booleans(),
    noise=TEXT,
    level_name=st.sampled_from(LevelName).map(str),
    level=NUMBER,
    estimator=TEXT,
    quantity=TEXT,
    value=NUMBER,
    lower=st.none() | NUMBER,
    upper=st.none() | NUMBER,
    std_error=st.none() | NUMBER,
    flips_to=st.none() | st.integers(0, 999),
    forwards=st.integers(0, 10**9),
    backwards=st.integers(0, 10**9),
    note=TEXT,
    interval=TEXT.map(Interval.parse),
    votes=st.none()
    | st.builds(
        Votes, st.lists(st.integers(0, 10**6), max_size=3).map(tuple), lost=st.integers(0, 99)
    ),
    certificate=st.none()
    | st.builds(Certificate, label=st.none() | st.integers(0, 99), alpha=st.none() | NUMBER),
    numbers=st.dictionaries(st.text(max_size=3), NUMBER, max_size=2),
)


def summarise(
    rows: Iterable[Row], quantities: Mapping[str, Quantity] | None = None
) -> tuple[summary.GroupSummary, ...]:
    return summary.summarise(ResultTable.from_rows(rows), quantities)


def flag(rows: Iterable[Row], **options: Any) -> flags.Flagged:
    return flags.flag(Columns.from_rows(rows), **options)


def class_bias(rows: Iterable[Row], **options: Any) -> class_differences.ClassBias:
    return class_differences.class_bias(Columns.from_rows(rows), **options)
