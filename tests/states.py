"""What tests look at, and change, in the state of a run."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from robaudit.files import file_sha256
from robaudit.runs.serialise import compressed, decompressed
from tests.specs import read_info

TABLES = ("tasks", "samples", "rows", "skips", "seconds")


def query(run: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a statement gives; the file is only read."""
    with closing(sqlite3.connect(f"file:{run / 'state.db'}?mode=ro", uri=True)) as state:
        return state.execute(statement, values).fetchall()


def flushes(run: Path) -> int:
    """How many flushes a run took so far; 0 where its state cannot be read yet."""
    try:
        flushes = " UNION ".join(f"SELECT flush FROM {name}" for name in TABLES)  # noqa: S608
        return int(query(run, f"SELECT count(*) FROM ({flushes})")[0][0])  # noqa: S608
    except sqlite3.OperationalError:
        return 0


def change_info(run: Path, **values: Any) -> None:
    """Change run.json; a value of None is left out."""
    info = read_info(run) | values
    (run / "run.json").write_text(
        json.dumps({key: value for key, value in info.items() if value is not None})
    )


def change(run: Path, *statements: str) -> None:
    """Change the state, and its digest in run.json: what a stranger could do. ``packed`` and
    ``unpacked`` convert stored rows."""
    with closing(sqlite3.connect(run / "state.db", isolation_level=None)) as state:
        state.create_function("packed", 1, compressed)
        state.create_function("unpacked", 1, decompressed)
        for statement in statements:
            state.execute(statement)
    if (run / "run.json").exists():
        info = read_info(run)
        info.get("files", {})["state.db"] = file_sha256(run / "state.db")
        (run / "run.json").write_text(json.dumps(info))
