"""Gates as tests: real test files, run by pytest itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from robaudit import audit
from robaudit.store.folder import locked
from tests.unit.api.nets import arrays, network

pytest_plugins = ["pytester"]

TEST = """
from robaudit.pytest import assert_robust
from tests.unit.api.nets import arrays, network


def test_gate():
    assert_robust({net}, arrays(), sigma=0.25, estimators={{"mc": {{"samples": 40}}}}, gates={gates!r}{more})
"""
PASS, FAIL, UNDECIDED = "mean >= 0.5", "mean >= 0.99999", "p05 >= 0.6"


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import whatever an audit imports: a session within this process forgets the modules that it was the first to import."""
    run = audit(network(), arrays(), sigma=0.25, estimators={"mc": {"samples": 40}})
    run.gate(PASS, UNDECIDED, FAIL)


def run(pytester: pytest.Pytester, gates: object, *options: str, net: str = "network()", more: str = "") -> pytest.RunResult:
    pytester.makepyfile(TEST.format(gates=gates, net=net, more=more))
    return pytester.runpytest_inprocess("-rA", "-p", "no:xdist", *options)


@pytest.mark.slow
def test_passes_and_the_run_is_kept_in_a_session_of_its_own(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makepyfile(TEST.format(gates=PASS, net="network()", more=""))
    assert pytester.runpytest_subprocess("-W", "error", timeout=300).ret == 0
    (folder,) = (pytester.path / ".pytest_cache" / "d" / "robaudit").iterdir()
    state = (folder / "state.db").stat().st_mtime_ns
    assert run(pytester, [PASS, "mean >= 0.4"]).ret == 0, "other gates compute nothing again"
    assert (folder / "state.db").stat().st_mtime_ns == state
    before = (folder / "run.json").read_bytes()
    assert run(pytester, PASS, net="(lambda x: network()(x) * 2)").ret == 0, "another network is audited again, in the same place"
    assert (folder / "run.json").read_bytes() != before
    assert list(folder.parent.iterdir()) == [folder]


def test_fails_with_the_message_of_the_gate(pytester: pytest.Pytester) -> None:
    done = run(pytester, FAIL)
    done.assert_outcomes(failed=1)
    text = done.stdout.str()
    assert re.search(r"^fail  mean\(estimator=mc, sigma=0\.25\) >= 0\.99999  0\.\d+ \[", text, re.MULTILINE)
    assert "fail: of 1 gate 1 failed; intervals 95 %" in text
    assert "Traceback" not in text
    assert "def assert_robust" not in text


@pytest.mark.parametrize(
    ("more", "outcome"), [("", {"failed": 1}), (", inconclusive='pass'", {"passed": 1}), (", inconclusive='xfail'", {"xfailed": 1})]
)
def test_an_inconclusive_gate(pytester: pytest.Pytester, more: str, outcome: dict[str, int]) -> None:
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


def test_a_damaged_run_is_made_again(pytester: pytest.Pytester) -> None:
    assert run(pytester, PASS).ret == 0
    (folder,) = (pytester.path / ".pytest_cache" / "d" / "robaudit").iterdir()
    before = (folder / "samples.csv").read_bytes()
    for damaged in ("state.db", None):
        (folder / "run.json").unlink()
        if damaged is None:
            shutil.rmtree(folder)
            folder.write_text("no folder")
        else:
            (folder / damaged).write_text("damaged")
        assert run(pytester, PASS).ret == 0
        assert (folder / "samples.csv").read_bytes() == before


def test_a_run_that_another_session_is_writing_is_left_alone(pytester: pytest.Pytester) -> None:
    assert run(pytester, PASS).ret == 0
    (folder,) = (pytester.path / ".pytest_cache" / "d" / "robaudit").iterdir()
    before = (folder / "run.json").read_bytes()
    with locked(folder):
        assert run(pytester, PASS).ret == 0
        assert run(pytester, PASS, net="(lambda x: network()(x) * 2)").ret == 0
        assert (folder / "run.json").read_bytes() == before


def test_without_the_cache(pytester: pytest.Pytester) -> None:
    assert run(pytester, PASS, "-p", "no:cacheprovider").ret == 0
    assert not (pytester.path / ".pytest_cache").exists()


def test_the_plugin_is_light() -> None:
    code = "import robaudit.pytest, sys; print(sorted({'torch', 'numpy', 'pydantic', 'yaml', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
