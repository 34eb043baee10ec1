"""Several devices of one machine: a process for each, here two on the CPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import robaudit
from robaudit.auditing import job, loop, processes
from robaudit.auditing.environment import pick_devices
from robaudit.auditing.processes import Processes, environment
from robaudit.auditing.worker import Done
from robaudit.errors import ModelError, SpecError
from robaudit.estimators import registry
from robaudit.store.info import kind_of
from tests.auditing.networks import Halves, OnlyHere, Upset, halves
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.specs import digits, read_info, write

__all__ = ["refuse"]
CPU = torch.device("cpu")
_MC = [{"mc": {"samples": 20}}]


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Audits run on two devices."""
    monkeypatch.setattr(job, "pick_devices", lambda _: [CPU, CPU])
    monkeypatch.setattr(loop, "_DUE", 0.0)
    return monkeypatch


@pytest.fixture
def alone(two: pytest.MonkeyPatch) -> Callable[[], None]:
    """Audits run on one device from now on."""
    return lambda: two.setattr(job, "pick_devices", pick_devices)


def at_first_result(monkeypatch: pytest.MonkeyPatch, do: Callable[[list[int]], None]) -> list[int]:
    """Do something to the processes once, when the first rows of one of them have come; returns their numbers, from then on."""
    real, known = Processes.items, list[int]()

    def items(self: Processes, seconds: float) -> Iterable[tuple[int, Any]]:
        for number, item in real(self, seconds):
            yield number, item
            if isinstance(item, Done) and item.step.rows and not known:
                known.extend(process.pid for process in self._processes)
                do(known)

    monkeypatch.setattr(Processes, "items", items)
    return known


def csv(folder: Path) -> bytes:
    return (folder / "samples.csv").read_bytes()


def gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have asked for its exit code yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
@pytest.mark.bits
def test_a_process_killed_in_the_middle_is_a_line_and_the_same_command_continues(
    tmp_path: Path, run_cli: RunCli, two: pytest.MonkeyPatch, alone: Callable[[], None]
) -> None:
    spec = write(tmp_path, digits(limit=24, estimators=["softmax", *_MC]))
    with two.context() as patch:
        known = at_first_result(patch, lambda pids: os.kill(pids[1], signal.SIGKILL))
        code, out, err = run_cli("estimate", spec, "--out", "run", "-q")
    assert (code, out) == (2, "")
    said = "error: cpu: its process ended (killed by SIGKILL); finished work is on disk: run the same command again to continue\n"
    assert err == said
    assert all(map(gone, known))
    assert read_info(tmp_path / "run")["status"] == "running"
    assert read_info(tmp_path / "run")["device"].startswith("cpu,cpu (")
    alone()
    code, _, err = run_cli("estimate", spec, "--out", "run")
    assert (code, err.count("samples are already on disk")) == (0, 1)
    assert [session.get("workers", 1) for session in read_info(tmp_path / "run")["sessions"]] == [2, 1]
    assert run_cli("estimate", spec, "--out", "one", "-q").code == 0
    assert csv(tmp_path / "run") == csv(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["alone", "shared"])
@pytest.mark.bits
def test_a_run_goes_on_with_more_or_fewer_devices(
    begun: str, tmp_path: Path, run_cli: RunCli, two: pytest.MonkeyPatch, alone: Callable[[], None]
) -> None:
    spec = write(tmp_path, digits(limit=8, estimators=_MC))
    if begun == "alone":
        with two.context() as patch:
            patch.setattr(job, "pick_devices", pick_devices)
            assert run_cli("estimate", spec, "--out", "run", "-q", "--limit", "4").code == 0
    else:
        assert run_cli("estimate", spec, "--out", "run", "-q", "--limit", "4").code == 0
        alone()
    code, _, err = run_cli("estimate", spec, "--out", "run", "--extend")
    assert (code, err.count("note: 2 workers: cpu, cpu\n")) == (0, begun == "alone")
    assert run_cli("verify", "run").code == 0
    alone()
    assert run_cli("estimate", spec, "--out", "one", "-q").code == 0
    assert csv(tmp_path / "run") == csv(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "function"])
