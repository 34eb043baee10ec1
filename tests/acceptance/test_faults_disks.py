"""Real file systems that are full or read-only, in a mount namespace of their own: nothing is mounted for anyone else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.rig import results, temporaries
from tests.faults.scenarios import SPECS
from tests.hostile.client import ROOT
from tests.specs import write

UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
SECONDS = 300


def possible() -> bool:
    """Whether this machine lets us mount."""
    if not all(shutil.which(name) for name in ("unshare", "mount", "sh")):
        return False
    command = [*UNSHARE, "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]
    return subprocess.run(command, capture_output=True, check=False, timeout=SECONDS).returncode == 0


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not possible(), reason="no file system can be mounted here")]


COMMANDS = """
estimate() { "$PYTHON" -m robaudit estimate spec.yaml --out run --quiet; }
show() { "$PYTHON" -m robaudit show run; }
"""


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script where it may mount; ``estimate`` is the command of a small run, ``show`` prints it."""
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    write(folder, SPECS["spec.yaml"])
    command = [*UNSHARE, "sh", "-c", COMMANDS + script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on a disk with room."""
    folder = tmp_path_factory.mktemp("whole")
    assert shell("estimate", folder).returncode == 0
    return folder / "run"


FULL = """
mkdir run && mount -t tmpfs -o size=$((4096 * PAGES)) none run || exit 98
estimate
[ $? = 2 ] || exit 97
mount -o remount,size=64m run || exit 98
estimate || exit 96
cp -r run result
"""


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7, 0.9])
def test_a_full_disk(share: float, whole: Path, tmp_path: Path) -> None:
    """A share of the room that the run needs; then there is more, and the same command goes on."""
    pages = sum(-(-path.stat().st_size // 4096) for path in whole.rglob("*") if path.is_file())
    done = shell(f"PAGES={max(1, int(share * pages))}\n{FULL}", tmp_path)
    assert done.returncode == 0, done
    assert done.stderr.startswith("error: run/")
    assert done.stderr.endswith(": cannot be written: No space left on device; free the disk or choose another folder\n")
    assert done.stderr.count("\n") == 1
    assert same(results(whole), results(tmp_path / "result"))
    assert temporaries(tmp_path / "result") == []


READ_ONLY = """
mount --bind run run && mount -o remount,bind,ro run || exit 98
estimate
[ $? = 2 ] || exit 97
show > shown 2>&1
echo $? >> shown
"""


@pytest.mark.parametrize("state", ["complete", "begun", "empty"])
def test_a_read_only_folder(state: str, whole: Path, tmp_path: Path) -> None:
    if state == "empty":
        (tmp_path / "run").mkdir()
    else:
        shutil.copytree(whole, tmp_path / "run")
    if state == "begun":
        (tmp_path / "run" / "samples.csv").unlink()
    done = shell(READ_ONLY, tmp_path)
    assert done.returncode == 0, done
    assert done.stderr.startswith("error: run: cannot be ")
    assert "Read-only file system" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "shown").read_text().endswith("2\n" if state == "empty" else "0\n")


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    """Equal but for where the spec lies."""
    for found in (one, other):
        info = found["run.json"]
        assert isinstance(info, dict)
        info.pop("spec_folder")
    return one == other
