"""Rows as tables of pandas and polars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from robaudit.errors import RobauditError
from robaudit.rows import Row
from robaudit.store.table import arrow_table

if TYPE_CHECKING:
    import pandas
    import polars


def pandas_frame(rows: Iterable[Row], class_names: Sequence[str] | None) -> pandas.DataFrame:
    """The rows as a pandas table; integers and truth values that may be absent are of pandas' own types (Int64, boolean).

    Raises:
        RobauditError: pandas or pyarrow is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise _missing("to_pandas", "pandas") from error
    types = {"int64": pd.Int64Dtype(), "bool": pd.BooleanDtype()}
    return arrow_table(rows, class_names, where="to_pandas").to_pandas(types_mapper=lambda one: types.get(str(one)))


def polars_frame(rows: Iterable[Row], class_names: Sequence[str] | None) -> polars.DataFrame:
    """The rows as a polars table.

    Raises:
        RobauditError: polars or pyarrow is not installed.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise _missing("to_polars", "polars") from error
    found = pl.from_arrow(arrow_table(rows, class_names, where="to_polars"))
    if not isinstance(found, pl.DataFrame):
        raise TypeError("an Arrow table becomes a DataFrame")
    return found


def _missing(where: str, library: str) -> RobauditError:
    """The error for a library that no extra of robaudit installs: whoever wants its tables has it."""
    return RobauditError(where, f"needs {library}, which is not installed", f"pip install {library}, or use to_arrow()")
