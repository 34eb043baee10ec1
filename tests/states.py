"""What tests look at, and change, in the state of a run."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any


def query(run: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a statement gives; the file is only read."""
    with closing(sqlite3.connect(f"file:{run / 'state.db'}?mode=ro", uri=True)) as state:
        return state.execute(statement, values).fetchall()


def flushes(run: Path) -> int:
    """How many flushes a run took so far; 0 where its state cannot be read yet."""
    try:
        return int(query(run, "SELECT count(DISTINCT flush) FROM checksums")[0][0])
    except sqlite3.OperationalError:
        return 0


def change(run: Path, *statements: str) -> None:
    """Change the state, and seal it again: what a stranger could do."""
    with closing(sqlite3.connect(run / "state.db", isolation_level=None)) as state:
        for statement in statements:
            state.execute(statement)
        for flush, name in state.execute("SELECT flush, name FROM checksums").fetchall():
            if state.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone():
                records = state.execute(f"SELECT * FROM {name} WHERE flush = ? ORDER BY id", (flush,)).fetchall()  # noqa: S608
                seal = (checksum(records), flush, name) if records else (None, flush, name)
                state.execute("UPDATE checksums SET sha256 = ? WHERE flush = ? AND name = ?", seal)
        state.execute("DELETE FROM checksums WHERE sha256 IS NULL")


def forget_flushes(run: Path, after: int) -> None:
    """As if the process had died after so many flushes."""
    with closing(sqlite3.connect(run / "state.db", isolation_level=None)) as state:
        for name in ("tasks", "samples", "images", "rows", "skips", "seconds", "checksums"):
            state.execute(f"DELETE FROM {name} WHERE flush > ?", (after,))  # noqa: S608


def checksum(records: Sequence[tuple[Any, ...]]) -> str:
    """The checksum of records of a table, written down a second time."""
    texts = [json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=repr) for record in records]
    return hashlib.sha256("".join(texts).encode()).hexdigest()
