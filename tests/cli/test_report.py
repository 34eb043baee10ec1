"""`robaudit report`: which file it writes, what it says, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from robaudit import audit, load_spec
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, save_npz, write


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of noise, whose data set can be moved."""
    folder = tmp_path_factory.mktemp("report")
    save_npz(folder / "x.npz", count=12)
    spec = digits(
        dataset={"kind": "npz", "path": "x.npz"}, estimators=[{"mc": {"draws": 20}}, "softmax"]
    )
    return audit(load_spec(write(folder, spec)), out=folder / "run").path


def test_a_page(run: Path, run_cli: RunCli, tmp_path: Path, golden: Golden) -> None:
    outcome = run_cli("report", run, "-o", "r.html", "--title", "Mine", "--max-images", "2")
    assert (outcome.code, outcome.out) == (0, "")
    golden.lines(outcome.err)
    text = (tmp_path / "r.html").read_text()
    assert "<h1>Mine</h1>" in text
    assert text.count('"flagged-title"') == 2, (
        "the id of the title of the picture of the images, and the link to it"
    )
    assert "Shown: the 2 least robust." in text


def test_markdown_by_the_ending_and_to_standard_output(
    run: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    assert run_cli("report", run, "-o", "r.md", "--estimator", "mc").code == 0
    printed = run_cli("report", run, "--format", "md", "--estimator", "mc")
    assert printed == (0, (tmp_path / "r.md").read_text(), "")
    assert "softmax" not in printed.out


def test_a_data_set_that_moved(run: Path, run_cli: RunCli, tmp_path: Path, golden: Golden) -> None:
    data = run.parent / "x.npz"
    data.rename(tmp_path / "x.npz")
    try:
        outcome = run_cli("report", run, "-o", "r.html", "--sigma", "1/5", "--estimator", "mc")
    finally:
        (tmp_path / "x.npz").rename(data)
    assert outcome.code == 0
    golden.lines(outcome.err)
    text = (tmp_path / "r.html").read_text()
    assert "flagged-title" not in text
    assert "No images:" in text


@pytest.fixture
def softmax_run(run: Path, tmp_path: Path) -> Path:
    """Of the same images, without mc."""
    save_npz(tmp_path / "x.npz", count=12)
    spec = digits(dataset={"kind": "npz", "path": "x.npz"}, estimators=["softmax"])
    return audit(load_spec(write(tmp_path, spec)), out=tmp_path / "other").path


def test_a_run_without_what_was_asked_for(
    run: Path, softmax_run: Path, run_cli: RunCli, refuse: Refuse, golden: Golden
) -> None:
    refuse("report", softmax_run, run, "--estimator", "mc", "-o", "r.html")
    both = run_cli(
        "report", softmax_run, run, "--format", "md", "--estimator", "mc", "--estimator", "softmax"
    )
    golden.lines(both.err)
    assert "| noise | run |" in both.out
    refuse("report", softmax_run, run, "--estimator", "mmse", "-o", "r.html")
    refuse("report", softmax_run, run, "--sigma", "0.7", "-o", "r.html")


def test_refusals(run: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse("report", "nowhere")
    refuse("report", run, "-o", "no/such/r.md")
    refuse("report", run, "-o", "r.pdf")
    refuse("report", run, "--estimator", "mmse", "-o", "r.html")
    refuse("report", run, "--sigma", "0.7", "-o", "r.html")
    refuse("report", run, "--threshold", "7", "-o", "r.html")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    refuse("report", run, "-o", "r.html")