@pytest.mark.bits
def test_a_network_and_images_in_memory(kind: str, tmp_path: Path, alone: Callable[[], None]) -> None:
    net = Halves() if kind == "module" else halves
    images = torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"sigma": 0.2, "estimators": _MC}
    shared = robaudit.audit(net, (images, torch.arange(9) % 2), out=tmp_path / "two", **options)
    alone()
    once = robaudit.audit(net, (images, torch.arange(9) % 2), out=tmp_path / "one", **options)
    assert csv(tmp_path / "two") == csv(tmp_path / "one")
    assert shared.info["model"] == once.info["model"]
    again = robaudit.audit(net, (images, torch.arange(9) % 2), out=tmp_path / "two", **options)
    assert len(again.info["sessions"]) == 1, "one device finds the run of two complete"


def test_a_network_that_cannot_be_sent_is_refused_before_a_process_starts(tmp_path: Path, two: pytest.MonkeyPatch) -> None:
    class Local(Halves):
        pass

    two.setattr(processes, "_started", lambda *_: pytest.fail("a process was started"))
    with pytest.raises(ModelError, match=r"^the model in memory: cannot be sent to another process \(.*Local.*\); use"):
        robaudit.audit(Local(), (torch.rand(2, 1, 8, 8), [0, 1]), sigma=0.1, estimators=_MC, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_another_process_cannot_open_is_a_line(tmp_path: Path, run_cli: RunCli, refuse: Refuse) -> None:
    with pytest.raises(ModelError, match=r"^the model in memory: cannot be used in another process \(.*: only here\); use"):
        robaudit.audit(OnlyHere(), (torch.rand(2, 1, 8, 8), [0, 1]), sigma=0.1, estimators=_MC, out=tmp_path / "run")
    missing = write(tmp_path, digits(model={"path": "there-is-none.safetensors", "architecture": "robaudit:digits_cnn"}))
    refuse("estimate", missing, "--out", "run", says="there-is-none.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no weights at all")
    broken = write(tmp_path, digits(model={"path": "broken.safetensors", "architecture": "robaudit:digits_cnn"}))
    refuse("estimate", broken, "--out", "run", says="broken.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.bits
def test_ctrl_c(presses: int, tmp_path: Path, run_cli: RunCli, two: pytest.MonkeyPatch, alone: Callable[[], None]) -> None:
    """A terminal sends it to all the processes."""
    spec = write(tmp_path, digits(limit=24, estimators=[{"mc": {"samples": 200}}]))

    def press(pids: list[int]) -> None:
        for pid in [*pids, os.getpid()] * presses:
            os.kill(pid, signal.SIGINT)

    with two.context() as patch:
        known = at_first_result(patch, press)
        code, out, err = run_cli("estimate", spec, "--out", "run", "-q")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted; finished work is on disk: run the same command again to continue"
    assert "Traceback" not in err
    assert all(map(gone, known))
    alone()
    assert run_cli("estimate", spec, "--out", "run", "-q").code == 0
    assert run_cli("estimate", spec, "--out", "one", "-q").code == 0
    assert csv(tmp_path / "run") == csv(tmp_path / "one")


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, two: pytest.MonkeyPatch) -> None:
    spec, pids = write(tmp_path, digits(limit=24, estimators=[{"mc": {"samples": 2000}}])), tmp_path / "pids"

    def end(known: list[int]) -> None:
        pids.write_text(" ".join(map(str, known)))
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        at_first_result(two, end)
        try:
            robaudit.audit(robaudit.load_spec(spec), out=tmp_path / "run")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    known = [int(word) for word in pids.read_text().split()]
    for _ in range(2000):
        if all(map(gone, known)):
            break
        time.sleep(0.05)
    assert [gone(pid) for pid in known] == [True, True]


@pytest.mark.slow
def test_a_bug_is_told_as_by_a_single_process(tmp_path: Path, run_cli: RunCli, two: pytest.MonkeyPatch) -> None:
    """The processes find a plugin as this one does."""
    images = torch.rand(4, 1, 8, 8)
    with pytest.raises(RuntimeError, match=r"(?s)^cpu:\nTraceback .*ZeroDivisionError: it is negative"):
        robaudit.audit(Upset(), (images, [0, 1, 0, 1]), sigma=0.5, estimators=_MC, out=tmp_path / "upset")
    info = tmp_path / "site" / "buggy-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: buggy\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nbuggy = tests.auditing.networks:Buggy\n")
    two.syspath_prepend(tmp_path / "site")
    code, out, err = run_cli("estimate", write(tmp_path, digits(limit=2, estimators=["buggy"])), "--out", "run", "-q")
    assert (code, out) == (2, "")
    assert err.startswith("error: estimator buggy (tests.auditing.networks:Buggy): raised ZeroDivisionError: ")
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.bits
def test_a_sample_that_cannot_be_used_is_skipped(tmp_path: Path, run_cli: RunCli, alone: Callable[[], None]) -> None:
    for number in range(10):
        (tmp_path / "images" / str(number)).mkdir(parents=True)
        Image.new("L", (8, 8), 20 * number).save(tmp_path / "images" / str(number) / "0.png")
    for name in ("0", "7"):
        (tmp_path / "images" / name / "0.png").write_bytes(b"damaged")
    spec = write(tmp_path, digits(dataset={"kind": "images", "path": "images", "channels": 1}))
    code, _, err = run_cli("estimate", spec, "--out", "stopped", "-q")
    assert code == 2
    assert "--on-error skip" in err.splitlines()[-1]
    assert run_cli("estimate", spec, "--out", "run", "-q", "--on-error", "skip").code == 0
    assert [skip["sample_id"] for skip in read_info(tmp_path / "run")["skipped"]] == ["0/0.png", "7/0.png"]
    alone()
    assert run_cli("estimate", spec, "--out", "one", "-q", "--on-error", "skip").code == 0
    assert csv(tmp_path / "run") == csv(tmp_path / "one")


