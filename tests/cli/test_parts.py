"""An estimator that gives several values of each image: audited, read, gated and compared like any
other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from robaudit import audit
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import digits, read_info, read_rows, write

NORMS: dict[str, Any] = {"label": "norms", "q": [1, 10], "draws": 40, "target": "predicted"}
ESTIMATORS: list[Any] = [{"mc": {"draws": 30}}, {"qnorm_mc": NORMS}]
NAMES = ("mc", "norms:q=1", "norms:q=10")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on 20 images."""
    folder = tmp_path_factory.mktemp("parts")
    audit(
        write(folder, digits(limit=20, estimators=ESTIMATORS, noise={"sigma": [0.8]})),
        out=folder / "run",
    )
    return folder


def gate(run_cli: RunCli, *gates: str, code: int = 0, point: bool = False) -> str:
    """What ``robaudit gate`` says, on either stream."""
    done = run_cli("gate", "run", *gates, *(["--point"] if point else []))
    assert done.code == code, done
    return done.out + done.err


def test_each_value_is_a_row_also_of_an_extension(
    run: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    before = read_rows(run)
    assert [row["estimator"] for row in before] == list(NAMES) * 20
    assert read_info(run)["totals"]["forwards"] == 20 * (31 + 41), (
        "the values of an estimator share its passes"
    )
    far = {"qnorm_mc": {**NORMS, "label": "far", "q": [100]}}
    write(tmp_path, digits(limit=24, estimators=[*ESTIMATORS, far], noise={"sigma": [0.8]}))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "--extend", "-q").code == 0
    rows = read_rows(run)
    assert [row["estimator"] for row in rows] == [*NAMES, "far:q=100"] * 24
    assert [row for row in rows if row["estimator"] in NAMES][: len(before)] == before


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("norms", NAMES[1:]),
        ("norms:q=10", NAMES[2:]),
        ("norms:q=1e1", NAMES[2:]),
        ("mc", NAMES[:1]),
    ],
)
def test_named_on_the_command_line(
    asked: str, found: tuple[str, ...], run: Path, run_cli: RunCli
) -> None:
    done = run_cli("flag-samples", run, "--estimator", asked, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert tuple(group["estimator"] for group in json.loads(done.out)["results"]) == found
    shown = run_cli("show", run, "--estimator", asked).out
    assert [name for name in NAMES if re.search(rf"^ *{name} ", shown, flags=re.MULTILINE)] == list(
        found
    )


@pytest.mark.parametrize(
    "text",
    [
        "mean(estimator=norms) <= 5",
        "mean <= 5",
        "mean(estimator=norms, q=5) <= 5",
        "mean(q=5) <= 5",
        "mean(estimator=norms:q=1, q=10) <= 5",
        "mean(estimator=norms, q=x) <= 5",
        "accuracy(q=1) >= 0.5",
    ],
)
def test_gates_that_say_too_little(text: str, run: Path, refuse: Refuse) -> None:
    refuse("gate", run.name, text)
