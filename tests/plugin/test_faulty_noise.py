"""Kinds of noise of other packages that break the contract: one line that names them, and exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from robaudit.noise import registry
from tests.conftest import RunCli
from tests.plugin import entries
from tests.plugin.faulty_noise import FAULTS
from tests.specs import digits, write

NEEDS_GRADIENTS = ("gram", "amplitude")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """The faulty kinds as if they were installed, beside gaussian."""
    names = {name.lower(): f"tests.plugin.faulty_noise:{name}" for name in ("Faulty", "Undeclared")}
    with entries.only(registry.GROUP, {"gaussian": "robaudit.noise.gaussian:Gaussian", **names}):
        yield


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
