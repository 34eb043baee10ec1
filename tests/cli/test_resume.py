"""Interrupted runs: the same command goes on, and the result is that of a run nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import robaudit
from robaudit.auditing.run import audit
from robaudit.datasets import open_dataset
from robaudit.datasets.base import Dataset, Labels, Sample
from tests import forks
from tests.conftest import RunCli
from tests.specs import NETWORK, WEIGHTS, digits, save_npz, write
from tests.states import flushes, query

OUTPUTS = ("samples.csv", "samples.json", "summary.json")


class Interrupted:
    """A data set at which Ctrl-C is pressed while it is read for the n-th time."""

    def __init__(self, dataset: Dataset, reads: int) -> None:
        self.dataset, self.left = dataset, reads
        self.where, self.class_names = dataset.where, dataset.class_names

    def __len__(self) -> int:
        return len(self.dataset)

    def sample_id(self, index: int) -> str:
        return self.dataset.sample_id(index)

    def labels(self) -> Labels | None:
        return self.dataset.labels()

    def __getitem__(self, index: int) -> Sample:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.dataset[index]


HELD = """
import os, time
from pathlib import Path
def flushed():
    from tests.states import flushes
    return flushes(Path("run"))
def model():
    def forward(x):
        while "HELD" in os.environ:
            time.sleep(0.05)
            if not (Path("hold").exists() and flushed()):
                break
        return x.flatten(1)[:, 10:50:4]
    return forward
"""  # a network that takes its time, so that there are several flushes, and waits behind the first for as long as there is a file


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.bits
def test_interrupted_while_reading(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=150, estimators=[{"mc": {"samples": 10}}, "taylor_mvs"]))
    asked = robaudit.load_spec(spec)
    dataset = open_dataset(asked.dataset, base_dir=tmp_path, trust=False)
    with pytest.raises(KeyboardInterrupt):
        audit(asked, out=tmp_path / "run", dataset=Interrupted(dataset, 150 + 1 + 100))  # the check reads all, the plan one
    assert flushes(tmp_path / "run") == 1
    assert not (tmp_path / "run" / "samples.csv").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "running"
    first = query(tmp_path / "run", "SELECT * FROM rows")
    code, _, err = run_cli("estimate", spec, "--out", "run")
    assert code == 0
    assert f"note: resuming: {len({row[2] for row in first})} of 150 samples are already on disk" in err
    assert query(tmp_path / "run", "SELECT * FROM rows WHERE flush = 1") == first
    assert run_cli("estimate", spec, "--out", "undisturbed").code == 0
    for name in OUTPUTS:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def be_held() -> None:
    """What a command's process does first: its network waits, and Ctrl-C is heard, which xdist ignores."""
    os.environ["HELD"] = "1"
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)], ids=["kill -9", "Ctrl-C"]
)
@pytest.mark.bits
def test_killed_after_the_first_flush(number: signal.Signals, code: int, tmp_path: Path, run_cli: RunCli) -> None:
    run, hold = tmp_path / "run", tmp_path / "hold"
    (tmp_path / f"held_{number.name}.py").write_text(HELD, encoding="utf-8")
    hold.touch()
    spec = write(
        tmp_path,
        digits(limit=150, model={"format": "python", "architecture": f"held_{number.name}:model"}, estimators=[{"mc": {"samples": 50}}]),
    )
    with forks.started(tmp_path, "estimate", spec, "--out", "run", "--trust", before=be_held) as command:
        wait_until(lambda: flushes(run))
        os.kill(command.pid, signal.SIGSTOP)
        other = run_cli("estimate", spec, "--out", "run", "--trust")
        assert other.code == 2
        assert other.err.endswith("error: run: another robaudit is writing here; wait for it, or choose another --out\n")
        os.kill(command.pid, number)
        os.kill(command.pid, signal.SIGCONT)
        wait_until(lambda: number == signal.SIGKILL or "finishing the current part" in command.err.read_text())
        hold.unlink()
        wait_until(command.ended)
        done = command.answer()
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    assert flushes(run) in ([1] if number == signal.SIGKILL else [1, 2])
    assert json.loads((run / "run.json").read_text())["status"] == "running"
    assert run_cli("estimate", spec, "--out", "run", "--trust").code == 0
    assert run_cli("estimate", spec, "--out", "undisturbed", "--trust").code == 0
    for name in OUTPUTS:
        assert (run / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_a_damaged_state_is_redone_once_it_is_deleted(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=70))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    whole = (tmp_path / "run" / "samples.csv").read_bytes()
    state = tmp_path / "run" / "state.db"
    state.write_bytes(state.read_bytes()[:-10])
    assert run_cli("estimate", spec, "--out", "run").code == 2
    state.unlink()
    assert run_cli("estimate", spec, "--out", "run").code == 0
    assert (tmp_path / "run" / "samples.csv").read_bytes() == whole


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("text", [None, "damaged"], ids=["deleted", "damaged"])
def test_outputs_are_made_anew_from_the_state(name: str, text: str | None, tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=2))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    path = tmp_path / "run" / name
    whole = path.read_bytes()
    path.unlink() if text is None else path.write_text(text)
    assert run_cli("estimate", spec, "--out", "run").code == 0
    assert path.read_bytes() == whole
    assert flushes(tmp_path / "run") == 1


