"""Limits of memory and cores from made-up files of the system, the tightest of them, peaks, and what a failed allocation looks like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robaudit import cgroups, memory
from robaudit.errors import ModelError, RobauditError, SpecError
from robaudit.memory import Limit, extra_peak, is_out_of_memory, limits, memory_limit, size_text, used

GB = 10**9
FREE = "the machine's free memory"
OURS = 300_000_000
"""Bytes that this process holds of its group."""


def system(folder: Path, files: dict[str, str]) -> Path:
    """Files as the kernel would show them."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def of_groups(root: Path) -> list[tuple[str, int]]:
    return list(cgroups.memory_limits(OURS, root))


def test_without_groups_there_is_no_limit_of_theirs(tmp_path: Path) -> None:
    assert of_groups(tmp_path) == []
    assert [limit.source for limit in limits(tmp_path) if not limit.source.startswith("RLIMIT")] == [FREE]


def test_version_2_with_parents(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        "sys/fs/cgroup/outer/inner/memory.high": f"{3 * GB}\n",
        "sys/fs/cgroup/outer/memory.max": f"{2 * GB}\n",
    }
    assert of_groups(system(tmp_path, files)) == [("memory.high", 3 * GB), ("memory.max", 2 * GB)]
    sources = {limit.source: limit.bytes for limit in limits(tmp_path)}
    assert sources["the control group's memory.max"] == 2 * GB


