"""Gates, reports and lists of runs whose results are radii, found and certified, some without a
noise level."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from robaudit import audit
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.specs import digits, write

QUICK: dict[str, Any] = {"steps": 3, "restarts": 0, "polish": 2}
ESTIMATORS: list[Any] = [
    {"radius_attack": {**QUICK, "label": "radii", "cap": 0.5}},
    {"radius_attack": {**QUICK, "label": "whole"}},
    {"difficulty": {"target": "label"}},
    {"margin_radius": {"label": "margins"}},
    {"certified_radius": {"label": "smoothed", "draws": 100, "selection": 20}},
]
CERTIFIED = "certified_accuracy(estimator=smoothed, radius=0.2)"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images: some radii of ``radii`` are beyond its cap."""
    folder = tmp_path_factory.mktemp("radii")
    audit(
        write(folder, digits(limit=30, noise={"sigma": [0.25]}, estimators=ESTIMATORS)),
        out=folder / "run",
    )
    return folder


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("r_m{} >= 0.1", 4),
        ("r_m{} >= 9", 1),
        ("r_nu{} <= 0.15", 0),
        ("relative_variation{} <= 0.2", 4),
        ("r_w{} >= 3", 1),
        ("r_m(estimator=radii, norm=l2) <= 1.6", 4),  # censored
        (f"{CERTIFIED} >= 0.5", 0),
        (f"{CERTIFIED} >= 0.99", 1),
    ],
)
def test_gates(gate: str, code: int, run: Path, run_cli: RunCli) -> None:
    assert run_cli("gate", "run", gate.format("(estimator=whole, norm=l2)")).code == code


@pytest.mark.parametrize(
    "gate",
    [
        "r_m(norm=l2) >= 1",
        "r_m(estimator=whole) >= 1",
        "r_m(norm=l7) >= 1",
        "r_m(estimator=whole, norm=l2) >= -1",
        "relative_variation(estimator=whole, norm=l2) <= 5",
        "r_x >= 1",
    ],
)
def test_gates_that_are_refused(gate: str, run: Path, refuse: Refuse) -> None:
    refuse("gate", run.name, gate)


def test_nothing_speaks_of_a_level_of_no_noise(run: Path, run_cli: RunCli) -> None:
    texts = [
        run_cli(*args).out
        for args in (
            ("show", "run"),
            ("bias-report", "run"),
            ("flag-samples", "run", "--bottom", "3"),
        )
    ]
    assert run_cli("report", "run", "-o", "run.md").code == 0
    for text in (*texts, Path("run.md").read_text()):
        assert "no noise" in text
        assert not re.search(r"at no noise|none 0|\bnan\b|-inf\b|\binf\b", text), text


def test_csv_of_results_with_and_without_a_threshold(tmp_path: Path, run_cli: RunCli) -> None:
    """They share one header."""
    write(tmp_path, digits(limit=10, estimators=[ESTIMATORS[0], {"mc": {"draws": 10}}]))
    assert run_cli("estimate", "spec.yaml", "--out", "run", "-q").code == 0
    for command in ("bias-report", "flag-samples"):
        more = ["--bottom", "2"] if command == "flag-samples" else []
        lines = list(csv.reader(io.StringIO(run_cli(command, "run", "--format", "csv", *more).out)))
        assert {len(line) for line in lines} == {len(lines[0])}
        named = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
        assert {line["threshold"] for line in named if line["estimator"].startswith("radii")} == {
            ""
        }
        assert {line["threshold"] for line in named if line["estimator"] == "mc"} == {
            "0.9" if command == "bias-report" else "0.5"
        }


def test_certificates_are_lower_bounds(run: Path, run_cli: RunCli) -> None:
    assert re.search(
        r"smoothed:norm=l2 +0\.25 +>= 0\.\d+ \[0\.\d+, \.\.\.\] +>= 0\.\d+",
        run_cli("show", "run").out,
    )
    assert ">= 0." in run_cli("flag-samples", "run", "--estimator", "smoothed", "--bottom", "3").out
    by_class = run_cli("bias-report", "run", "--estimator", "smoothed").out
    assert re.search(r">= 0\.\d+ \[.*, \.\.\.\] +[+-]0\.\d+ \[-0\.\d+, ", by_class)
    assert run_cli("report", "run", "-o", "run.html").code == 0
    section = Path("run.html").read_text().partition('id="certified"')[2].partition("</section>")[0]
    assert "<svg " in section
    assert "r &gt;= 0.25" in section