def test_complete_run_is_not_touched(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=2))
    first = run_cli("estimate", spec, "--out", "run")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    again = run_cli("estimate", spec, "--out", "run", "--device", "cpu", "--set", "run.batch_size=3")
    assert again.code == 0
    assert "note: run: this run is complete; nothing was recomputed" in again.err
    assert again.out == first.out
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


CHANGES = {
    "images": (
        {"images": np.zeros((4, 1, 8, 8), np.uint8)},
        "error: x.npz: 0: this image has changed since the run began; choose another --out",
    ),
    "labels": ({"labels": [0, 1, 2, 9]}, "error: x.npz: 3: this label has changed since the run began; choose another --out"),
}


@pytest.mark.parametrize(("arrays", "says"), CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("options", [[], ["--extend", "--sigma", "0.1"]], ids=["same command", "--extend"])
def test_changed_data_is_refused(arrays: dict[str, Any], says: str, options: list[str], tmp_path: Path, run_cli: RunCli) -> None:
    save_npz(tmp_path / "x.npz")
    spec = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    before = (tmp_path / "run" / "run.json").read_bytes()
    save_npz(tmp_path / "x.npz", **arrays)
    code, out, err = run_cli("estimate", spec, "--out", "run", *options)
    assert (code, out) == (2, "")
    assert says in err
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_changed_weights_are_refused(tmp_path: Path, run_cli: RunCli) -> None:
    tensors = load_file(WEIGHTS)
    save_file(tensors, tmp_path / "own.safetensors")
    spec = write(tmp_path, digits(limit=2, model={**NETWORK, "path": "own.safetensors"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    save_file({key: 1.01 * tensor for key, tensor in tensors.items()}, tmp_path / "own.safetensors")
    code, _, err = run_cli("estimate", spec, "--out", "run")
    assert (code, err.splitlines()[-1]) == (2, "error: run: was made with other weights; choose another --out")


@pytest.mark.slow
@pytest.mark.bits
def test_the_first_interrupt_finishes_the_part(tmp_path: Path) -> None:
    """One Ctrl-C while the first part is computed: that part is on disk, and nothing of the next is begun."""
    spec = write(tmp_path, digits(limit=200, estimators=[{"mc": {"samples": 600}}]))
    command = [sys.executable, "-m", "robaudit", "estimate", str(spec), "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        log = tmp_path / "run" / "log.txt"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (log.exists() and "auditing" in log.read_text()):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-2:] == [
        "finishing the current part; press Ctrl-C again to stop at once",
        "interrupted; finished work is on disk: run the same command again to continue",
    ]
    assert 1 <= flushes(tmp_path / "run") < 4
    assert log.read_text().endswith(" interrupted\n")
