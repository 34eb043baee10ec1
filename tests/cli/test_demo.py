"""`robaudit demo`: the first thing a newcomer types."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import RunCli


def test_demo(tmp_path: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli("demo")
    assert code == 0
    assert "error" not in err
    assert "warning" not in err
    assert "Two classifiers of handwritten digits" in out
    for command in (
        "robaudit estimate ordinary.yaml",
        "robaudit estimate noise_trained.yaml",
        "robaudit bias-report",
        "robaudit flag-samples",
    ):
        assert command in out
    for name in ("ordinary", "noise_trained"):
        assert f"Files: runs/demo-{name}/samples.csv, samples.json, summary.json, run.json" in out
        assert (tmp_path / "runs" / f"demo-{name}" / "samples.csv").exists()
    assert "what to do next" in out
    assert "robaudit show runs/demo-noise_trained" in out
    again = run_cli("demo")
    assert again.code == 0
    assert again.err.count("this run is complete; nothing was recomputed") == 2
    assert again.out == out, "the commands that the demo names can be tried on what it left"
    assert run_cli("show", "runs/demo-noise_trained").code == 0
