"""A network that never returns: SIGTERM and the second Ctrl-C end the process all the same."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

from tests.cli.test_entry import plain, read_all
from tests.specs import digits, write

PATIENCE = 120
LOADING, CHECKING, AUDITING = "loading the model", "checking model and data", "clean accuracy"
PROGRAM = """
from robaudit.cli import main, process
process.GRACE = 0.5
main()
"""
LAST = "killed: something did not return within 0.5 s of the signal; finished work is on disk: run the same command again to continue\n"


class Endless(nn.Module):
    """Returns only for batches whose pixels are at least this."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.min() < self.least):
            x = x * 1.0
        out: Tensor = self.linear(x.flatten(1))
        return out


class EndlessToLoad(nn.Module):
    """Its state is never set."""

    def __init__(self) -> None:
        super().__init__()
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    @torch.jit.export
    def __getstate__(self) -> int:
        return 1

    @torch.jit.export
    def __setstate__(self, state: int) -> None:
        self.training = False
        while state > 0:
            state += 1
            if state > 1000:
                state = 1


def scripted(module: nn.Module, folder: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of torch would rather not
        torch.jit.save(torch.jit.script(module.eval()), folder / "net.pt")
    return {"path": "net.pt"}


def in_the_clean_pass(folder: Path) -> dict[str, Any]:
    return scripted(Endless(2.0), folder)


def in_an_estimator(folder: Path) -> dict[str, Any]:
    return scripted(Endless(-1.0), folder)


def at_loading(folder: Path) -> dict[str, Any]:
    return scripted(EndlessToLoad(), folder)


def in_onnx(folder: Path) -> dict[str, Any]:
    """2^62 trips of a Loop."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, node, tensor = onnx.helper.make_tensor_value_info, onnx.helper.make_node, onnx.helper.make_tensor
    scalar: list[int] = []
    floats, whole, truth = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    body = onnx.helper.make_graph(
        [node("Identity", ["going"], ["go_on"]), node("Identity", ["before"], ["after"])],
        "body",
        [make("trip", whole, scalar), make("going", truth, scalar), make("before", floats, None)],
        [make("go_on", truth, scalar), make("after", floats, None)],
    )
    nodes = [node("Flatten", ["x"], ["f"]), node("Loop", ["trips", "yes", "f"], ["y"], body=body)]
    constants = [tensor("trips", whole, scalar, [2**62]), tensor("yes", truth, scalar, [True])]
    graph = onnx.helper.make_graph(nodes, "net", [make("x", floats, ["n", 1, 8, 8])], [make("y", floats, ["n", 64])], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, folder / "net.onnx")
    return {"path": "net.onnx"}


def with_the_gil(folder: Path) -> dict[str, Any]:
    """It holds the GIL: no other thread runs Python meanwhile."""
    forward = "    def forward(self, x):\n        return x + sum(itertools.repeat(0))\n"
    code = f"import itertools, torch\n\nclass Net(torch.nn.Module):\n{forward}"
    (folder / "holding.py").write_text(code, encoding="utf-8")
    return {"format": "python", "architecture": "holding:Net"}


def seen(terminal: int, words: str) -> None:
    """Wait until these words are on a terminal."""
    text = b""
    while words.encode() not in text:
        assert select.select([terminal], [], [], PATIENCE)[0], text
        text += os.read(terminal, 4096)


TERM, INT = (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)


@pytest.mark.parametrize(
    ("make", "stage", "signals", "piped"),
    [
        (in_the_clean_pass, CHECKING, TERM, True),
        pytest.param(in_the_clean_pass, CHECKING, INT, False, marks=pytest.mark.slow),
        pytest.param(in_an_estimator, AUDITING, TERM, False, marks=pytest.mark.slow),
        pytest.param(in_an_estimator, AUDITING, INT, True, marks=pytest.mark.slow),
        pytest.param(at_loading, LOADING, TERM, True, marks=pytest.mark.slow),
        (in_onnx, CHECKING, INT, True),
        pytest.param(in_onnx, CHECKING, TERM, False, marks=pytest.mark.slow),
        pytest.param(with_the_gil, CHECKING, TERM, True, marks=pytest.mark.slow),
    ],
)
def test_what_is_stuck_is_killed(
    make: Callable[[Path], dict[str, Any]], stage: str, signals: tuple[signal.Signals, ...], piped: bool, tmp_path: Path
) -> None:
    spec = write(tmp_path, digits(model=make(tmp_path), limit=20, noise={"sigma": 0.5}, estimators=[{"mc": {"samples": 400}}]))
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "estimate", str(spec), "--out", "run", "--trust"]
    out = subprocess.PIPE if piped else terminal
    with subprocess.Popen(command, cwd=tmp_path, env=plain({"TERM": "xterm"}), stdout=out, stderr=terminal) as process:
        os.close(terminal)
        try:
            seen(controller, stage)
            known, deadline = psutil.Process(process.pid), time.monotonic() + PATIENCE
            begun = known.cpu_times().user
            while known.cpu_times().user < begun + 2 and time.monotonic() < deadline:  # by then it is in the network
                time.sleep(0.05)
            for number in signals:
                process.send_signal(number)
                time.sleep(0.1)  # the system counts two of a kind at once as one
            text = read_all(controller)
            if process.stdout is not None:
                assert process.stdout.read() == b"", "nothing keeps its output open"
            assert process.wait(PATIENCE) == -signal.SIGKILL
        finally:
            process.kill()
    assert text.replace("\r\n", "\n").endswith(LAST)
