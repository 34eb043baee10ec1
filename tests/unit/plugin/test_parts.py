"""An estimator that gives several values of each image: audited, read, gated and compared like any other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from robaudit import load_spec, plugins, read_run
from robaudit.auditing.run import audit
from tests.conftest import RunCli
from tests.specs import digits, read_info, read_rows, write
from tests.states import flushes
from tests.unit.plugin import entries

ESTIMATORS: list[Any] = [{"mc": {"samples": 30}}, "norms"]
NAMES = ("mc", "norms:q=1", "norms:q=10")


def as_installed() -> AbstractContextManager[None]:
    """The estimators as if they were installed, beside one of ours."""
    names = {name: f"tests.unit.plugin.norms:{name.title()}" for name in ("norms", "miscounted")}
    return entries.only(plugins.ESTIMATORS, {"mc": "robaudit.estimators.mc:MonteCarlo", **names})


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with as_installed():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on 20 images."""
    folder = tmp_path_factory.mktemp("parts")
    with as_installed():
        audit(load_spec(write(folder, digits(limit=20, estimators=ESTIMATORS, noise={"sigma": [0.8]}))), out=folder / "run")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def gate(run_cli: RunCli, *gates: str, code: int = 0, point: bool = False) -> str:
    """What ``robaudit gate`` says, on either stream."""
    done = run_cli("gate", "run", *gates, *(["--point"] if point else []))
    assert done.code == code, done
    return done.out + done.err


def test_each_value_is_a_row(run: Path) -> None:
    rows = read_rows(run)
    assert [row["estimator"] for row in rows] == list(NAMES) * 20
    assert {row["quantity"] for row in rows if row["estimator"] != "mc"} == {"loss"}
    by_name = {name: [float(row["value"]) for row in rows if row["estimator"] == name] for name in NAMES}
    assert all(low <= high for low, high in zip(by_name["norms:q=1"], by_name["norms:q=10"], strict=True)), "norms grow with q"
    assert by_name["norms:q=1"] != by_name["norms:q=10"]
    stored = read_run(run).rows
    assert [row.numbers for row in stored if row.estimator == "norms:q=10"] == [{"q": 10}] * 20


def test_extended(run: Path, tmp_path: Path, run_cli: RunCli) -> None:
    before = read_rows(run)
    write(tmp_path, digits(limit=24, estimators=[*ESTIMATORS, {"norms": {"label": "far", "q": [100]}}], noise={"sigma": [0.8]}))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend", "-q").code == 0
    rows = read_rows(run)
    assert [row["estimator"] for row in rows] == [*NAMES, "far:q=100"] * 24
    assert [row for row in rows if row["estimator"] in NAMES][: len(before)] == before
    assert flushes(run) == 2


@pytest.mark.parametrize("extend", [True, False])
def test_other_parts_are_other_options(extend: bool, run: Path, tmp_path: Path, run_cli: RunCli) -> None:
    before = (run / "samples.csv").read_bytes()
    write(tmp_path, digits(limit=20, estimators=[ESTIMATORS[0], {"norms": {"q": [1, 100]}}], noise={"sigma": [0.8]}))
    done = run_cli("estimate", "spec.yaml", "--out", "run", "-q", *(["--extend"] if extend else []))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert (
        "has run norms with other options (its defaults); give the new one a label" if extend else "add --extend to extend it"
    ) in done.err
    assert (run / "samples.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("asked", "found"), [("norms", NAMES[1:]), ("norms:q=10", NAMES[2:]), ("norms:q=1e1", NAMES[2:]), ("mc", NAMES[:1])]
)
def test_named_on_the_command_line(asked: str, found: tuple[str, ...], run: Path, run_cli: RunCli) -> None:
    done = run_cli("flag-samples", run, "--estimator", asked, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert tuple(group["estimator"] for group in json.loads(done.out)["results"]) == found
    shown = run_cli("show", run, "--estimator", asked).out
    assert [name for name in NAMES if re.search(rf"^ *{name} ", shown, flags=re.MULTILINE)] == list(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mean(estimator=norms) <= 5", "does not say which results it is about; say estimator=norms:q=1 | norms:q=10"),
        ("mean <= 5", "does not say which results it is about; say estimator=mc | norms:q=1 | norms:q=10"),
        ("mean(estimator=norms, q=5) <= 5", "the run has no norms:q=5 for this gate; did you mean 'norms:q=1'?"),
        ("mean(q=5) <= 5", "the run has no q=5 for this gate; known: mc, norms, norms:q=1, norms:q=10"),
        ("mean(estimator=norms:q=1, q=10) <= 5", "says both q=10 and q=1; say one of them"),
        ("mean(estimator=norms, q=x) <= 5", "q is 'x', not a number"),
        ("accuracy(q=1) >= 0.5", "accuracy is about the clean images"),
    ],
)
def test_gates_that_say_too_little(text: str, says: str, run: Path, run_cli: RunCli) -> None:
    said = gate(run_cli, text, code=2)
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("too few", "estimate() returned Result Result("),
        ("too many", "estimate() returned tuple (Result("),
    ],
)
def test_a_fault_names_the_plugin(fault: str, says: str, tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(estimators=[{"mc": {"samples": 10}}, {"miscounted": {"fault": fault}}]))
    done = run_cli("estimate", spec, "--out", "run", "-q")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"error: estimator miscounted (tests.unit.plugin.norms:Miscounted): {says}")
    assert done.err.endswith(" for 0, not a tuple of 2 Results; fix or uninstall the plugin\n")


def test_a_value_that_is_no_number(tmp_path: Path, run_cli: RunCli) -> None:
    """The image has no row of this computation, and its message says which of the values it was."""
    spec = write(tmp_path, digits(estimators=[{"mc": {"samples": 10}}, {"miscounted": {"fault": "nan"}}]))
    done = run_cli("estimate", spec, "--out", "run", "-q")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "miscounted:q=10 gave nan at sigma 0.2" in done.err
    assert run_cli("estimate", spec, "--out", "run", "-q", "--on-error", "skip").code == 0
    rows = read_rows(tmp_path / "run")
    assert len(rows) == 7 * 3
    assert "6" not in {row["sample_id"] for row in rows}
    (skip,) = read_info(tmp_path / "run")["skipped"]
    assert skip["sample_id"] == "6"
    again = run_cli("estimate", spec, "--out", "run", "--on-error", "skip")
    assert "this run is complete; nothing was recomputed" in again.err
