"""Interrupted runs: the same command goes on, and the result is that of a run nobody disturbed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from robaudit import audit
from robaudit.auditing import main_loop
from robaudit.auditing.rounds import draws_of_rounds
from robaudit.datasets.select import random_subset
from robaudit.errors import RunError
from tests import forks
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import NETWORK, WEIGHTS, digits, save_npz, write
from tests.states import flushes

OUTPUTS = ("samples.csv", "samples.json", "summary.json")


HELD = """
import os, time
from pathlib import Path
def flushed():
    from tests.states import flushes
    return flushes(Path("run"))
def model():
    def forward(x):
        while "HELD" in os.environ and Path("hold").exists() and flushed():
            time.sleep(0.01)
        return x.flatten(1)[:, 10:50:4]
    return forward
"""  # a network that waits behind the first flush for as long as there is a file


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def be_held() -> None:
    """What a command's process does first: it flushes every step, its network waits, and Ctrl-C is
    heard, which xdist ignores."""
    main_loop._FLUSH_SECONDS = 0.0
    os.environ["HELD"] = "1"
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
    ids=["kill -9", "Ctrl-C"],
)
@pytest.mark.bits
def test_killed_after_the_first_flush(
    number: signal.Signals, code: int, tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    run = tmp_path / "run"
    hold = tmp_path / "hold"
    (tmp_path / f"held_{number.name}.py").write_text(HELD, encoding="utf-8")
    hold.touch()
    spec = write(
        tmp_path,
        digits(
            limit=40,
            model={"format": "python", "architecture": f"held_{number.name}:model"},
            estimators=[{"mc": {"draws": 50}}],
        ),
    )
    with forks.started(
        tmp_path, "estimate", spec, "--out", "run", "--trust", before=be_held
    ) as command:
        wait_until(lambda: flushes(run))
        os.kill(command.pid, signal.SIGSTOP)
        other = run_cli("estimate", spec, "--out", "run", "--trust")
        assert other.code == 2
        golden.lines(other.err, "error: ")
        os.kill(command.pid, number)
        os.kill(command.pid, signal.SIGCONT)
        wait_until(
            lambda: (
                number == signal.SIGKILL or "finishing the current part" in command.err.read_text()
            )
        )
        hold.unlink()
        wait_until(command.ended)
        done = command.answer()
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert flushes(run) in ([1] if number == signal.SIGKILL else [1, 2])
    killed = number == signal.SIGKILL
    status = json.loads((run / "run.json").read_text())["status"]
    assert status == ("running" if killed else "stopped")
    how = "unfinished" if killed else "interrupted"
    first = run_cli("show", "run").out.splitlines()[0]
    assert re.fullmatch(
        rf"so far          (\d+ to )?\d+ of 50 copies of each of (\d+ of )?40 images \({how}\)",
        first,
    )
    assert done.stdout.startswith("" if killed else first)
    resumed = run_cli("estimate", spec, "--out", "run", "--trust")
    assert resumed.code == 0
    golden.lines(resumed.err, "note: resuming")
    assert run_cli("estimate", spec, "--out", "undisturbed", "--trust").code == 0
    for name in OUTPUTS:
        assert (run / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_a_complete_run_is_not_touched_and_its_outputs_are_made_anew(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    spec = write(tmp_path, digits(limit=2))
    first = run_cli("estimate", spec, "--out", "run")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    again = run_cli(
        "estimate", spec, "--out", "run", "--device", "cpu", "--set", "run.batch_size=3"
    )
    assert again.code == 0
    golden.lines(again.err)
    assert again.out == first.out
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before
    whole = {name: (tmp_path / "run" / name).read_bytes() for name in OUTPUTS}
    for text in (None, "damaged"):
        for name in OUTPUTS:
            path = tmp_path / "run" / name
            path.unlink() if text is None else path.write_text(text)
        assert run_cli("estimate", spec, "--out", "run").code == 0
        assert {name: (tmp_path / "run" / name).read_bytes() for name in OUTPUTS} == whole
        assert flushes(tmp_path / "run") == len(draws_of_rounds(20))


CHANGES: dict[str, dict[str, Any]] = {
    "images": {"images": np.zeros((4, 1, 8, 8), np.uint8)},
    "labels": {"labels": [0, 1, 2, 9]},
}


@pytest.mark.parametrize("arrays", CHANGES.values(), ids=list(CHANGES))
def test_changed_data_is_refused(
    arrays: dict[str, Any], tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    save_npz(tmp_path / "x.npz")
    spec = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    before = (tmp_path / "run" / "run.json").read_bytes()
    save_npz(tmp_path / "x.npz", **arrays)
    for options in ([], ["--extend", "--sigma", "0.1"]):
        code, out, err = run_cli("estimate", spec, "--out", "run", *options)
        assert (code, out) == (2, "")
        golden.lines(err)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_changed_image_is_found_where_it_is_computed(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    """A random part of 256 is looked at before anything is computed."""
    later = next(place for place in range(260) if place not in random_subset(260, 256, 0))
    save_npz(tmp_path / "x.npz", count=260)
    spec = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}, estimators=["softmax"]))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    images = np.load(tmp_path / "x.npz")["images"]
    images[later] = 255 - images[later]
    save_npz(tmp_path / "x.npz", count=260, images=images)
    code, _, err = run_cli("estimate", spec, "--out", "run", "--extend", "--sigma", "0.1")
    assert code == 2
    golden.lines(err)


def test_changed_weights_are_refused(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    tensors = load_file(WEIGHTS)
    save_file(tensors, tmp_path / "own.safetensors")
    spec = write(tmp_path, digits(limit=2, model={**NETWORK, "path": "own.safetensors"}))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    save_file({key: 1.01 * tensor for key, tensor in tensors.items()}, tmp_path / "own.safetensors")
    code, _, err = run_cli("estimate", spec, "--out", "run")
    assert code == 2
    golden.lines(err)


def test_another_prediction_of_a_known_sample_is_another_model(
    tmp_path: Path, golden: Golden
) -> None:
    """Of code that the digest of a network does not see."""
    flipped: list[bool] = []
    spec = digits(run={"as_given": True}, model={"format": "memory"}, dataset={"kind": "memory"})
    data = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)), [0, 1] * 2

    class Flipped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            logits = 9 * x.flatten(1)[:, :2]
            return logits.flip(1) if flipped else logits

    audit(spec, model=Flipped(), dataset=data, out=tmp_path / "run")
    flipped.append(True)
    with pytest.raises(RunError) as error:
        audit(
            {**spec, "estimators": ["softmax"]},
            model=Flipped(),
            dataset=data,
            out=tmp_path / "run",
            extend=True,
        )
    golden(error.value)
