"""Results as an Arrow table and a Parquet file: the values of samples.csv, typed, as pandas, polars
and DuckDB read them."""

from __future__ import annotations

import io
import math
import sys
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from robaudit import audit, load_spec
from robaudit.errors import RobauditError
from robaudit.results import PARTS
from robaudit.runs import arrow as table
from robaudit.runs.arrow import arrow_table, parquet_pieces
from robaudit.runs.rows import COLUMNS, Row
from tests.conftest import RunCli
from tests.golden import Golden
from tests.rows import ROWS
from tests.specs import digits, write
from tests.unit.runs.test_stream import many
from tests.unit.runs.test_text import BARE, ROW

NAMES = ("label_name", "predicted_name", "flips_to_name")


def values_of(row: Row) -> dict[str, object]:
    """The columns that stand in the row itself."""
    return {
        name: row.interval.text if name == "interval" else getattr(row, name) for name in COLUMNS
    }


def parts_of(row: Row) -> dict[str, object]:
    """The columns after them."""
    parts = {name: None if (part := getattr(row, name)) is None else asdict(part) for name in PARTS}
    if row.votes is not None:
        parts["votes"] = {**asdict(row.votes), "counts": list(row.votes.counts)}
    return {**parts, "numbers": list(row.numbers.items()) or None}


@given(st.lists(ROWS, max_size=3))
def test_rows_come_out_of_the_table_and_of_the_file(written: list[Row]) -> None:
    found = arrow_table(written)
    assert [name for name in found.column_names if name not in NAMES] == [
        *COLUMNS,
        *PARTS,
        "numbers",
    ]
    plain = [
        {name: value for name, value in entry.items() if name not in NAMES}
        for entry in found.to_pylist()
    ]
    assert plain == [{**values_of(row), **parts_of(row)} for row in written]
    assert parquet.read_table(io.BytesIO(b"".join(parquet_pieces(written)))) == found


def test_each_class_is_followed_by_its_name() -> None:
    found = arrow_table(
        [replace(ROW, label=1, predicted=0, flips_to=2), BARE], ["cat", "\ud800", "=dog"]
    )
    assert found.column_names[:5] == [
        "sample_id",
        "label",
        "label_name",
        "predicted",
        "predicted_name",
    ]
    assert found.select(NAMES).to_pylist() == [
        {"label_name": "\\ud800", "predicted_name": "cat", "flips_to_name": "=dog"},
        {"label_name": None, "predicted_name": "cat", "flips_to_name": None},
    ]
    assert arrow_table([replace(ROW, label=7)], ["cat"])["label_name"].null_count == 1


def test_types_do_not_depend_on_the_rows() -> None:
    schema = arrow_table([]).schema
    assert arrow_table([BARE]).schema == arrow_table([ROW]).schema == schema
    assert schema.field("label").type == schema.field("forwards").type == pa.int64()
    assert schema.field("lower").type == pa.float64()
    assert schema.field("correct").type == pa.bool_()
    assert schema.field("note").type == pa.string()
    assert parquet.read_schema(io.BytesIO(b"".join(parquet_pieces([])))) == schema


def test_what_is_no_number_stays_so() -> None:
    found = arrow_table([replace(ROW, value=math.nan, lower=-math.inf, upper=None)])
    assert math.isnan(found["value"][0].as_py())
    assert found["lower"][0].as_py() == -math.inf
    assert found["upper"].null_count == 1


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROW_GROUP", 1000)
    peaks = []
    for count in (2000, 8000):
        tracemalloc.start()
        held = pa.total_allocated_bytes()
        try:
            assert sum(len(piece) for piece in parquet_pieces(many(count))) > 1000
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert pa.total_allocated_bytes() - held < 2**20
    assert peaks[1] < 1.3 * peaks[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    return audit(
        load_spec(write(folder, digits(limit=6, estimators=[{"mc": {"draws": 20}}, "softmax"]))),
        out=folder / "run",
    ).path


def test_pandas_polars_and_duckdb_read_the_export(
    run: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    assert run_cli("show", run, "rows", "-o", "rows.parquet") == (0, "", "")
    file = tmp_path / "rows.parquet"
    expected = pd.read_csv(run / "samples.csv", dtype={"sample_id": "str", "note": "str"})
    by_pandas = pd.read_parquet(file)
    assert set(expected.columns) <= set(by_pandas.columns)
    assert len(by_pandas) == len(expected) == 12
    by_polars = pl.read_parquet(file)
    with duckdb.connect() as connection:
        shown = connection.execute(
            "SELECT estimator, avg(value), count(lower) FROM 'rows.parquet' GROUP BY estimator "
            "ORDER BY 1"
        ).fetchall()
    for name, mean, bounded in shown:
        of_csv = expected[expected.estimator == name]
        assert mean == pytest.approx(of_csv.value.mean(), rel=1e-12)
        assert mean == pytest.approx(
            by_polars.filter(pl.col("estimator") == name)["value"].mean(), rel=1e-12
        )
        assert (
            bounded
            == of_csv.lower.notna().sum()
            == by_pandas[by_pandas.estimator == name].lower.notna().sum()
        )
    assert [name for name, *_ in shown] == ["mc", "softmax"]
    assert by_polars["correct"].to_list() == expected.correct.to_list()


def test_the_format_follows_the_suffix_unless_it_is_given(
    run: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    for name, options, begins in (
        ("rows.parquet", (), b"PAR1"),
        ("rows.JSON", (), b'{"schema'),
        ("rows.txt", (), b"sample_id"),
        ("rows.csv", ("--format", "parquet"), b"PAR1"),
    ):
        assert run_cli("show", run, "rows", "-o", name, *options).code == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert (tmp_path / "rows.txt").read_text() == (run / "samples.csv").read_text()


def test_a_terminal_gets_no_parquet(
    run: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    code, out, err = run_cli("show", run, "rows", "--format", "parquet")
    assert (code, out) == (2, "")
    golden(err.removesuffix("\n"))


def test_without_pyarrow_the_extra_is_named(
    run: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = run_cli("show", run, "rows", "-o", "rows.parquet")
    assert code == 2
    golden(err.removesuffix("\n"))
    assert not (tmp_path / "rows.parquet").exists()
    with pytest.raises(RobauditError) as error:
        arrow_table([ROW])
    golden(error.value)
