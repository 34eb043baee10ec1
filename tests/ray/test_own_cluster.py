"""A cluster that an audit starts for itself ends with it, however the audit ends."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.ray.clusters import Surroundings, estimate, estimating, wait_for
from tests.specs import digits, write
from tests.states import flushes

pytestmark = pytest.mark.slow

LONG = digits(limit=100, estimators=[{"mc": {"samples": 4000}}])
RAY = ("--out", "run", "--engine", "ray", "--workers", "1")


def test_an_interrupt_of_the_terminal_goes_to_all_its_processes(tmp_path: Path, here: Surroundings) -> None:
    write(tmp_path, LONG)
    with estimating(tmp_path, here, *RAY) as audit:
        assert wait_for(lambda: flushes(tmp_path / "run") >= 1)
        os.killpg(audit.process.pid, signal.SIGINT)
        code, out, err = audit.ended()
    assert (code, out) == (130, "")
    assert err.endswith("interrupted; finished work is on disk: run the same command again to continue\n")
    assert "lost" not in err, "Ray's processes were left to finish"
    assert here.deserted()
    code, _, err = estimate(tmp_path, here, *RAY)
    assert code == 0, err
    assert re.search(r"note: resuming: \d+ of 100 samples are already on disk", err)


@pytest.mark.parametrize("when", ["connecting", "opening"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_before_anything_is_computed(number: signal.Signals, code: int, when: str, tmp_path: Path, here: Surroundings) -> None:
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
