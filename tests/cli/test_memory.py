"""A run stays within the memory it is given: the results are the same bytes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import save_file

from robaudit.auditing import prepare
from robaudit.auditing.audit import audit
from robaudit.engine.passes import rows_by_rule
from robaudit.memory import CPU
from robaudit.models.architectures import Linear
from tests.cli.conftest import Refuse
from tests.specs import digits, located, save_npz, write

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="the system does not tell what a process holds",
)
SIDE = 128
IMAGES = 48

CHILD = """
from robaudit.auditing import chunk_sizes
from robaudit.cli import main
chunk_sizes.CHUNK_SECONDS = 1e9  # chunks grow as far as memory goes, however slow the machine
main()
"""


class Ended(NamedTuple):
    """A command in a process of its own: exit code, standard error, and the most memory it held."""

    code: int
    err: str
    peak: int


def run(folder: Path, *args: str) -> Ended:
    """``robaudit estimate spec.yaml ARGS``, watched."""
    command = [sys.executable, "-c", CHILD, "estimate", "spec.yaml", *args, "--quiet"]
    peak = 0
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while (
            process.poll() is None
        ):  # asked again and again, because a measurement of its own may reset the number
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            peak = max(peak, int(found[1]) * 1024 if found else 0)
            time.sleep(0.002)
        assert process.stderr is not None
        return Ended(process.returncode, process.stderr.read(), peak)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spec of images whose gradients take 14 MB each: 8 groups of 9 margins at 3 x 128 x 128."""
    path = tmp_path_factory.mktemp("memory")
    torch.manual_seed(0)
    save_file(Linear(3 * SIDE * SIDE, 10).state_dict(), path / "linear.safetensors")
    save_npz(path / "data.npz", count=IMAGES, shape=(3, SIDE, SIDE))
    options = {"in_features": 3 * SIDE * SIDE}
    write(
        path,
        {
            "model": {
                "path": "linear.safetensors",
                "architecture": "robaudit:linear",
                "architecture_options": options,
            },
            "dataset": {"kind": "npz", "path": "data.npz"},
            "noise": {"sigma": [0.5]},
            "estimators": [{"mmse_mvs": {"draws": 8, "pairs": False}}, {"mc": {"draws": 8}}],
        },
    )
    return path


@pytest.mark.slow
def test_a_run_stays_within_its_memory(folder: Path) -> None:
    unlimited = run(folder, "--out", "unlimited")
    assert unlimited.code == 0, unlimited.err
    refused = run(folder, "--out", "refused", "--memory", "1MB")
    assert refused.code == 2
    found = re.search(
        r"error: --memory 1MB: the process alone holds (\d+)MB; give at least ", refused.err
    )
    assert found, refused.err
    alone = int(found[1]) * 10**6
    limit = int(alone + 0.7 * (unlimited.peak - alone))
    ended = run(folder, "--out", "limited", "--memory", str(limit))
    assert ended.code == 0, ended.err
    assert alone < ended.peak < limit < unlimited.peak
    assert (folder / "limited" / "samples.csv").read_bytes() == (
        folder / "unlimited" / "samples.csv"
    ).read_bytes()


def test_passes_on_the_cpu_do_not_depend_on_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer rows in a pass would round differently: only chunks get smaller."""
    monkeypatch.setattr(prepare, "memory_limit", lambda *_: 0)
    run = audit(located(digits(limit=3), tmp_path, "spec"), out=tmp_path / "run")
    assert run.info.batch_rows == rows_by_rule((1, 8, 8), CPU)


def test_too_little_memory_is_refused_at_once(tmp_path: Path, refuse: Refuse) -> None:
    refuse("estimate", write(tmp_path, digits()), "--out", "run", "--memory", "10MB")
