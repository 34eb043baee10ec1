"""Gates, reports, pictures and tables of runs with certified radii."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from robaudit import audit
from tests.conftest import RunCli
from tests.specs import digits, write

SMOOTHED: dict[str, Any] = {"label": "smoothed", "samples": 100, "selection": 20}
ESTIMATORS: list[Any] = [{"margin_radius": {"label": "margins"}}, {"certified_radius": SMOOTHED}]
GATE = "certified_accuracy(estimator=smoothed, radius=0.2) >= 0.5"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images: certificates of the network in two norms, and of the smoothed one in one."""
    folder = tmp_path_factory.mktemp("certified")
    audit(write(folder, digits(limit=30, noise={"sigma": [0.25]}, estimators=ESTIMATORS, gates=[GATE])), out=folder / "run")
    return folder


@pytest.mark.parametrize(("gate", "code"), [(GATE, 0), (GATE.replace(">= 0.5", ">= 0.99"), 1)])
def test_gates(gate: str, code: int, run: Path, run_cli: RunCli) -> None:
    assert run_cli("gate", "run").code == 0  # of the spec
    assert run_cli("gate", "run", gate).code == code


def test_several_runs(run: Path, run_cli: RunCli) -> None:
    write(run.parent, digits(limit=20, estimators=[{"certified_radius": SMOOTHED}], noise={"sigma": [0.25, 0.5]}), "other.yaml")
    assert run_cli("estimate", "other.yaml", "--out", "other", "-q").code == 0
    done = run_cli("show", "run", "certified", "--with", "other", "--estimator", "smoothed")
    heads = " ".join(next(line for line in done.out.splitlines() if line.startswith("radius r")).split())
    assert heads == "radius r spec: smoothed at sigma 0.25 other: smoothed at sigma 0.25 other: smoothed at sigma 0.5"
    assert re.search(r"images +30 +20 +20", done.out)


def test_a_gate_is_refused_before_anything_is_computed(tmp_path: Path, run_cli: RunCli) -> None:
    spec = digits(
        limit=4,
        estimators=[{"certified_radius": SMOOTHED}, {"mc": {"samples": 20}}],
        gates=["certified_accuracy(radius=1, norm=linf) >= 1"],
    )
    write(tmp_path, spec)
    done = run_cli("estimate", "spec.yaml", "--out", "run", "-q", "--until-decided")
    assert done.code == 2
    assert "the run has no norm=linf for this gate; known: smoothed, smoothed:norm=l2" in done.err
    assert not Path("run").exists()


# --- the other commands


def test_the_report_has_a_section(run: Path, run_cli: RunCli) -> None:
    assert run_cli("report", "run", "-o", "run.html").code == 0
    page = re.sub(r"<(style|script)\b.*?</\1>", "", Path("run.html").read_text(), flags=re.S)
    section = page[page.index('id="certified"') :].partition("</section>")[0]
    assert "<svg " in section
    assert section.count('<p class="caption">Certified accuracy, radii in') == 2
    assert "r &gt;= 0.25" in section
    assert '<a href="#certified">Certified accuracy</a>' in page
    assert run_cli("report", "run", "-o", "run.md").code == 0
    text = Path("run.md").read_text()
    assert "## Certified accuracy" in text
    assert "| r &gt;= 0.25 |" in text


def test_tables_say_at_least(run: Path, run_cli: RunCli) -> None:
    shown = run_cli("show", "run").out
    assert re.search(r"smoothed:norm=l2 +0\.25 +>= 0\.\d+ \[0\.\d+, \.\.\.\] +>= 0\.\d+", shown)
    assert ">= smoothed: lower bounds; the true value of an image may be larger." in shown
    assert ">= 0." in run_cli("flag-samples", "run", "--estimator", "smoothed", "--bottom", "3").out
    by_class = run_cli("bias-report", "run", "--estimator", "smoothed").out
    assert re.search(r">= 0\.\d+ \[.*, \.\.\.\] +[+-]0\.\d+ \[-0\.\d+, ", by_class)
    assert "differences and gap are between the bounds" in by_class
    summary = json.loads((run / "summary.json").read_text())
    assert {group["lower_bounds"] for group in summary["groups"]} == {30}
