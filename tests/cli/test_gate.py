"""`robaudit gate`: where gates come from, what is printed, and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from robaudit import audit, load_spec
from robaudit.stats.reading import read_run
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, read_info, write
from tests.unit.gates.tools import ONLY

__all__ = ["refuse"]
SURE = "mean(estimator=mc) >= 0.5"
FALSE = "mean(estimator=mc) >= 0.999"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 digits at one noise level by mc and softmax; its spec has a gate."""
    folder = tmp_path_factory.mktemp("gates")
    spec = digits(
        limit=40,
        noise={"sigma": [0.35]},
        estimators=[{"mc": {"draws": 60}}, "softmax"],
        gates=["noisy_accuracy >= 0.5", "accuracy >= 1"],
    )
    return audit(load_spec(write(folder, spec)), out=folder / "run").path


@pytest.fixture(scope="module")
def straddled(run: Path) -> str:
    """A gate that the mean sits next to."""
    rows = [row.value for row in read_run(run).rows if row.estimator == "mc"]
    return f"mean(estimator=mc) >= {sum(rows) / len(rows) - 0.002:.6f}"


def test_exit_codes(run: Path, straddled: str, run_cli: RunCli) -> None:
    assert run_cli("gate", run, SURE).code == 0
    assert run_cli("gate", run, SURE, FALSE).code == 1
    assert run_cli("gate", run, SURE, straddled).code == 4
    assert run_cli("gate", run, straddled, FALSE).code == 1
    assert run_cli("gate", run, straddled, "--inconclusive", "pass").code == 0
    assert run_cli("gate", run, straddled, "--inconclusive", "fail").code == 1
    assert run_cli("gate", run, FALSE, "--inconclusive", "pass").code == 1


def test_what_is_printed(run: Path, straddled: str, run_cli: RunCli, golden: Golden) -> None:
    code, out, err = run_cli("gate", run, SURE, straddled)
    first, second, last = out.splitlines()
    assert code == 4
    golden.lines(err)
    assert first.startswith("pass          mean(estimator=mc, sigma=0.35) >= 0.5")
    assert first.endswith("these 40 images")
    assert second.startswith("inconclusive  mean(estimator=mc, sigma=0.35) >= ")
    assert "more draws per image would decide it" in second
    assert (
        last
        == "inconclusive: of 2 gates 1 passed, 1 inconclusive; intervals 95 %, each gate alone"
        + ONLY
    )
    assert "\x1b" not in out


def test_a_path_with_blanks_is_quoted_for_the_shell(
    run: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    out = tmp_path / "two words"
    found = run_cli("estimate", run.parent / "spec.yaml", "--out", out)
    assert f"robaudit gate '{out}'" in found.err
    assert f"robaudit show '{out}' SECTION" in found.out


def test_the_remark_about_more_draws_follows_the_verdict(run: Path, straddled: str) -> None:
    command = [sys.executable, "-m", "robaudit", "gate", str(run), straddled]
    printed = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    assert printed.index("inconclusive:") < printed.index("deciding again after more draws")


def test_population(run: Path, run_cli: RunCli) -> None:
    _, here, _ = run_cli("gate", run, SURE)
    code, out, _ = run_cli("gate", run, SURE, "--population", "--confidence", "0.9")
    assert code == 0
    assert "images like these 40" in out
    assert "intervals 90 %" in out
    assert out.split("[")[1].split("]")[0] != here.split("[")[1].split("]")[0]


def test_formats_and_file(
    run: Path, run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    found = json.loads(run_cli("gate", run, SURE, "--format", "json").out)
    (decided,) = found["gates"]
    assert (found["verdict"], decided["method"]) == ("pass", "clopper-pearson:pooled")
    assert (decided["noise"], decided["level_name"], decided["level"]) == (
        "gaussian",
        "sigma",
        0.35,
    )
    code, out, _ = run_cli("gate", run, FALSE, "--format", "junit", "-o", "gates.xml")
    assert (code, out) == (1, "")
    suites = ElementTree.parse(tmp_path / "gates.xml").getroot()  # noqa: S314  our own text
    assert suites.get("failures") == "1"
    assert float(suites.get("time") or 0) == pytest.approx(
        read_run(run).info.totals.seconds, abs=1e-3
    )
    assert not (tmp_path / "summary.md").exists()
    code, out, _ = run_cli("gate", run, FALSE, "--format", "github")
    assert out.startswith("::error")
    assert code == 1
    assert "fail" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_gates_of_the_run_s_spec(run: Path, run_cli: RunCli, golden: Golden) -> None:
    code, out, err = run_cli("gate", run)
    assert code == 0
    golden.lines(err)
    assert [line.split()[1] for line in out.splitlines()[:2]] == [
        "noisy_accuracy(estimator=mc,",
        "accuracy",
    ]
    assert out.splitlines()[1].endswith("these 40 images, exact")


def test_gates_of_another_spec(
    run: Path, run_cli: RunCli, refuse: Refuse, tmp_path: Path, golden: Golden
) -> None:
    write(tmp_path, digits(gates=["accuracy <= 0.5"]), "other.yaml")
    write(tmp_path, digits(), "none.yaml")
    code, _, err = run_cli("gate", run, "--spec", "other.yaml")
    assert code == 1
    golden.lines(err)
    refuse("gate", run, "--spec", "none.yaml")


def test_refusals(run: Path, refuse: Refuse, tmp_path: Path) -> None:
    refuse("gate", tmp_path / "none", SURE)
    refuse("gate", run, "men >= 1")
    refuse("gate", run, "mean >= 0.9")
    refuse("gate", run, SURE, "--confidence", "95")
    refuse("gate", without_gates(run, tmp_path))
    refuse("gate", run, SURE, "-o", tmp_path / "no" / "file")


def test_gates_in_a_spec_are_checked_with_their_line(refuse: Refuse, tmp_path: Path) -> None:
    text = yaml.safe_dump(digits(), sort_keys=False)
    text.count("\n") + 3
    write(tmp_path, text + "gates:\n  - accuracy >= 1\n  - men(sigma=0.1) >= 1\n")
    refuse("estimate", "spec.yaml")
    write(tmp_path, text + "gates: [mean(estimator=mc, sigma=0.2) >= 1]\n")
    refuse("estimate", "spec.yaml")


def test_a_failed_gate_that_nobody_reads_has_failed(run: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "robaudit", "gate", run, FALSE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


def without_gates(run: Path, folder: Path) -> Path:
    """A copy of the run as one that was made before there were gates."""
    info = read_info(run)
    del info["spec"]["gates"]
    copy = folder / "old"
    copy.mkdir()
    for name in ("samples.csv", "samples.json", "summary.json"):
        (copy / name).write_bytes((run / name).read_bytes())
    (copy / "run.json").write_text(json.dumps(info), encoding="utf-8")
    return copy
