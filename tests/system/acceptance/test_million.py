"""A million images need little more memory than a thousand: beside the paths and ids of the data,
rows and summaries are streamed."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robaudit.runs.state import Flush, State
from tests import forks
from tests.levels import sigma
from tests.specs import NETWORK, write
from tests.unit.runs.test_runs import row

MB = 2**20


def peak(folder: Path, rows: int) -> int:
    """Bytes that an audit of so many rows of a CSV file holds at its peak, tables included."""
    with (folder / f"{rows}.csv").open("w") as file:
        file.write("id,path,label\n")
        file.writelines(f"sample-{i:07d},digit.png,{i % 10}\n" for i in range(rows))
    document = {
        "model": NETWORK,
        "dataset": {"kind": "csv", "path": f"{rows}.csv", "channels": 1},
        "noise": {"sigma": 0.1},
        "estimators": [{"mc": {"draws": 4}}],
    }
    with forks.started(
        folder,
        "estimate",
        write(folder, document, f"{rows}.yaml"),
        "--out",
        f"run-{rows}",
        "--quiet",
    ) as command:
        done = command.answer()
    assert done.returncode == 0, done.stderr
    with (folder / f"run-{rows}" / "samples.csv").open() as file:
        assert sum(1 for _ in file) == 1 + rows
    return int(command.megabytes * MB)


@pytest.mark.slow
def test_a_million_rows_of_a_csv_file(tmp_path: Path) -> None:
    Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype(np.uint8)).save(tmp_path / "digit.png")
    few = peak(tmp_path, 1_000)
    many = peak(tmp_path, 1_000_000)
    print(f"1,000 rows: {few / MB:.0f} MB; 1,000,000 rows: {many / MB:.0f} MB")  # noqa: T201  kept by pytest, read with -rP
    assert many <= 1.1 * few + 300e6


class Numbers:
    """A data set of which only the ids matter."""

    where = "numbers"
    class_names = None

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def sample_id(self, index: int) -> str:
        return f"sample-{index:07d}"


def allocated(work: object) -> int:
    """Bytes that Python and NumPy hold at the peak of a call."""
    tracemalloc.start()
    try:
        work()  # type: ignore[operator]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_sample_costs_few_bytes_while_a_run_goes_on(tmp_path: Path) -> None:
    """Of a run that goes on, which has results already; SQLite's own memory is bounded by its page
    cache."""
    count = 50_000
    with State.create(tmp_path / "state.db", lambda: None) as state:
        state.write(Flush([row("sample-0000007", sigma(0.1), "mc")]))
        begin = partial(state.begin, Numbers(count), [(sigma(0.1), "mc")])  # type: ignore[arg-type]
        assert min(allocated(begin) for _ in range(3)) < 10 * count, (
            "what other threads allocate comes on top"
        )
        assert len(state.unfinished) == count - 1
