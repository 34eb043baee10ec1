"""Audits by a Ray cluster of which something is lost: a worker, a node, the process that was
started, or the user's patience."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import RunCli
from tests.specs import digits, read_info, write
from tests.states import flushes, query
from tests.system.ray.clusters import Audit, Nodes, estimate, estimating, wait_for
from tests.system.ray.test_equal import OUTPUTS

pytestmark = [pytest.mark.bits, pytest.mark.slow]

IMAGES = 60
LONG = digits(limit=IMAGES, estimators=[{"mc": {"draws": 4000}}])
RAY = ("--out", "ray", "--engine", "ray", "--ray-address")
INTERRUPTED = "interrupted; finished work is on disk: run the same command again to continue\n"
TERMINATED = "terminated; finished work is on disk: run the same command again to continue\n"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, nodes: Nodes) -> Path:
    """The run that every run of this module must equal, made by the local engine."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write(folder, LONG)
    code, _, err = estimate(folder, nodes.here, "--out", "local")
    assert code == 0, err
    return folder / "local"


@pytest.fixture
def audit(tmp_path: Path, nodes: Nodes, undisturbed: Path) -> Iterator[Audit]:
    """An audit by Ray whose first results are on disk."""
    write(tmp_path, LONG)
    with estimating(tmp_path, nodes.here, *RAY, nodes.address) as started:
        assert wait_for(
            lambda: flushes(tmp_path / "ray") >= 2 or started.process.poll() is not None
        )
        assert started.process.poll() is None, started.ended()
        yield started
    assert wait_for(lambda: not nodes.here.workers()), "workers ended with the audit"


def left(run: Path) -> int:
    """How many samples lack their row."""
    return IMAGES - int(query(run, "SELECT count(*) FROM rows")[0][0])


def equal(run: Path, undisturbed: Path) -> None:
    for name in OUTPUTS:
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes()
    assert query(run, "SELECT count(*) FROM rows") == [(IMAGES,)], "nothing is there twice"


def resumed(folder: Path, nodes: Nodes, undisturbed: Path) -> None:
    """The same command finishes the run; what was on disk is not computed again."""
    assert 0 < left(folder / "ray") < IMAGES
    code, _, err = estimate(folder, nodes.here, *RAY, nodes.address)
    assert code == 0, err
    assert re.search(rf"note: resuming: .* of each of (\d+ of )?{IMAGES} images", err)
    equal(folder / "ray", undisturbed)
    assert len(read_info(folder / "ray")["sessions"]) == 2


def test_a_worker_is_killed(
    audit: Audit, nodes: Nodes, tmp_path: Path, undisturbed: Path, run_cli: RunCli
) -> None:
    assert left(tmp_path / "ray") > IMAGES // 3, "in the middle"
    workers = nodes.here.workers()
    assert len(workers) == 2
    workers[0].kill()
    code, out, err = audit.ended()
    assert code == 0, err
    assert out.startswith("clean accuracy")
    assert (
        len(
            re.findall(
                r"^note: worker \d on \S+: lost \(.*\); its work goes to others until it is back$",
                err,
                re.MULTILINE,
            )
        )
        == 1
    )
    assert all(
        line.startswith(("note: ", "starting workers: ", "auditing: ")) for line in err.splitlines()
    ), err
    equal(tmp_path / "ray", undisturbed)
    assert run_cli("verify", "ray").code == 0


def test_a_node_is_removed(audit: Audit, nodes: Nodes, tmp_path: Path, undisturbed: Path) -> None:
    nodes.remove()
    try:
        code, _, err = audit.ended()
    finally:
        nodes.add()
    assert code == 0, err
    assert err.count("its work goes to others until it is back") == 1
    assert all(
        line.startswith(("note: ", "starting workers: ", "auditing: ")) for line in err.splitlines()
    ), err
    equal(tmp_path / "ray", undisturbed)


def test_the_driver_is_killed(
    audit: Audit, nodes: Nodes, tmp_path: Path, undisturbed: Path
) -> None:
    audit.send(signal.SIGKILL)
    assert audit.ended()[0] == -signal.SIGKILL
    resumed(tmp_path, nodes, undisturbed)


def test_the_first_interrupt_lets_present_steps_finish(
    audit: Audit, nodes: Nodes, tmp_path: Path, undisturbed: Path
) -> None:
    audit.send(signal.SIGINT)
    code, out, err = audit.ended()
    assert (code, out) == (130, "")
    assert err.endswith(
        f"finishing the current part; press Ctrl-C again to stop at once\n{INTERRUPTED}"
    )
    resumed(tmp_path, nodes, undisturbed)


def test_the_second_interrupt_stops_at_once(
    audit: Audit, nodes: Nodes, tmp_path: Path, undisturbed: Path
) -> None:
    workers = nodes.here.workers()
    for worker in workers:
        worker.suspend()  # so that their steps do not end
    audit.send(signal.SIGINT)
    assert audit.process.stderr is not None
    text = ""
    while "press Ctrl-C again" not in text:
        text = audit.process.stderr.readline()
    audit.send(signal.SIGINT)
    try:
        code, out, err = audit.ended()
    finally:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):  # ended with the audit
                worker.resume()
    assert (code, out) == (130, "")
    assert err.endswith(INTERRUPTED)
    resumed(tmp_path, nodes, undisturbed)
