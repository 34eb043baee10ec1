"""`robaudit export`: a run's rows, finished or not, as CSV or JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from robaudit.cli.options import OutputOption, RunArgument, check_output, write_texts


class RowsFormat(StrEnum):
    """How rows are written."""

    CSV = "csv"
    JSON = "json"


def export(
    run: RunArgument,
    format_: Annotated[RowsFormat, typer.Option("--format", help="As samples.csv or as samples.json.")] = RowsFormat.CSV,
    output: OutputOption = None,
) -> None:
    """Write the rows of a run, as in samples.csv or samples.json; of an unfinished run those there are so far.

    Example: robaudit export runs/spec-1a2b3c4d --format json -o rows.json
    """
    from robaudit.cli.printing import put
    from robaudit.store.folder import RunFolder
    from robaudit.store.run import read_run
    from robaudit.store.serialise import rows_csv_chunks, rows_json_chunks

    if output is not None:
        check_output(output)
    folder = RunFolder(run)
    finished = folder.info()["status"] == "complete"
    rows = read_run(run, kept=True).rows if finished else folder.rows_so_far()
    texts = (rows_csv_chunks if format_ is RowsFormat.CSV else rows_json_chunks)(rows)
    if output is None:
        put(texts)
    else:
        write_texts(output, texts)
    if not finished:
        typer.echo(f"note: {run} is unfinished: these are the {len(rows)} rows it has so far", err=True)
