"""An estimator of somebody else's package: installed with pip, listed, run and checked like ours."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from robaudit import read_run
from tests.conftest import RunCli
from tests.specs import digits, write

SOURCE = Path(__file__).with_name("package")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package is installed into."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "installed"), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "installed"


def start(path: Path, folder: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """The program in a folder, in a process that sees the packages in ``path``."""
    command = [sys.executable, "-m", "robaudit", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def robaudit(installed: Path, tmp_path: Path) -> Run:
    """The program in a process that sees the package."""

    def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
        return start(installed, tmp_path, *args)

    return run


def test_listed(robaudit: Run) -> None:
    done = robaudit("estimators", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (entry,) = [entry for entry in json.loads(done.stdout) if entry["name"] == "margin"]
    assert entry["quantity"] == "margin"
    assert entry["options"] == "scale=1.0"
    assert "margin" in robaudit("estimators").stdout


@pytest.mark.slow
def test_its_options_are_in_the_schema(robaudit: Run) -> None:
    definitions = json.loads(robaudit("schema").stdout)["$defs"]
    assert definitions["margin options"]["properties"]["scale"]["exclusiveMinimum"] == 0


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the package's estimator, twice, beside one of ours."""
    folder = tmp_path_factory.mktemp("run")
    spec = write(folder, digits(estimators=[{"mc": {"samples": 10}}, "margin", {"margin": {"scale": 2, "label": "half"}}]))
    done = start(installed, folder, "estimate", spec, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "margin" in done.stdout
    return folder / "run"


def test_rows(run: Path) -> None:
    with (run / "samples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole, half = ([row for row in rows if row["estimator"] == name] for name in ("margin", "half"))
    assert len(whole) == len(half) == 8
    assert all((row["quantity"], row["interval"], row["forwards"]) == ("margin", "none", "1") for row in whole + half)
    assert [float(row["value"]) / 2 for row in whole] == pytest.approx([float(row["value"]) for row in half])
    assert max(float(row["value"]) for row in whole) > 1, "a margin is no probability"


def test_its_quantity_may_be_unbounded(run: Path) -> None:
    quantity = read_run(run).quantities["margin"]
    assert (quantity.unit, quantity.low, quantity.high) == ("logits", 0.0, math.inf)


@pytest.mark.parametrize("command", ["show", "bias-report --threshold 5", "flag-samples --bottom 2"])
@pytest.mark.parametrize("format_", ["table", "csv", "json"])
def test_reports_need_no_plugin(command: str, format_: str, run: Path, run_cli: RunCli) -> None:
    name, *options = command.split()
    options += [] if name == "show" else ["--format", format_]
    code, out, err = run_cli(name, run, "--estimator", "margin", *options)
    assert (code, err) == (0, "")
    assert "margin" in out
    assert "nan" not in out.lower()


@pytest.mark.slow
def test_its_options_are_checked(robaudit: Run, tmp_path: Path) -> None:
    spec = write(tmp_path, digits(estimators=["margin"]))
    for setting, says in {
        "margin.scal=2": "unknown key 'scal'; did you mean 'scale'?",
        "margin.scale=0": "got 0; must be greater than 0",
    }.items():
        done = robaudit("estimate", spec, "--set", setting)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: estimators[0].margin: ")
        assert says in done.stderr


def test_unknown_without_the_package(tmp_path: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli("estimate", write(tmp_path, digits(estimators=["margin"])))
    assert (code, out) == (2, "")
    assert err.startswith("error: estimators[0]: unknown estimator 'margin'; ")
