"""Limits of memory and cores from made-up files of the system, the tightest of them, peaks, and
what a failed allocation looks like."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import torch

from robaudit import memory, system
from robaudit.errors import ModelError, RobauditError, SpecError
from robaudit.memory import extra_peak, is_out_of_memory, memory_limit, size_text

GB = 10**9


def system_files(folder: Path, files: dict[str, str]) -> Path:
    """Files as the kernel would show them."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, math.inf),
        ({"memory.max": "max\n"}, math.inf),
        (
            {
                "job/memory.max": "max\n",
                "job/memory.high": f"{3 * GB}\n",
                "memory.max": f"{2 * GB}\n",
            },
            2 * GB,
        ),
        ({"job/memory.max": f"{4 * GB}", "job/memory.stat": f"anon {GB}\nfile {2 * GB}\n"}, 3 * GB),
    ],
)
def test_memory_that_control_groups_leave(
    files: dict[str, str], left: float, tmp_path: Path
) -> None:
    """With parents; a container may see its group as the root."""
    shown = {
        "proc/self/cgroup": "0::/job\n",
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    assert system.group_memory(system_files(tmp_path, shown)) == left


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 64),
        ({"sys/fs/cgroup/job/cpu.max": "200000 100000\n"}, 2),
        (
            {
                "sys/fs/cgroup/job/cpu.max": "max 100000\n",
                "sys/fs/cgroup/cpu.max": "250000 100000\n",
            },
            3,
        ),
        ({"sys/fs/cgroup/job/cpu.max": "50000 100000\n"}, 1),
        ({"sys/fs/cgroup/job/cpu.max": "max 100000\n"}, 64),
    ],
)
def test_cores_by_affinity_and_quota(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert system.cores(system_files(tmp_path, {"proc/self/cgroup": "0::/job\n", **files})) == cores


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 GB free, and a process that holds 1 GB."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=8 * GB))
    monkeypatch.setattr(memory, "used", lambda: GB)
    monkeypatch.setattr(memory, "group_memory", lambda: math.inf)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("asked", "share", "group", "most"),
    [
        ("auto", 1.0, math.inf, 7.4),  # four fifths of 8 GB
        ("auto", 0.5, math.inf, 4.2),
        ("auto", 1.0, 2 * GB, 2.6),
        (4 * GB, 1.0, math.inf, 4),
        (4 * GB, 0.5, math.inf, 4),  # for each of two processes
        (100 * GB, 1.0, math.inf, 9),
        (4 * GB, 1.0, 2 * GB, 3),
    ],
)
def test_the_tightest_limit_counts(
    asked: int | Literal["auto"],
    share: float,
    group: float,
    most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "group_memory", lambda: group)
    assert memory_limit(asked, share) == pytest.approx(most * GB, abs=2)


@pytest.mark.usefixtures("machine")
def test_less_than_the_process_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError) as refused:
        memory_limit(10**8)
    assert str(refused.value) == "--memory 100MB: the process alone holds 1GB; give at least 1.5GB"
    memory_limit(int(1.5 * GB))
    monkeypatch.setattr(memory, "group_memory", lambda: -5.0)
    with pytest.raises(RobauditError) as told:
        memory_limit("auto")
    assert (
        str(told.value)
        == "memory: 0 bytes are free beside the 1GB that the process holds; give at least 1.5GB"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (100 * 10**6, "100MB"),
        (411_700_000, "412MB"),
        (10**9, "1GB"),
        (1_460_000_000, "1.46GB"),
        (2 * 10**12, "2TB"),
        (999, "999 bytes"),
    ],
)
def test_sizes_as_people_write_them(size: int, text: str) -> None:
    assert size_text(size) == text


MESSAGES = [
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 268435456 bytes.",
    "[enforce fail at alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough memory: you tried "
    "to allocate 8589934592 bytes.",
    "The following operation failed in the TorchScript interpreter.\nTraceback of "
    "TorchScript:\nRuntimeError: could not create a primitive",
    "could not execute a primitive",
    "std::bad_alloc",
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.72 GiB",
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
]


@pytest.mark.parametrize("text", MESSAGES)
def test_what_libraries_say(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


class Fail(Exception):  # noqa: N818 - its name
    """As ONNX Runtime raises it."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        OSError(12, "Cannot allocate memory"),
        Fail(
            "[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:360 Failed to allocate memory for "
            "requested buffer of size 67108864"
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_that_say_it(error: BaseException) -> None:
    assert is_out_of_memory(error)
    wrapped = ModelError("model", "does not accept the images")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
def test_a_peak_is_measured() -> None:
    def work() -> None:
        torch.ones(2**24).sum()

    assert extra_peak(work) == pytest.approx(2**26, rel=0.2)
    assert extra_peak(lambda: None) < 2**24


_REPEATED = """
import resource
import torch
from robaudit.system import keep_freed_memory

keep_freed_memory()

def allocate():
    torch.ones(12_000_000)  # 48 MB, more than glibc keeps by any threshold

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(20):
    allocate()
before = faults()
for _ in range(10):
    allocate()
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_freed_blocks_of_any_size_are_kept() -> None:
    """A new block of 48 MB costs 12,000 page faults."""
    done = subprocess.run(
        [sys.executable, "-c", _REPEATED], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 12_000
