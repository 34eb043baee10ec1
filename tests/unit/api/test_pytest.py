"""Gates as tests: real test files, run by pytest itself."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from robaudit import audit
from tests.unit.api.nets import arrays, network

pytest_plugins = ["pytester"]

TEST = """
from robaudit.pytest import assert_robust
from tests.unit.api.nets import arrays, network


def test_gate():
    estimators = {{"mc": {{"draws": 40}}}}
    assert_robust(network(), arrays(), sigma=0.25, estimators=estimators, gates={gates!r}{more})
"""
PASS = "mean >= 0.5"  # noqa: S105
FAIL = "mean >= 0.99999"
UNDECIDED = "p05 >= 0.6"


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import whatever an audit imports: a session within this process forgets the modules that it
    was the first to import."""
    run = audit(network(), arrays(), sigma=0.25, estimators={"mc": {"draws": 40}})
    run.gate(PASS, UNDECIDED, FAIL)


def run(pytester: pytest.Pytester, gates: object, *, more: str = "") -> pytest.RunResult:
    pytester.makepyfile(TEST.format(gates=gates, more=more))
    return pytester.runpytest_inprocess("-rA", "-p", "no:xdist")


def test_passes_and_keeps_the_run_where_it_is_told(pytester: pytest.Pytester) -> None:
    assert run(pytester, [PASS, "mean >= 0.4"], more=", out='run'").ret == 0
    assert (pytester.path / "run" / "run.json").exists()


def test_fails_with_the_message_of_the_gate(pytester: pytest.Pytester) -> None:
    done = run(pytester, FAIL)
    done.assert_outcomes(failed=1)
    text = done.stdout.str()
    assert re.search(
        r"^fail  mean\(estimator=mc, sigma=0\.25\) >= 0\.99999  0\.\d+ \[", text, re.MULTILINE
    )
    assert "fail: of 1 gate 1 failed; intervals 95 %" in text
    assert "Traceback" not in text
    assert "def assert_robust" not in text


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ("", {"failed": 1}),
        (", inconclusive='pass'", {"passed": 1}),
        (", inconclusive='xfail'", {"xfailed": 1}),
    ],
)
def test_an_inconclusive_gate(
    pytester: pytest.Pytester, more: str, outcome: dict[str, int]
) -> None:
    done = run(pytester, UNDECIDED, more=more)
    done.assert_outcomes(**outcome)
    assert "passed" in outcome or "inconclusive: of 1 gate 1 inconclusive" in done.stdout.str()


def test_a_mistake_is_one_line(pytester: pytest.Pytester) -> None:
    done = run(pytester, "meen >= 0.5")
    done.assert_outcomes(failed=1)
    assert "SpecError: gates" in done.stdout.str()
    assert "During handling" not in done.stdout.str()
    assert "def assert_robust" not in done.stdout.str()
    done = run(pytester, PASS, more=", inconclusive='maybe'")
    assert "inconclusive: 'maybe' is unknown; fail, xfail or pass" in done.stdout.str()


def test_the_plugin_is_light() -> None:
    code = (
        "import robaudit.pytest, sys; print(sorted({'torch', 'numpy', 'pydantic', 'yaml', "
        "'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
