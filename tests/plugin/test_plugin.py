"""Estimators of other packages: installed with pip, listed, run and checked like ours. One of them is that of docs/plugins.md."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from robaudit import read_run
from tests import forks
from tests.conftest import RunCli
from tests.specs import digits, write

SOURCE = Path(__file__).with_name("package")
PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
FILES = ("pyproject.toml", "robaudit_clear.py", "test_clear.py", "robaudit_norms.py", "robaudit_banding.py")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def page() -> tuple[str, ...]:
    """The code of docs/plugins.md: pyproject.toml, an estimator, its test, one with several values, and the kind of noise."""
    return tuple(re.findall(r"```(?:toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the packages are installed into."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, folder / "source")
    (folder / "clear").mkdir()
    for name, text in zip(FILES, page(), strict=True):
        (folder / "clear" / name).write_text(text, encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "installed"),
        str(folder / "source"),
        str(folder / "clear"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "installed"


@pytest.fixture
def robaudit(installed: Path, tmp_path: Path) -> Run:
    """The program in a process that sees the package."""

    def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
        return forks.robaudit(tmp_path, *args, path=[installed])

    return run


def test_listed(robaudit: Run) -> None:
    done = robaudit("list", "estimators", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (entry,) = [entry for entry in json.loads(done.stdout) if entry["name"] == "margin"]
    assert entry["quantity"] == "margin"
    assert entry["options"] == "scale=1.0"
    assert "margin" in robaudit("list", "estimators").stdout


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the package's estimator, twice, beside one of ours."""
    folder = tmp_path_factory.mktemp("run")
    spec = write(folder, digits(estimators=[{"mc": {"samples": 10}}, "margin", {"margin": {"scale": 2, "label": "half"}}]))
    done = forks.robaudit(folder, "estimate", spec, "--out", "run", path=[installed])
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


@pytest.mark.slow
def test_the_estimator_of_the_docs_draws_noise_in_fifteen_lines(robaudit: Run) -> None:
    body = page()[1].partition("    quantity, needs")[2].splitlines()
    assert len([line for line in body if line.strip()]) <= 18
    (entry,) = [entry for entry in json.loads(robaudit("list", "estimators", "--format", "json").stdout) if entry["name"] == "clear"]
    assert (entry["quantity"], entry["interval"], entry["cost"]) == ("p_clear", "clopper-pearson", "101 forward")
    assert entry["options"] == "samples=100, margin=1.0"


@pytest.mark.slow
def test_the_test_of_the_docs_passes(installed: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(PAGE.parents[1])])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(installed.parent / "clear" / "test_clear.py")]
    done = subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_the_estimator_of_the_docs_in_a_run(installed: Path, tmp_path: Path) -> None:
    """As the page's spec has it: twice, with two margins, of which the larger leaves less."""
    estimators, _ = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    chosen = yaml.safe_load(estimators.replace("1000", "20"))["estimators"]
    done = forks.robaudit(tmp_path, "estimate", write(tmp_path, digits(estimators=chosen)), "--out", "run", path=[installed])
    assert done.returncode == 0, done.stderr
    rows = {name: [row.value for row in read_run(tmp_path / "run").rows if row.estimator == name] for name in ("mc", "clear", "very_clear")}
    assert sum(rows["mc"]) > sum(rows["clear"]) > sum(rows["very_clear"])


def test_several_values_of_each_image(installed: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """docs/plugins.md: a row for each, and what the page says of gates and of the command line."""
    spec = write(tmp_path, digits(estimators=[{"norms": {"samples": 20}}, {"norms": {"q": [1, 50], "samples": 20, "label": "far"}}]))
    done = forks.robaudit(tmp_path, "estimate", spec, "--out", "run", path=[installed])
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    names = ["norms:q=1", "norms:q=2", "far:q=1", "far:q=50"]
    assert [row.estimator for row in run.rows] == names * 8
    one, two, again, fifty = ([row.value for row in run.rows if row.estimator == name] for name in names)
    assert one == pytest.approx(again)
    assert all(a <= b <= c for a, b, c in zip(one, two, fifty, strict=True))
    assert (run.info["totals"]["forwards"], run.info["totals"]["rows"]) == (2 * 8 * 21, 4 * 8)
    assert set(run.groups(["norms"])) == {key for key in run.groups() if key[0] in names[:2]}
    assert run_cli("gate", "run", "mean(estimator=norms, q=2) <= 0.5", "--point").code in (0, 1)
    other = write(tmp_path, digits(estimators=[{"norms": {"samples": 20, "q": [3]}}]), "other.yaml")
    refused = forks.robaudit(tmp_path, "estimate", other, "--out", "run", "--extend", path=[installed])
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "give the new one a label of its own" in refused.stderr


def test_unknown_without_the_package(tmp_path: Path, run_cli: RunCli) -> None:
    code, out, err = run_cli("estimate", write(tmp_path, digits(estimators=["margin"])))
    assert (code, out) == (2, "")
    assert "spec.yaml:11: estimators[0]: unknown estimator 'margin'; " in err


def test_a_noise_of_another_package(installed: Path, tmp_path: Path) -> None:
    """docs/plugins.md: found by its name, and run beside ours."""
    noise = [{"kind": "banding", "sigma": [0.3]}, {"sigma": [0.3]}]
    spec = write(tmp_path, digits(noise=noise, estimators=[{"mc": {"samples": 50}}]))
    done = forks.robaudit(tmp_path, "estimate", spec, "--out", "run", path=[installed])
    assert done.returncode == 0, done.stderr
    with (tmp_path / "run" / "samples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["noise"] for row in rows] == ["banding", "gaussian"] * 8
    assert {row["level_name"] for row in rows} == {"sigma"}
