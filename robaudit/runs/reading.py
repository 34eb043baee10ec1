"""Open a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.files import file_sha256
from robaudit.runs.folder import RunFolder
from robaudit.runs.info import RunInfo
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.runs.serialise import stream_rows_json

__all__ = ["Run", "StoredRows", "read_run"]

SMALL = 2**24  # bytes of a samples.json whose rows are held in memory


class StoredRows(Sequence[Row]):
    """The rows of a large samples.json: each iteration reads the file again and holds nothing in memory.

    The length and an index read all rows into memory.

    Args:
        path: of the file.
        info: the content of run.json.
        kept: also read which draws kept the class.

    Attributes:
        owner: an object that must live as long as the rows: the temporary folder of the file, if any.
    """

    def __init__(self, path: Path, info: RunInfo, *, kept: bool = False) -> None:
        self.owner: object = None
        self._path, self._kept = path, kept
        self._quantities = {quantity.name for quantity in info.quantities}
        self._version = self._file_version()

    def __iter__(self) -> Iterator[Row]:
        where = str(self._path)
        if self._file_version() != self._version:
            raise RunError(where, "has changed since it was opened", "read the run again")
        with self._path.open("rb") as file:
            for row in stream_rows_json(file, where, bits=self._kept):
                if row.quantity not in self._quantities:
                    what = f"has results of {row.quantity!r}, which run.json does not describe"
                    raise RunError(where, what, "run the audit again in another folder")
                yield row

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    @cached_property
    def _all(self) -> tuple[Row, ...]:
        return tuple(iter(self))

    def _file_version(self) -> tuple[int, int]:
        about = self._path.stat()
        return about.st_ino, about.st_mtime_ns


def read_run(path: Path, *, kept: bool = False) -> Run:
    """Open a finished run; the rows of a large run are read when they are used.

    Args:
        path: the run folder.
        kept: also read which draws kept the class (:attr:`robaudit.results.Votes.bits`), which takes more memory than the rest of a row.

    Raises:
        RunError: it is missing, damaged or unfinished.
    """
    folder = RunFolder(path)
    info = folder.info()
    if not info.complete:
        raise RunError(str(path), "this run is unfinished", "resume it: run the same robaudit estimate command again")
    if file_sha256(path / "samples.json") != info.files.get("samples.json"):
        raise RunError(
            str(path / "samples.json"),
            "is missing, or has changed since it was written",
            "run the same robaudit estimate command again: it restores the file from the run's state",
        )
    samples = path / "samples.json"
    rows = StoredRows(samples, info, kept=kept)
    return Run(path, info, rows if samples.stat().st_size > SMALL else tuple(rows))
