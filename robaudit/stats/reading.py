"""Open a run, finished or not: a finished one from its outputs, another from its state."""

from __future__ import annotations

from pathlib import Path

from robaudit.errors import NoResultsYetError, RunError
from robaudit.files import file_sha256
from robaudit.runs.folder import RunFolder
from robaudit.runs.info import Planned, RunInfo
from robaudit.runs.rows import Row, without_bits
from robaudit.runs.run import SMALL, Run, StoredRows, quantities_of
from robaudit.runs.state import State
from robaudit.stats.summary import summarise
from robaudit.stats.tally import Tally

# A session of the audit may begin or end while its run is read.
_TRIES = 5


def read_run(path: Path, *, kept: bool = False) -> Run:
    """Open a run; the rows of a large finished one are read when they are used.

    A run that is unfinished, or still running, has the results that are on disk so far.

    Args:
        path: the run folder.
        kept: whether to read which draws kept the class, too (:attr:`robaudit.results.Votes.bits`).
            They take more memory than the rest of a row.

    Raises:
        NoResultsYetError: the run has no result yet.
        RunError: the run is missing or damaged.
    """
    folder = RunFolder(path)
    info = folder.info()
    for _ in range(_TRIES):
        run = _read(folder, info, kept=kept)
        now = folder.info()
        if run is not None and (now.status, now.files) == (info.status, info.files):
            return run
        if now == info:
            break
        info = now
    raise RunError(
        str(path / "samples.json"),
        "is missing, or has changed since it was written",
        "run the same robaudit estimate command again: it restores the file from the run's state",
    )


def _read(folder: RunFolder, info: RunInfo, *, kept: bool) -> Run | None:
    """The run that run.json describes; None if its outputs are not those of run.json."""
    if not info.has_outputs:
        return _read_state(folder, info, kept=kept)
    samples = folder.path / "samples.json"
    # This file alone: readers of a run use no other output, and while an extension is computed the
    # state grows.
    if file_sha256(samples) != info.files.get("samples.json"):
        return None
    rows = StoredRows(samples, info, kept=kept)
    large = samples.stat().st_size > SMALL
    return Run(folder.path, info, rows if large else tuple(rows))


def _read_state(folder: RunFolder, info: RunInfo, *, kept: bool) -> Run:
    """The run so far.

    Raises:
        RunError: the state is damaged.
    """
    with folder.read_state(info) as state:
        if not state.has_rows:
            raise NoResultsYetError(
                str(folder.path), "has no results yet", "wait, or run its audit again"
            )
        return run_so_far(folder.path, info, state, kept=kept)


def run_so_far(path: Path, info: RunInfo, state: State, *, kept: bool = False) -> Run:
    """The run with the results that its state has so far.

    Args:
        path: the run folder.
        info: the content of run.json.
        state: of the run.
        kept: as for :func:`read_run`.
    """
    tally = Tally(info.flag)
    rows: list[Row] = []
    for sample in state.stored():
        tally.add(sample.rows, sample.digest)
        rows += sample.rows if kept else map(without_bits, sample.rows)
    table = tally.table()
    summaries = summarise(table, quantities_of(info))
    fields = tally.fields(info, summaries, state.stored_skips(), state.seconds())
    reached = tally.reached(info.planned or Planned(images=tally.samples))
    current = info.model_copy(update={**fields, "reached": reached})
    return Run(path, current, tuple(rows)).with_columns(table)
