"""`robaudit demo`: the first thing a newcomer types."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest
import yaml

from tests.conftest import RunCli
from tests.specs import WEIGHTS


@pytest.fixture
def few_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specs of the demo with fewer images and draws."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name in ("ordinary", "noise_trained"):
        document = yaml.safe_load((WEIGHTS.parent / f"{name}.yaml").read_text(encoding="utf-8"))
        document["model"]["path"] = str(WEIGHTS.parent / document["model"]["path"])
        document["dataset"]["limit"] = 20
        for entry in document["estimators"]:
            if isinstance(entry, dict) and "mc" in entry:
                entry["mc"]["samples"] = 100
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    original = importlib.resources.files
    monkeypatch.setattr(importlib.resources, "files", lambda package: folder if package == "robaudit.demo" else original(package))


def check(tmp_path: Path, run_cli: RunCli) -> None:
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
    assert "next steps" in out
    assert "robaudit show runs/demo-noise_trained" in out
    again = run_cli("demo")
    assert again.code == 0
    assert again.err.count("this run is complete; nothing was recomputed") == 2
    assert again.out == out, "the commands that the demo names can be tried on what it left"
    assert run_cli("show", "runs/demo-noise_trained").code == 0


@pytest.mark.usefixtures("few_images")
def test_demo(tmp_path: Path, run_cli: RunCli) -> None:
    check(tmp_path, run_cli)


@pytest.mark.slow
def test_all_of_the_demo(tmp_path: Path, run_cli: RunCli) -> None:
    check(tmp_path, run_cli)