def test_what_others_of_the_group_hold_is_not_ours(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/job/memory.max": f"{4 * GB}",
        "sys/fs/cgroup/job/memory.current": f"{3 * GB}",
        "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {GB}\nactive_file {GB // 2}\n",
    }
    assert of_groups(system(tmp_path, files)) == [("memory.max", 4 * GB - (3 * GB - GB - GB // 2 - OURS))]


def test_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/job\n4:memory:/job/task\n0::/\n",
        "sys/fs/cgroup/memory/job/task/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GB}\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{GB}\n",
        "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB // 2}\ntotal_active_file {GB // 2}\n",
        "sys/fs/cgroup/cpu/job/memory.limit_in_bytes": "1\n",
    }
    assert of_groups(system(tmp_path, files)) == [("memory.limit_in_bytes", GB)]


@pytest.mark.parametrize(
    ("cgroup", "folders"),
    [
        ("0::/", [""]),
        ("0::/a/b", ["a/b", "a", ""]),
        ("0::/../other", [""]),
        ("4:cpu,memory:/a", ["memory/a", "memory"]),
        ("4:cpu:/a", []),
        ("", []),
        ("nonsense\n\n:::::\n7", []),
    ],
)
def test_the_folders_of_our_groups(cgroup: str, folders: list[str], tmp_path: Path) -> None:
    system(tmp_path, {"proc/self/cgroup": cgroup})
    assert list(cgroups.groups("memory", tmp_path)) == [tmp_path / "sys/fs/cgroup" / folder for folder in folders]


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    """As Docker does without a namespace of control groups: the path is the host's, the files lie at the root."""
    files = {"proc/self/cgroup": "4:memory:/docker/7f\n3:cpu:/docker/7f\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GB}\n"}
    assert of_groups(system(tmp_path, files)) == [("memory.limit_in_bytes", GB)]


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_breaks_the_readers(first: str, second: str) -> None:
    texts = {"cgroup": first, "memory.max": second, "memory.current": first, "memory.stat": second, "cpu.max": first}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cgroups, "text", lambda path: "0::/a" if path.name == "cgroup" and not first else texts.get(path.name, ""))
        assert all(most >= 0 for _, most in cgroups.memory_limits(OURS))
        assert cgroups.cores() >= 1


@pytest.mark.parametrize(
    ("content", "bytes_"),
    [
        ("max\n", None),
        ("1073741824\n", 2**30),
        ("0", 0),
        ("9223372036854771712", None),
        ("", None),
        ("-1", None),
        ("1e9", None),
        ("9" * 30, None),
    ],
)
def test_numbers_in_limit_files(content: str, bytes_: int | None, tmp_path: Path) -> None:
    system(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": content})
    assert of_groups(tmp_path) == ([] if bytes_ is None else [("memory.max", bytes_)])


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 64),
        ({"sys/fs/cgroup/job/cpu.max": "200000 100000\n"}, 2),
        ({"sys/fs/cgroup/job/cpu.max": "max 100000\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
        ({"sys/fs/cgroup/job/cpu.max": "50000 100000\n"}, 1),
        ({"sys/fs/cgroup/job/cpu.max": "max 100000\n"}, 64),
        ({"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000\n", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n"}, 2),
        ({"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n"}, 64),
        ({"sys/fs/cgroup/job/cpu.max": "1 0\n"}, 64),
    ],
)
def test_cores_by_affinity_and_quota(files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert cgroups.cores(system(tmp_path, {"proc/self/cgroup": "3:cpu,cpuacct:/job\n0::/job\n", **files})) == cores


def test_the_process_has_limits_of_its_own() -> None:
    code = (
        "import json, resource\nfrom robaudit.memory import limits\n"
        "for name, most in (('RLIMIT_AS', 9), ('RLIMIT_DATA', 8), ('RLIMIT_RSS', 7)):\n"
        "    resource.setrlimit(getattr(resource, name), (most * 10**9, most * 10**9))\n"
        "print(json.dumps([limit[:3] for limit in limits() if limit.source.startswith('RLIMIT')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    counts = {"RLIMIT_AS": "vms", "RLIMIT_DATA": "data", "RLIMIT_RSS": "rss"}
    assert json.loads(done.stdout) == [[(9 - i) * GB, name, counted] for i, (name, counted) in enumerate(counts.items())]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Limit]:
    """A machine with 8 GB free, a process that holds 1 GB, 2 GB of data and 6 GB of address space."""
    known: list[Limit] = [Limit(9 * GB, FREE)]
    monkeypatch.setattr(memory, "limits", lambda: known)
    monkeypatch.setattr(memory, "used", lambda counts="rss": {"rss": GB, "data": 2 * GB, "vms": 6 * GB}[counts])
    return known


@pytest.mark.parametrize(
    ("asked", "others", "limit", "free"),
    [
        ("auto", [], Limit(int(7.4 * GB), FREE), 6.4),  # four fifths of 8 GB
        (4 * GB, [], Limit(4 * GB, "--memory 4GB", asked=True), 3),
        (100 * GB, [], Limit(9 * GB, FREE), 8),
        (4 * GB, [Limit(3 * GB, "the control group's memory.max")], Limit(3 * GB, "the control group's memory.max"), 2),
        (4 * GB, [Limit(8 * GB, "RLIMIT_AS", "vms")], Limit(8 * GB, "RLIMIT_AS", "vms"), 2),  # the larger number leaves less
        (4 * GB, [Limit(3 * GB, "RLIMIT_DATA", "data")], Limit(3 * GB, "RLIMIT_DATA", "data"), 1),
        ("auto", [Limit(3 * GB, "RLIMIT_DATA", "data")], Limit(int(2.8 * GB), "RLIMIT_DATA", "data"), 0.8),
    ],
)
def test_the_tightest_limit_counts(
    asked: int | Literal["auto"], others: list[Limit], limit: Limit, free: float, machine: list[Limit]
) -> None:
    machine.extend(others)
    found = memory_limit(asked)
    assert found[1:] == limit[1:]
    assert found.bytes == pytest.approx(limit.bytes, abs=2)
    assert found.left == pytest.approx(free * GB, abs=2)


def test_less_than_the_process_holds_is_refused(machine: list[Limit]) -> None:
    with pytest.raises(SpecError) as refused:
        memory_limit(10**8)
    assert str(refused.value) == "--memory 100MB: the process alone holds 1GB; give at least 1.5GB"
    memory_limit(int(1.5 * GB))
    machine.append(Limit(GB, "the control group's memory.max"))
    with pytest.raises(RobauditError) as told:
        memory_limit("auto")
    assert str(told.value) == "the control group's memory.max: allows 1GB, and the process alone holds 1GB; give at least 1.5GB"


def test_of_this_machine() -> None:
    limit = memory_limit("auto")
    assert 0 < used(limit.counts) < limit.bytes
    assert 0 < limit.left < limit.bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [(100 * 10**6, "100MB"), (411_700_000, "412MB"), (10**9, "1GB"), (1_460_000_000, "1.46GB"), (2 * 10**12, "2TB"), (999, "999 bytes")],
)
def test_sizes_as_people_write_them(size: int, text: str) -> None:
    assert size_text(size) == text


MESSAGES = [
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 268435456 bytes.",
    "[enforce fail at alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes.",
    "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript:\nRuntimeError: could not create a primitive",
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
        Fail("[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:360 Failed to allocate memory for requested buffer of size 67108864"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_that_say_it(error: BaseException) -> None:
    assert is_out_of_memory(error)
    wrapped = ModelError("model", "does not accept the images")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("could not create a primitive descriptor for a convolution forward propagation primitive"),
        RuntimeError("CUDA error: device-side assert triggered"),
        OSError(28, "No space left on device"),
        ModelError("out of memory.pt", "cannot be read"),
        KeyboardInterrupt(),
    ],
    ids=str,
)
def test_exceptions_that_do_not(error: BaseException) -> None:
    assert not is_out_of_memory(error)


ALLOCATES = """
import json, resource, sys, torch
from torch import nn
from robaudit.memory import is_out_of_memory, used
torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 32 * 32, 10)).eval()
frozen = torch.jit.freeze(torch.jit.trace(network, torch.rand(8, 3, 32, 32)))

def gradient(n):
    x = torch.rand(n, 3, 32, 32, requires_grad=True)
    return torch.autograd.grad(network(x).sum(), x)

ways = {
    "tensor": lambda n: torch.empty(n, 2**18),
    "convolution": lambda n: network(torch.rand(n, 3, 32, 32)),
    "script": lambda n: frozen(torch.rand(n, 3, 32, 32)),
    "gradient": gradient,
    "product": lambda n: torch.rand(n, 256, 256) @ torch.rand(n, 256, 256),
    "python": lambda n: bytearray(n * 2**20),
    "numpy": lambda n: torch.rand(n, 2**18).numpy().copy(),
}
for way in ways.values():
    for n in (8, 16, 24):
        way(n)
found = {}
for limit, counts in ((resource.RLIMIT_AS, "vms"), (resource.RLIMIT_DATA, "data")):
    _, hard = resource.getrlimit(limit)
    for name, way in ways.items():
        resource.setrlimit(limit, (used(counts) + 64 * 2**20, hard))
        n, said = 8, None
        while said is None and n < 2**14:
            n *= 2
            try:
                way(n)
            except Exception as error:
                said = [type(error).__name__, str(error)[-200:], is_out_of_memory(error)]
        way(n // 4)
        found[f"{name} {counts}"] = [n, *(said or ["", "", False])]
        resource.setrlimit(limit, (hard, hard))
json.dump(found, sys.stdout)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not enforce these limits")
def test_what_really_happens_and_that_less_still_works() -> None:
    done = subprocess.run([sys.executable, "-c", ALLOCATES], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert len(said) == 14
    for name, (rows, kind, text, known) in said.items():
        assert known, (name, rows, kind, text)
        assert 16 < rows < 2**14


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
def test_a_peak_is_measured() -> None:
    def work() -> None:
        torch.ones(2**24).sum()

    assert extra_peak(work) == pytest.approx(2**26, rel=0.2)
    assert extra_peak(lambda: None) < 2**24
