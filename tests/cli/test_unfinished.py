"""Runs that are unfinished, or still running, can be read at any moment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Refuse, refuse
from tests.cli.stopping import time_is_over_after
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, write
from tests.states import change_info

__all__ = ["refuse"]

HOW_FAR = "8 to 16 of 40 copies of each of 30 images"


@pytest.fixture
def unfinished(tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was killed in its third round."""
    document = digits(limit=30, estimators=[{"mc": {"draws": 40}}], gates=["mean >= 0.5"])
    write(tmp_path, document)
    with monkeypatch.context() as patch:
        patch.setattr("robaudit.auditing.chunk_sizes.MOST_IMAGES", 10)
        # Two steps a chunk, three chunks a round.
        time_is_over_after(2 * 3 * 2 + 2, patch)
        code, _, err = run_cli("estimate", "spec.yaml", "--out", "run", "--budget", "1h")
    assert code == 0, err
    run = tmp_path / "run"
    # A kill leaves neither outputs nor their digests.
    for name in ("samples.csv", "samples.json", "summary.json"):
        (run / name).unlink()
    change_info(run, status="running", files=None, stopped=None, reached=None)
    return run


READERS = {
    "show": ("show", "run"),
    "show classes": ("show", "run", "classes"),
    "gate": ("gate", "run"),
    "flag-samples": ("flag-samples", "run"),
    "bias-report": ("bias-report", "run"),
    "report": ("report", "run", "-o", "report.html"),
    "report md": ("report", "run", "-o", "report.md"),
    "compare": ("compare", "run", "run"),
    "plot": ("plot", "run", "--kind", "classes", "-o", "plot.svg"),
    "verify": ("verify", "run", "--samples", "3"),
    "show csv": ("show", "run", "--format", "csv"),
    "show rows": ("show", "run", "rows"),
}


@pytest.mark.parametrize("command", READERS.values(), ids=list(READERS))
def test_every_reader_reads_it_and_says_how_far_it_is(
    command: tuple[str, ...], unfinished: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    code, out, err = run_cli(*command)
    assert code in (0, 1, 4), err
    said = out + err
    for name in ("report.html", "report.md"):
        if (tmp_path / name).exists():
            # A page keeps numbers and their words together.
            said += (tmp_path / name).read_text(encoding="utf-8").replace("\u00a0", " ")
    if command[0] not in ("plot", "verify"):
        assert HOW_FAR in said


def test_a_stopped_run_says_why(unfinished: Path, run_cli: RunCli) -> None:
    assert run_cli("show", "run").out.startswith(f"so far          {HOW_FAR} (unfinished)\n")


@pytest.mark.bits
def test_the_same_command_goes_on(
    unfinished: Path, run_cli: RunCli, tmp_path: Path, golden: Golden
) -> None:
    code, _, err = run_cli("estimate", "spec.yaml", "--out", "run")
    assert code == 0
    golden.lines(err, "note: resuming")
    assert run_cli("estimate", "spec.yaml", "--out", "whole").code == 0
    for name in ("samples.csv", "samples.json", "summary.json"):
        assert (unfinished / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_without_results_has_none_yet(
    unfinished: Path, run_cli: RunCli, refuse: Refuse
) -> None:
    (unfinished / "state.db").unlink()
    code, out, err = run_cli("show", "run")
    assert (code, out, err) == (0, "", "run has no results yet\n")
    refuse("gate", "run")


def test_a_summary_of_it_counts_its_copies(unfinished: Path, run_cli: RunCli) -> None:
    rows = json.loads(run_cli("show", "run", "rows", "--format", "json").out)["rows"]
    draws = [sum(row["votes"]["counts"].values()) for row in rows]
    assert sorted(set(draws)) == [8, 16]
    assert len(rows) == 30


def test_no_gate_is_decided_while_images_have_no_copy(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, digits(limit=30, estimators=[{"mc": {"draws": 40}}]))
    monkeypatch.setattr("robaudit.auditing.chunk_sizes.MOST_IMAGES", 10)
    time_is_over_after(4, monkeypatch)
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--budget", "1h").code == 0
    code, out, _ = run_cli("gate", "run", "mean >= 0.001")
    assert code == 4
    assert re.search(r"\d+ images have no result yet", out)
    assert run_cli("gate", "run", "warnings <= 0").code == 0


def test_a_gated_run_between_two_looks_is_inconclusive(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further looks than those that share the error would raise it."""
    write(tmp_path, digits(limit=30, estimators=[{"mc": {"draws": 40}}]))
    command = ("estimate", "spec.yaml", "--gate", "mean >= 0.999", "--out", "run")
    with monkeypatch.context() as patch:
        patch.setattr("robaudit.auditing.chunk_sizes.MOST_IMAGES", 10)
        patch.setattr("robaudit.auditing.until.GateAnalyses.__call__", lambda *_: None)
        time_is_over_after(2 * 3 * 2 + 2, patch)
        assert run_cli(*command, "--budget", "1h").code == 4
    code, out, _ = run_cli("gate", "run")
    assert code == 4
    assert "between two analyses of its schedule: run robaudit estimate again" in out
    # At a confidence of one's own it is one's own look.
    assert run_cli("gate", "run", "--confidence", "0.95").code in (0, 1)
    assert run_cli(*command).code in (0, 1)
