"""The end of a run: what it returns is what a reader of its folder finds, and nothing is read back
for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from robaudit.auditing import outputs
from robaudit.auditing.audit import audit
from robaudit.runs.folder import OUTPUTS
from robaudit.runs.run import StoredRows
from robaudit.runs.serialise import rows_csv, rows_json
from robaudit.stats.reading import read_run
from robaudit.stats.summary import summary_of
from tests.specs import digits, located

ESTIMATORS = [{"mc": {"draws": 40}}, {"logit_gaussian": {"draws": 16}}]


@pytest.mark.parametrize("most", [None, 0], ids=["few rows", "many rows"])
def test_a_finished_run_is_what_its_folder_says(
    most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if most is not None:
        monkeypatch.setattr(outputs, "SMALL", most)
    run = audit(
        located(
            digits(limit=6, noise={"sigma": [0.2, 1.0]}, estimators=ESTIMATORS), tmp_path, "spec"
        ),
        out=tmp_path / "run",
    )
    assert isinstance(run.rows, StoredRows) == (most == 0)
    again = read_run(run.path)
    assert run.info == again.info
    assert list(run.rows) == list(again.rows)
    assert any(
        row.votes is not None and row.votes.bits for row in read_run(run.path, kept=True).rows
    ), "which neither of them holds"
    assert summary_of(run) == summary_of(again)


def test_the_files_are_those_of_the_rows(tmp_path: Path) -> None:
    run = audit(
        located(digits(limit=6, estimators=ESTIMATORS), tmp_path, "spec"), out=tmp_path / "run"
    )
    rows = read_run(run.path, kept=True).rows
    assert (run.path / "samples.json").read_text() == "".join(rows_json(rows))
    assert (run.path / "samples.csv").read_text() == "".join(rows_csv(rows, run.class_names))


def test_nothing_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "SMALL", 0)
    run = audit(
        located(digits(limit=6, estimators=ESTIMATORS), tmp_path, "spec"), out=tmp_path / "run"
    )
    for name in OUTPUTS:
        (run.path / name).unlink()
    assert [group.images for group in summary_of(run)] == [6, 6]
