"""SIGTERM and readers that leave: the process ends (or goes on) in good order, and says how with
its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from robaudit.auditing import chunk_sizes, main_loop
from robaudit.cli import estimate
from robaudit.cli.signals import TERMINATED, ended_by_signals
from robaudit.spec import schema
from tests import forks
from tests.cli.conftest import Refuse
from tests.cli.test_entry import plain
from tests.conftest import RunCli
from tests.specs import digits, tree, write

LONG = digits(limit=60, estimators=[{"mc": {"draws": 400}}])
OUTPUTS = ("samples.csv", "samples.json", "summary.json")
PROGRAM = (sys.executable, "-m", "robaudit")
LAST = "terminated; finished work is on disk: run the same command again to continue\n"


def slowly() -> None:
    """A flush for one image, then for every four; and Ctrl-C is heard, which xdist ignores."""
    main_loop._FLUSH_SECONDS = 0.0
    chunk_sizes.CHUNK_SECONDS = 1e9
    chunk_sizes.MOST_IMAGES = 4
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGTERM],
        pytest.param(
            [signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT], marks=pytest.mark.slow
        ),
    ],
    ids=["alone", "after Ctrl-C"],
)
def test_sigterm_ends_an_audit_in_good_order(
    numbers: list[signal.Signals], tmp_path: Path, run_cli: RunCli
) -> None:
    """Ctrl-C lets the part at hand finish; SIGTERM does not, not even after a Ctrl-C."""
    log = tmp_path / "run" / "log.txt"
    with forks.started(
        tmp_path, "estimate", write(tmp_path, LONG), "--out", "run", before=slowly
    ) as command:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
            log.exists() and " 9 of 60 samples" in log.read_text()
        ):
            time.sleep(0.005)
        for number in numbers:
            os.kill(command.pid, number)
        done = command.answer()
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr.endswith(LAST)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "log.txt").read_text().endswith(" terminated\n")
    left = tree(tmp_path / "run")
    assert not [name for name in left if name.endswith(".tmp")]
    assert "samples.csv" not in left
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    assert run_cli("estimate", "spec.yaml", "--out", "undisturbed").code == 0
    for name in OUTPUTS:
        assert (tmp_path / "run" / name).read_bytes() == (
            tmp_path / "undisturbed" / name
        ).read_bytes()


@pytest.mark.parametrize("module", ["torch", "robaudit.cli.verify"], ids=["command", "program"])
@pytest.mark.parametrize(
    ("sent", "code", "word"), [("SIGTERM", 143, "terminated"), ("SIGINT", 130, "interrupted")]
)
def test_a_signal_before_anything_is_loaded(
    module: str, sent: str, code: int, word: str, tmp_path: Path
) -> None:
    text = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == '{module}':\n"
        f"            os.kill(os.getpid(), signal.{sent})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from robaudit.cli import main\n"
        "main()\n"
    )
    write(tmp_path, LONG)
    command = [sys.executable, "-c", text, "estimate", "spec.yaml", "--out", "run"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=plain({}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        code,
        "",
        LAST.replace("terminated", word),
    )
    assert not (tmp_path / "run").exists()


def test_other_commands_end_with_a_word(tmp_path: Path) -> None:
    def end_it() -> None:
        schema.spec_schema = lambda *_: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[assignment]

    with forks.started(tmp_path, "list", "schema", before=end_it) as command:
        done = command.answer()
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "terminated\n")


def test_it_raises_once_and_then_leaves_it_to_the_system() -> None:
    def end() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    with pytest.raises(SystemExit) as ended, ended_by_signals(str):
        end()
    assert ended.value.code == TERMINATED == 143


def mark_passes() -> None:
    """Leave a file when a script is called; and Ctrl-C is heard, which xdist ignores."""

    def mark(module: torch.nn.Module, _: object) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            Path("called").touch()

    register_module_forward_pre_hook(mark)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def endless(folder: Path) -> None:
    """A spec with a network that never answers."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.flatten(1)
            while y.numel() > 0:
                y = y + 1
            return y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Net()), folder / "net.pt")
    write(folder, digits(model={"path": "net.pt"}))


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")]
)
def test_a_second_signal_ends_a_network_that_never_answers(
    number: signal.Signals, word: str, tmp_path: Path
) -> None:
    """Python's own handlers would run once the network returns."""
    endless(tmp_path)
    with forks.started(
        tmp_path, "estimate", "spec.yaml", "--out", "run", before=mark_passes
    ) as command:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "called").exists():
            time.sleep(0.005)
        time.sleep(0.2)
        os.kill(command.pid, number)
        time.sleep(0.3)
        assert not command.ended()
        os.kill(command.pid, number)
        done = command.answer()
    assert done.returncode == 128 + number
    assert done.stderr.endswith(LAST.replace("terminated", word))


def without_the_lock() -> None:
    """Python's threads do not run while the first pass is computed."""

    def hold(module: torch.nn.Module, _: object) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            Path("called").touch()
            sum(range(10**12))  # one instruction of Python, which keeps its lock

    register_module_forward_pre_hook(hold)


def test_a_second_signal_ends_code_that_keeps_all_threads_from_running(tmp_path: Path) -> None:
    endless(tmp_path)
    with forks.started(
        tmp_path, "estimate", "spec.yaml", "--out", "run", before=without_the_lock
    ) as command:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "called").exists():
            time.sleep(0.005)
        for _ in range(2):
            time.sleep(0.2)
            os.kill(command.pid, signal.SIGTERM)
        done = command.answer()
    assert done.returncode == -signal.SIGKILL


def test_a_budget_ends_a_network_that_never_answers(tmp_path: Path) -> None:
    def soon() -> None:
        estimate._LAST_STEP = 0.5

    endless(tmp_path)
    with forks.started(tmp_path, "estimate", "spec.yaml", "--budget", "2s", before=soon) as command:
        done = command.answer()
    assert (done.returncode, done.stdout) == (2, "")
    assert "\nerror: --budget: was over a while ago, and the model still computes" in done.stderr


def test_an_interrupt_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As a shell starts jobs in the background."""

    def ignore() -> None:
        slowly()
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    log = tmp_path / "run" / "log.txt"
    with forks.started(
        tmp_path, "estimate", write(tmp_path, LONG), "--out", "run", before=ignore
    ) as command:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
            log.exists() and " 9 of 60 samples" in log.read_text()
        ):
            time.sleep(0.005)
        for _ in range(2):
            os.kill(command.pid, signal.SIGINT)
            time.sleep(0.1)
        assert command.answer().returncode == 0


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with ended_by_signals(str):
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("code", ["0", "'done'"])
def test_code_of_the_user_cannot_pass_for_the_end(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: Refuse
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    name = f"leaving_{ord(code[0])}"
    (tmp_path / f"{name}.py").write_text(f"import sys\ndef make(): sys.exit({code})\n")
    spec = write(tmp_path, digits(dataset={"kind": "python", "target": f"{name}:make"}))
    refuse("estimate", spec, "--out", "run", "--trust")


@pytest.mark.slow
def test_completions_still_work() -> None:
    environment = plain(
        {"_ROBAUDIT_COMPLETE": "complete_bash", "COMP_WORDS": "robaudit est", "COMP_CWORD": "1"}
    )
    done = subprocess.run(
        [*PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["estimate"], "")
    shown = subprocess.run(
        [*PROGRAM, "--show-completion"],
        env=plain({}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "sys.exit" not in shown.stderr
