"""Where ``-o`` leads and what standard output takes: links, pipes, devices, full disks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, write

FULL = pytest.mark.skipif(
    not Path("/dev/full").is_char_device(), reason="the system has no /dev/full"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import robaudit

    folder = tmp_path_factory.mktemp("output")
    robaudit.audit(write(folder, digits(limit=4)), out=folder / "run")
    return folder / "run"


def test_a_link_stays_a_link(run: Path, tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    assert run_cli("show", run, "rows", "--format", "csv", "-o", "link.csv").code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == (run / "samples.csv").read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        ["show", "rows", "--format", "csv"],
        ["report", "--format", "md"],
        ["plot", "--kind", "summary"],
    ],
    ids=lambda c: c[0],
)
def test_a_pipe_is_written_into(
    command: list[str], run: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    pipe = tmp_path / "pipe.svg"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert run_cli(command[0], run, *command[1:], "-o", pipe).code == 0
    reader.join(60)
    assert pipe.is_fifo()
    assert len(read[0]) > 100


@FULL
def test_a_full_device_is_one_line_and_stays_a_device(run: Path, refuse: Refuse) -> None:
    refuse("show", run, "rows", "--format", "csv", "-o", "/dev/full")
    assert Path("/dev/full").is_char_device()


@FULL
@pytest.mark.parametrize(
    "command", [["show"], ["show", "rows", "--format", "csv"]], ids=lambda c: c[0]
)
def test_a_full_standard_output_is_one_line(command: list[str], run: Path, golden: Golden) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "robaudit", command[0], str(run), *command[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    golden.lines(done.stderr)


@pytest.mark.parametrize(
    "command",
    [["show", "rows", "--format", "csv"], ["report"], ["plot", "--kind", "summary"]],
    ids=lambda c: c[0],
)
def test_no_folder_is_said_before_any_work(
    command: list[str], tmp_path: Path, refuse: Refuse
) -> None:
    (tmp_path / "folder.svg").mkdir()
    for name in ("no/such.svg", "folder.svg"):
        refuse(command[0], "no run", *command[1:], "-o", name)
