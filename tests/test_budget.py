"""Memory: the system's limits from made-up files, the room under them, images by rule, and what a failed allocation looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from robaudit.budget import chunk_images, is_out_of_memory, memory_limit, memory_used, needs, room, size_text
from robaudit.control_groups import cached, groups, limit_in
from robaudit.machine_memory import Limit, amount, extra_peak, limits

from robaudit import budget, machine_memory
from robaudit.errors import ModelError, RobauditError, SpecError
from robaudit.estimators.base import Estimator
from robaudit.estimators.registry import Chosen, Task

GB = 10**9
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
FREE = "the machine's free memory"


def system(folder: Path, files: dict[str, str], *, rss: int = 500, free: int = 8000) -> Path:
    """Files as the kernel would show them; the process holds ``rss`` MB, and ``free`` MB of the machine are free."""
    status = f"Name:\tpython\nVmSize:\t{rss * 4000} kB\nVmRSS:\t{rss * 1000} kB\nRssAnon:\t{rss * 600} kB\nVmData:\t{rss * 2000} kB\n"
    meminfo = f"MemTotal: 16000000 kB\nMemFree: 100 kB\nMemAvailable: {free * 1000} kB\n"
    for name, text in {"proc/self/status": status, "proc/meminfo": meminfo, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def found(root: Path) -> dict[str, int]:
    return {limit.source: limit.bytes for limit in limits(root)}


def test_without_groups_the_machine_alone(tmp_path: Path) -> None:
    assert limits(system(tmp_path, {})) == [Limit((8000 + 500) * 1_024_000, FREE)]


def test_version_2_with_parents(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "proc/self/mountinfo": f"{V1_CPU}\n{V2}\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        "sys/fs/cgroup/outer/inner/memory.high": f"{3 * GB}\n",
        "sys/fs/cgroup/outer/memory.max": f"{2 * GB}\n",
    }
    sources = found(system(tmp_path, files))
    assert sources == {FREE: 8500 * 1_024_000, "the control group's memory.high": 3 * GB, "the control group's memory.max": 2 * GB}


def test_what_others_of_the_group_hold_is_not_ours(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/job\n",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/job/memory.max": f"{4 * GB}",
        "sys/fs/cgroup/job/memory.current": f"{3 * GB}",
        "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {GB}\nactive_file {GB // 2}\n",
    }
    ours = 500 * 600 * 1024
    assert found(system(tmp_path, files))["the control group's memory.max"] == 4 * GB - (3 * GB - GB - GB // 2 - ours)


def test_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/job\n4:memory:/job/task\n0::/\n",
        "proc/self/mountinfo": f"{V1_CPU}\n{V1}\n",
        "sys/fs/cgroup/memory/job/task/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GB}\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{GB}\n",
        "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB // 2}\ntotal_active_file {GB // 2}\n",
        "sys/fs/cgroup/cpu/job/memory.limit_in_bytes": "1\n",
    }
    assert found(system(tmp_path, files)) == {FREE: 8500 * 1_024_000, "the control group's memory.limit_in_bytes": GB}


@pytest.mark.parametrize(
    ("cgroup", "mount", "folders"),
    [
        ("0::/", V2, ["/sys/fs/cgroup"]),
        ("0::/a/b", V2, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]),
        ("0::/docker/7f", "30 23 0:26 /docker/7f /sys/fs/cgroup ro - cgroup2 cgroup rw", ["/sys/fs/cgroup"]),
        ("0::/docker/7f/x", "30 23 0:26 /docker/7f /sys/fs/cgroup ro - cgroup2 cgroup rw", ["/sys/fs/cgroup/x", "/sys/fs/cgroup"]),
        ("0::/../other", V2, ["/sys/fs/cgroup"]),
        ("0::/elsewhere", "30 23 0:26 /docker/7f /sys/fs/cgroup ro - cgroup2 cgroup rw", ["/sys/fs/cgroup"]),
        ("4:cpu,memory:/a", V1, ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]),
        ("4:cpu:/a", V1, []),
        ("4:memory:/a", V1_CPU, []),
        ("0::/a", "", []),
        ("", V2, []),
        ("nonsense\n\n:::::\n7", V2, []),
        ("0::/a", "30 23 - cgroup2\nx\n - \n30 23 0:26 / sys - cgroup2 cgroup rw", []),
    ],
)
def test_the_folders_of_our_groups(cgroup: str, mount: str, folders: list[str]) -> None:
    assert [group.folder for group in groups(cgroup, mount)] == [PurePosixPath(folder) for folder in folders]


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_breaks_the_parsers(first: str, second: str) -> None:
    assert isinstance(groups(first, second), list)
    assert cached(first) >= 0
    assert (limit_in(first) or 0) >= 0
    assert (amount(first, second) or 0) >= 0


@pytest.mark.parametrize(
    ("text", "bytes_"),
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
def test_numbers_in_limit_files(text: str, bytes_: int | None) -> None:
    assert limit_in(text) == bytes_


def test_amounts_in_status_files() -> None:
    text = "VmPeak:\t 9 kB\nVmRSS:\t  1234 kB\nVmRSSx: 5 kB\nVmData: many kB\n"
    assert [amount(text, key) for key in ("VmRSS", "VmData", "VmSize", "Vm")] == [1234 * 1024, None, None, None]


def test_without_proc_there_is_still_an_answer(tmp_path: Path) -> None:
    (only,) = limits(tmp_path)
    assert only.source == "the machine's memory"
    assert only.bytes > 2**28
    assert machine_memory.used(root=tmp_path) == machine_memory.peak() > 2**20


def test_the_process_has_limits_of_its_own() -> None:
    code = (
        "import json, resource\nfrom robaudit.machine_memory import limits\n"
        "for name, most in (('RLIMIT_AS', 5), ('RLIMIT_DATA', 4), ('RLIMIT_RSS', 3)):\n"
        "    resource.setrlimit(getattr(resource, name), (most * 10**9, most * 10**9))\n"
        "print(json.dumps([limit for limit in limits() if limit.source.startswith('RLIMIT')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    counts = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData", "RLIMIT_RSS": "VmRSS"}
    assert json.loads(done.stdout) == [[(5 - i) * GB, name, counted] for i, (name, counted) in enumerate(counts.items())]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Limit]:
    """A machine with 8 GB free, a process that holds 1 GB, 2 GB of data and 6 GB of address space."""
    known: list[Limit] = [Limit(9 * GB, FREE)]
    monkeypatch.setattr(budget, "limits", lambda: known)
    monkeypatch.setattr(budget, "used", lambda counts="VmRSS": {"VmRSS": GB, "VmData": 2 * GB, "VmSize": 6 * GB}[counts])
    return known


@pytest.mark.parametrize(
    ("asked", "others", "limit", "free"),
    [
        ("auto", [], Limit(int(7.4 * GB), FREE), 5.12),  # four fifths of 8 GB, and four fifths of that
        (4 * GB, [], Limit(4 * GB, "--memory 4GB"), 2.4),
        (100 * GB, [], Limit(9 * GB, FREE), 6.4),
        (4 * GB, [Limit(3 * GB, "the control group's memory.max")], Limit(3 * GB, "the control group's memory.max"), 1.6),
        (4 * GB, [Limit(8 * GB, "RLIMIT_AS", "VmSize")], Limit(8 * GB, "RLIMIT_AS", "VmSize"), 1.6),  # the larger number leaves less
        (4 * GB, [Limit(3 * GB, "RLIMIT_DATA", "VmData")], Limit(3 * GB, "RLIMIT_DATA", "VmData"), 0.8),
        ("auto", [Limit(3 * GB, "RLIMIT_DATA", "VmData")], Limit(int(2.8 * GB), "RLIMIT_DATA", "VmData"), 0.64),
    ],
)
def test_the_tightest_limit_counts(asked: int | Literal["auto"], others: list[Limit], limit: Limit, free: float, held: list[Limit]) -> None:
    held.extend(others)
    assert memory_limit(asked) == limit
    assert room(limit) == pytest.approx(free * GB, abs=2)


def test_nothing_known_is_no_limit(held: list[Limit]) -> None:
    held.clear()
    assert room(memory_limit("auto")) > 2**60


def test_less_than_the_process_holds_is_refused(held: list[Limit]) -> None:
    with pytest.raises(SpecError) as refused:
        memory_limit(10**8)
    assert str(refused.value) == "--memory 100MB: the process alone holds 1GB; give at least 1.5GB"
    memory_limit(int(1.5 * GB))
    held.append(Limit(GB, "the control group's memory.max"))
    with pytest.raises(RobauditError) as told:
        memory_limit("auto")
    assert str(told.value) == "the control group's memory.max: allows 1GB, and the process alone holds 1GB; give at least 1.5GB"


def test_of_this_machine() -> None:
    limit = memory_limit("auto")
    assert 0 < memory_used(limit) < limit.bytes
    assert 0 < room(limit) < limit.bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [(100 * 10**6, "100MB"), (411_700_000, "412MB"), (10**9, "1GB"), (1_460_000_000, "1.46GB"), (2 * 10**12, "2TB"), (999, "999 bytes")],
)
def test_sizes_as_people_write_them(size: int, text: str) -> None:
    assert size_text(size) == text


class Rule(Estimator):
    """Holds what it is told. Source: none."""

    each: int = 0
    once: int = 0

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def held(self, classes: int, values: int) -> int:
        return self.each

    def held_once(self, classes: int, values: int) -> int:
        return self.once

    def estimate(self, work: object) -> list[object]:  # type: ignore[override]
        raise NotImplementedError


def task(sigma: float, each: int, once: int = 0) -> Task:
    return Task(sigma, Chosen("rule", "rule", Rule(each=each, once=once)))


def test_images_by_rule() -> None:
    pixels = 24 * 100 + 64 * 10
    assert needs([task(0.1, 1000, 7), task(0.1, 500, 9), task(0.2, 1200)], 10, 100) == (9, 1500 + pixels)
    assert chunk_images(10 * (1000 + pixels), [task(0.1, 1000)], 10, 100) == 10
    assert chunk_images(10 * (1000 + pixels) - 1, [task(0.1, 1000)], 10, 100) == 9
    assert chunk_images(10 * (3000 + pixels), [task(0.1, 1000), task(0.1, 2000), task(0.2, 2500)], 10, 100) == 10
    assert chunk_images(7 + 10 * (2000 + pixels), [task(0.1, 1000, 7), task(0.1, 1000, 5)], 10, 100) == 10
    assert chunk_images(0, [task(0.1, 1000)], 10, 100) == chunk_images(-GB, [task(0.1, 1000)], 10, 100) == 1


@given(st.integers(0, 10**11), st.integers(2, 2000), st.integers(1, 10**6))
def test_more_memory_is_never_fewer_images(free: int, classes: int, values: int) -> None:
    tasks = [task(0.1, 40 * classes + 8 * values, 10**6), task(0.1, 3 * classes * values)]
    assert 1 <= chunk_images(free, tasks, classes, values) <= chunk_images(2 * free, tasks, classes, values)


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
from robaudit.budget import is_out_of_memory
from robaudit.machine_memory import used
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
for limit, counts in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
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
    least = extra_peak(lambda: None)
    assert least is not None
    assert least < 2**24
