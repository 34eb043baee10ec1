"""A cluster that an audit starts for itself ends with it, however the audit ends."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.specs import digits, write
from tests.states import flushes
from tests.system.ray.clusters import Surroundings, estimate, estimating, wait_for

pytestmark = pytest.mark.slow

LONG = digits(limit=100, estimators=[{"mc": {"draws": 4000}}])
RAY = ("--out", "run", "--engine", "ray", "--workers", "1")


def test_an_interrupt_of_the_terminal_goes_to_all_its_processes(
    tmp_path: Path, here: Surroundings
) -> None:
    write(tmp_path, LONG)
    with estimating(tmp_path, here, *RAY) as audit:
        assert wait_for(lambda: flushes(tmp_path / "run") >= 1)
        os.killpg(audit.process.pid, signal.SIGINT)
        code, out, err = audit.ended()
    assert (code, out) == (130, "")
    assert err.endswith(
        "interrupted; finished work is on disk: run the same command again to continue\n"
    )
    assert "lost" not in err, "Ray's processes were left to finish"
    assert here.deserted()
    code, _, err = estimate(tmp_path, here, *RAY)
    assert code == 0, err
    assert re.search(r"note: resuming: .* of each of (\d+ of )?100 images", err)


@pytest.mark.parametrize("when", ["connecting", "opening"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_before_anything_is_computed(
    number: signal.Signals, code: int, when: str, tmp_path: Path, here: Surroundings
) -> None:
    write(tmp_path, LONG)
    with estimating(tmp_path, here, *RAY) as audit:
        assert wait_for(here.workers if when == "opening" else lambda: len(here.processes()) > 1)
        audit.send(number)
        found, out, err = audit.ended()
    assert (found, out) == (code, ""), err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert here.deserted()


def test_killed(tmp_path: Path, here: Surroundings) -> None:
    write(tmp_path, LONG)
    with estimating(tmp_path, here, *RAY) as audit:
        assert wait_for(lambda: flushes(tmp_path / "run") >= 1)
        audit.send(signal.SIGKILL)
        audit.process.wait()
        assert here.deserted()


def test_it_is_of_this_machine_and_of_the_installed_package(
    tmp_path: Path, here: Surroundings
) -> None:
    """Nobody else can reach its servers, and what lies in the working folder is not imported."""
    write(tmp_path, LONG)
    for name in ("robaudit", "torch", "pydantic", "numpy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n", encoding="utf-8"
        )
    with estimating(tmp_path, here, *RAY, environment={"PYTHONSAFEPATH": "1"}) as audit:
        assert wait_for(lambda: flushes(tmp_path / "run") >= 1)
        listening = [
            one.laddr.ip
            for process in here.processes()
            for one in process.net_connections("tcp")
            if one.status == "LISTEN"
        ]
        audit.send(signal.SIGTERM)
        assert audit.ended()[0] == 143
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert not (tmp_path / "executed").exists()
