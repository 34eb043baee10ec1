"""The packages of docs/plugins.md: installed with pip, listed, run and checked like ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from robaudit import read_run
from tests import forks
from tests.cli.plugin import entries
from tests.cli.plugin.entries import PAGE
from tests.conftest import RunCli
from tests.specs import digits, write

NORMS = ("norms:q=1", "norms:q=2", "far:q=1", "far:q=50")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package is installed into: estimators, a section, a statistic of gates and
    a kind of noise."""
    folder = tmp_path_factory.mktemp("plugin")
    entries.write_documented(folder / "clear")
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "installed"),
        str(folder / "clear"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "installed"


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of them all, beside ours."""
    folder = tmp_path_factory.mktemp("run")
    example, _ = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    estimators = yaml.safe_load(example.replace("1000", "20"))["estimators"]
    estimators += [{"clear": {"margin": 0, "draws": 20, "label": "barely"}}]
    estimators += [
        {"norms": {"draws": 20}},
        {"norms": {"q": [1, 50], "draws": 20, "label": "far"}},
    ]
    spec = write(
        folder,
        digits(
            estimators=estimators, noise=[{"kind": "banding", "sigma": [0.3]}, {"sigma": [0.3]}]
        ),
    )
    done = forks.robaudit(folder, "estimate", spec, "--out", "run", path=[installed])
    assert done.returncode == 0, done.stderr
    assert "very_clear" in done.stdout
    return folder / "run"


def test_listed(installed: Path, tmp_path: Path) -> None:
    done = forks.robaudit(tmp_path, "list", "estimators", "--format", "json", path=[installed])
    assert (done.returncode, done.stderr) == (0, "")
    (entry,) = [entry for entry in json.loads(done.stdout) if entry["name"] == "clear"]
    assert (entry["quantity"], entry["interval"]) == ("p_clear", "clopper-pearson")
    assert entry["cost"].startswith("101 forward passes")
    assert entry["options"] == "draws=100, margin=1.0"


def test_an_estimator_and_a_noise(run: Path) -> None:
    """As the page's spec has it: twice, with two margins, of which the larger leaves less."""
    rows = read_run(run).rows
    assert {(row.noise, row.level_name) for row in rows} == {
        ("banding", "sigma"),
        ("gaussian", "sigma"),
    }
    for noise in ("banding", "gaussian"):
        values = {
            name: sum(row.value for row in rows if (row.estimator, row.noise) == (name, noise))
            for name in ("mc", "clear", "very_clear")
        }
        assert values["mc"] >= values["clear"] > values["very_clear"]


def test_several_values_of_each_image(run: Path, installed: Path, run_cli: RunCli) -> None:
    """A row for each, and what the page says of gates and of the command line."""
    found = read_run(run)
    one, two, again, fifty = (
        [row.value for row in found.rows if row.estimator == name] for name in NORMS
    )
    assert len(one) == 2 * 8
    assert one == pytest.approx(again)
    assert all(a <= b <= c for a, b, c in zip(one, two, fifty, strict=True))
    assert set(found.groups(["norms"])) == {
        key for key in found.groups() if key.estimator in NORMS[:2]
    }
    assert run_cli(
        "gate", run, "mean(estimator=norms, q=2, noise=gaussian) <= 0.5", "--point"
    ).code in (0, 1)
    other = write(
        run.parent,
        digits(estimators=[{"norms": {"draws": 20, "q": [3]}}], noise={"sigma": [0.3]}),
        "other.yaml",
    )
    refused = forks.robaudit(
        run.parent, "estimate", other, "--out", "run", "--extend", path=[installed]
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "give the new one a label of its own" in refused.stderr


def test_its_section(run: Path, installed: Path) -> None:
    """As a table, as CSV and on the page; the labelled twin with a larger margin is another
    line."""
    table = forks.robaudit(run.parent, "show", "run", "clear", "--sigma", "0.3", path=[installed])
    assert (table.returncode, table.stderr) == (0, "")
    assert "Clear images" in table.stdout
    assert "every copy clear" in table.stdout
    csv = forks.robaudit(
        run.parent,
        "show",
        "run",
        "clear",
        "--estimator",
        "very_clear",
        "--format",
        "csv",
        path=[installed],
    )
    head, *lines = csv.stdout.splitlines()
    assert head == "run,result,images,always,never"
    assert len(lines) == 2, "a line for each noise"
    page = forks.robaudit(run.parent, "report", "run", "-o", "page.html", path=[installed])
    assert page.returncode == 0, page.stderr
    assert "Clear images" in (run.parent / "page.html").read_text(encoding="utf-8")
    drawn = forks.robaudit(
        run.parent, "plot", "run", "--kind", "clear", "-o", "clear.png", path=[installed]
    )
    assert drawn.returncode == 2
    assert (
        drawn.stderr
        == "error: kind 'clear': is a section without a figure; robaudit show RUN clear prints it\n"
    )


def test_its_section_is_not_there_without_it(run: Path, run_cli: RunCli) -> None:
    code, _, err = run_cli("show", run, "clear")
    assert code == 2
    assert err.startswith("error: section clear: there is no such section; ")


def test_its_statistic_of_gates(run: Path, installed: Path) -> None:
    """A count: decided without error, as the rows have it; refused where its range or its results
    are missing."""
    values = [
        row.value
        for row in read_run(run).rows
        if (row.estimator, row.noise) == ("barely", "gaussian")
    ]
    share = sum(value == 1.0 for value in values) / len(values)
    assert 0.1 < share < 0.9

    def gated(gate: str, *options: str) -> tuple[int, str, str]:
        done = forks.robaudit(run.parent, "gate", "run", gate, *options, path=[installed])
        return done.returncode, done.stdout, done.stderr

    about = "always_clear(estimator=barely, noise=gaussian)"
    assert gated(f"{about} >= {share}")[0] == 0
    code, out, _ = gated(f"{about} >= {share + 0.01}", "--format", "json")
    (decision,) = json.loads(out)["gates"]
    assert (code, decision["verdict"], decision["value"]) == (1, "fail", share)
    assert gated(f"{about} >= {share + 0.01}", "--population")[0] == 4
    assert "always_clear lies from 0 to 1, never 5" in gated(f"{about} >= 5")[2]
    assert "has no mc for this gate" in gated("always_clear(estimator=mc) >= 0.5")[2]


@pytest.mark.parametrize(
    "command", ["show", "bias-report --threshold 0.5", "flag-samples --bottom 2"]
)
def test_reports_need_no_plugin(command: str, run: Path, run_cli: RunCli) -> None:
    name, *options = command.split()
    code, out, err = run_cli(name, run, "--estimator", "clear", *options)
    assert (code, err) == (0, "")
    assert "clear" in out
    assert "nan" not in out.lower()


@pytest.mark.slow
def test_the_test_of_the_docs_passes(installed: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(installed), str(PAGE.parents[1])]),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(installed.parent / "clear" / "test_clear.py"),
    ]
    done = subprocess.run(
        command,
        cwd=installed.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
