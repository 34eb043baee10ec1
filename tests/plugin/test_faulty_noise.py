"""Kinds of noise of other packages that break the contract: one line that names them, and exit code 2."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from robaudit import plugins
from robaudit.noise import registry
from tests.conftest import RunCli
from tests.plugin.faulty_noise import FAULTS
from tests.specs import digits, write

NEEDS_GRADIENTS = ("gram", "amplitude")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faulty kinds as if they were installed, beside gaussian."""
    names = {"gaussian": "robaudit.noise.gaussian:Gaussian"}
    names |= {name.lower(): f"tests.plugin.faulty_noise:{name}" for name in ("Faulty", "Undeclared")}
    found = [EntryPoint(name, value, registry.GROUP) for name, value in names.items()]
    monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == registry.GROUP else entry_points(group=group))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_the_plugin(fault: str, tmp_path: Path, run_cli: RunCli) -> None:
    estimators = ["taylor"] if fault in NEEDS_GRADIENTS else [{"mc": {"samples": 10}}]
    spec = write(tmp_path, digits(noise={"kind": "faulty", "sigma": 0.1, "fault": fault}, estimators=estimators))
    code, out, err = run_cli("estimate", spec, "--out", "run", "-q")
    assert (code, out) == (2, "")
    assert err.startswith("error: noise faulty (tests.plugin.faulty_noise:Faulty): "), err
    assert FAULTS[fault][2] in err
    assert err.endswith("; fix or uninstall the plugin\n")
    assert err.count("\n") == 1


def test_what_is_not_declared_is_told(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(noise={"kind": "undeclared", "sigma": 0.1}))
    code, out, err = run_cli("estimate", spec, "--out", "run")
    assert (code, out) == (2, "")
    assert "error: noise kind undeclared: tests.plugin.faulty_noise:Undeclared does not define level_name; fix" in err