@pytest.mark.slow
def test_other_commands_use_the_first_device_or_all(tmp_path: Path, run_cli: RunCli, two: pytest.MonkeyPatch) -> None:
    two.setattr("robaudit.auditing.environment.pick_devices", lambda *_: [CPU, CPU])
    spec = write(tmp_path, digits(limit=4, estimators=_MC, run={"device": "cuda:0,cuda:1"}))
    assert run_cli("validate", spec, "--out", "validation", "--samples", "2", "--reference-draws", "1000").code == 0
    assert run_cli("plan", spec, "--budget", "20s").code == 0
    assert run_cli("noises").code == 0
    assert run_cli("spectrum", spec, "--out", "spectrum", "--limit", "1", "-q").code == 0
    only = ("--only", "noise", "--only", "linear", "--cap-sigma", "1", "--device", "cuda:all")
    assert run_cli("curves", spec, "--out", "curves", *only, "-q").code == 0
    (curves,) = (tmp_path / "curves").iterdir()
    assert [read_info(run)["sessions"][0]["workers"] for run in (tmp_path / "spectrum", curves)] == [2, 2]
    assert run_cli("verify", curves, "--device", "cuda:0,cuda:1").code == 0


@pytest.mark.slow
@pytest.mark.bits
def test_orders_and_results_larger_than_any_buffer(tmp_path: Path, alone: Callable[[], None]) -> None:
    """An order here is megabytes of float64 pixels with long ids, and both sides send at once."""
    images = torch.rand(40, 3, 96, 96, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    options: dict[str, Any] = {"sigma": 0.2, "estimators": ["softmax"], "ids": [f"{i:03}" + "x" * 2000 for i in range(40)]}
    robaudit.audit(Halves(), (images, [0, 1] * 20), out=tmp_path / "two", **options)
    alone()
    robaudit.audit(Halves(), (images, [0, 1] * 20), out=tmp_path / "one", **options)
    assert csv(tmp_path / "two") == csv(tmp_path / "one")


class _Cuda:
    """Some number of CUDA devices, of which nothing but their number may be asked."""

    def __init__(self, patch: pytest.MonkeyPatch, devices: int) -> None:
        patch.setattr(torch.cuda, "is_available", lambda: devices > 0)
        patch.setattr(torch.cuda, "device_count", lambda: devices)
        patch.setattr(torch.cuda, "_lazy_init", lambda: pytest.fail("CUDA was initialised"))


@given(st.integers(0, 9), st.lists(st.integers(0, 12), min_size=1, max_size=4), st.sampled_from([",", ", "]))
def test_devices_are_those_that_are_named(there: int, numbers: list[int], comma: str) -> None:
    name = comma.join(f"cuda:{number}" for number in numbers)
    with pytest.MonkeyPatch.context() as patch:
        _Cuda(patch, there)
        if there > max(numbers) and len(set(numbers)) == len(numbers):
            assert pick_devices(name) == [torch.device("cuda", number) for number in numbers]
        else:
            with pytest.raises(SpecError) as refused:
                pick_devices(name)
            assert str(refused.value).count("\n") == 0
        every = [torch.device("cuda", number) for number in range(there)]
        if there:
            assert pick_devices("cuda:all") == every
            assert pick_devices("cuda") == pick_devices("auto") == every[:1]


@given(st.text("cudalpmx:,0123456789 ", max_size=12) | st.text(max_size=8))
def test_any_text_is_devices_or_a_refusal(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _Cuda(patch, 3)
        found: list[torch.device] = []
        with suppress(SpecError):
            found = pick_devices(name)
            assert found
    assert {one.index for one in found if one.type == "cuda"} <= {0, 1, 2}
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("there", "name", "says"),
    [
        (2, "cuda:0,cuda:0", "cuda:0,cuda:0 names a device twice; name each device once"),
        (2, "cuda,cuda:0", "cuda,cuda:0 names a device twice; name each device once"),
        (2, "cuda:0,cpu", "unknown device 'cuda:0,cpu'; use cpu, cuda, cuda:N, several as cuda:0,cuda:1, cuda:all, or auto"),
        (2, "cuda:all,cuda:0", "unknown device 'cuda:all,cuda:0'; use cpu,"),
        (2, "cuda:0,", "unknown device 'cuda:0,'; use cpu,"),
        (2, "cuda:0,cuda:9", "cuda:9 was requested, but torch finds 2 CUDA devices; use cuda:0 to cuda:1"),
        (1, "cuda:0,cuda:1", "cuda:1 was requested, but torch finds 1 CUDA device; use cuda:0"),
        (0, "cuda:9", "cuda:9 was requested, but torch finds no CUDA device here; use cpu or auto"),
        (0, "cuda:all", "cuda:all was requested, but torch finds no CUDA device here; use cpu or auto"),
        (2, "cuda:" + "9" * 5000, "unknown device 'cuda:9"),
    ],
)
def test_devices_that_are_not_there(there: int, name: str, says: str, tmp_path: Path, refuse: Refuse, two: pytest.MonkeyPatch) -> None:
    two.setattr(job, "pick_devices", pick_devices)
    _Cuda(two, there)
    refuse("estimate", write(tmp_path, digits()), "--out", "run", "--device", name, says=f"run.device: {says}")


@pytest.mark.parametrize(
    ("own", "number", "seen"),
    [
        ({}, 1, "1"),
        ({"CUDA_VISIBLE_DEVICES": "3,5"}, 1, "5"),
        ({"CUDA_VISIBLE_DEVICES": "3, 5"}, 1, "5"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1"}, 0, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}, 1, "MIG-2"),
        ({"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 0, "7"),
    ],
)
def test_a_process_sees_its_own_device_only(own: dict[str, str], number: int, seen: str) -> None:
    found = environment(torch.device("cuda", number), 2, own)
    assert found["CUDA_VISIBLE_DEVICES"] == seen
    assert {key: found[key] for key in own if key != "CUDA_VISIBLE_DEVICES"} == {
        key: text for key, text in own.items() if key != "CUDA_VISIBLE_DEVICES"
    }


def test_a_setting_that_came_too_late_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^run\.device: cuda:2 is not among CUDA_VISIBLE_DEVICES=0,1; set it before CUDA is used"):
        environment(torch.device("cuda", 2), 2, {"CUDA_VISIBLE_DEVICES": "0,1"})


@pytest.mark.parametrize(("cores", "threads", "several", "each"), [(8, 8, 2, 4), (8, 1, 2, 1), (2, 2, 4, 1), (9, 64, 2, 4)])
def test_processes_share_the_cores(cores: int, threads: int, several: int, each: int, two: pytest.MonkeyPatch) -> None:
    """Whoever has set the variable: the command line itself does where a quota allows fewer threads than there are cores."""
    two.setattr(processes, "cores", lambda: cores)
    two.setattr(torch, "get_num_threads", lambda: threads)
    assert environment(CPU, several, {"OMP_NUM_THREADS": "77"})["OMP_NUM_THREADS"] == str(each)


def test_the_noise_depends_on_the_model_of_the_devices_not_on_their_number() -> None:
    assert kind_of("cuda:0,cuda:1 (NVIDIA A100)") == kind_of("cuda:0 (NVIDIA A100)") == kind_of("cuda:3 (NVIDIA A100)")
    assert kind_of("cuda:0,cuda:1 (NVIDIA A100)") != kind_of("cuda:0 (NVIDIA H100)")
    assert kind_of("cpu,cpu (a processor, 1 thread)") == kind_of("cpu (another, 2 threads)")
