"""`robaudit demo`: the first thing a newcomer types."""

from __future__ import annotations

import importlib.resources
import re
import sys
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
        document["dataset"]["limit"] = 12
        document["estimators"] = [{"mc": {"draws": 100}}]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    original = importlib.resources.files
    monkeypatch.setattr(
        importlib.resources,
        "files",
        lambda package: folder if package == "robaudit.demo" else original(package),
    )


def check(tmp_path: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli("demo")
    assert code == 0
    assert "error" not in err
    assert "warning" not in err
    assert "How often does each keep its prediction when a sensor adds noise?" in out
    assert re.search(
        r"ordinary +trained with noise +trained with noise - ordinary", " ".join(out.split())
    ), out
    assert "Least robust first:" in out
    for name in ("ordinary", "noise_trained"):
        assert (tmp_path / "runs" / f"demo-{name}" / "samples.csv").exists()
    assert "<html" in (tmp_path / "runs" / "demo-report.html").read_text(encoding="utf-8")
    for line in out.splitlines():
        if command := re.search(r"robaudit ((?:show|bias-report|compare) .*)", line):
            assert run_cli(*command[1].split()).code == 0


@pytest.mark.usefixtures("few_images")
def test_demo(tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first without the packages of reports."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "jinja2", None)
        code, out, _ = run_cli("demo")
    assert code == 0
    assert "No report" in out
    assert "robaudit[report]" in out
    assert not (tmp_path / "runs" / "demo-report.html").exists()
    check(tmp_path, run_cli)


@pytest.mark.slow
def test_all_of_the_demo(tmp_path: Path, run_cli: RunCli) -> None:
    check(tmp_path, run_cli)
