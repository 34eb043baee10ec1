"""Several devices of one machine: a Ray cluster of its own, with a worker for each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robaudit.auditing import audit as run_module
from robaudit.auditing.environment import pick_devices
from robaudit.auditing.resume import refuse_another_machine
from robaudit.errors import AnotherRunError, SpecError
from robaudit.progress import Listener
from robaudit.runs.info import kind_of
from tests.cli.conftest import Refuse, refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.infos import changed, run_info
from tests.specs import digits, read_info, write
from tests.system.ray.clusters import Surroundings
from tests.system.ray.conftest import here

__all__ = ["here", "refuse"]
CPU = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.bits
def test_a_worker_for_each_device(
    tmp_path: Path, here: Surroundings, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path, digits(limit=8, estimators=[{"mc": {"draws": 20}}]))
    assert run_cli("estimate", spec, "--out", "one", "-q").code == 0
    monkeypatch.setattr(run_module, "pick_devices", lambda _: [CPU, CPU])
    monkeypatch.setenv("RAY_TMPDIR", here.folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    code, _, err = run_cli("estimate", spec, "--out", "two")
    assert (code, err.count("note: 2 workers: cpu, cpu\n")) == (0, 1)
    assert read_info(tmp_path / "two")["device"].startswith("cpu,cpu (")
    assert (tmp_path / "two" / "samples.csv").read_bytes() == (
        tmp_path / "one" / "samples.csv"
    ).read_bytes()


def test_without_ray_it_says_how_to_install_it(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "pick_devices", lambda _: [CPU, CPU])
    monkeypatch.setitem(sys.modules, "ray", None)
    refuse("estimate", write(tmp_path, digits()), "--out", "run")


class _Cuda:
    """Some number of CUDA devices, of which nothing but their number may be asked."""

    def __init__(self, patch: pytest.MonkeyPatch, devices: int) -> None:
        patch.setattr(torch.cuda, "is_available", lambda: devices > 0)
        patch.setattr(torch.cuda, "device_count", lambda: devices)
        patch.setattr(torch.cuda, "_lazy_init", lambda: pytest.fail("CUDA was initialised"))


@given(
    st.integers(0, 9),
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.sampled_from([",", ", "]),
)
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


@pytest.mark.parametrize(
    ("there", "name"),
    [
        (2, "cuda:0,cuda:0"),
        (2, "cuda,cuda:0"),
        (2, "cuda:0,cpu"),
        (2, "cuda:all,cuda:0"),
        (2, "cuda:0,"),
        (2, "cuda:0,cuda:9"),
        (1, "cuda:0,cuda:1"),
        (0, "cuda:9"),
        (0, "cuda:all"),
        (2, "cuda:" + "9" * 5000),
    ],
)
def test_devices_that_are_not_there(
    there: int, name: str, tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Cuda(monkeypatch, there)
    refuse("estimate", write(tmp_path, digits()), "--out", "run", "--device", name)


def test_the_noise_depends_on_the_model_of_the_devices_not_on_their_number() -> None:
    assert (
        kind_of("cuda:0,cuda:1 (NVIDIA A100)")
        == kind_of("cuda:0 (NVIDIA A100)")
        == kind_of("cuda:3 (NVIDIA A100)")
    )
    assert kind_of("cuda:0,cuda:1 (NVIDIA A100)") != kind_of("cuda:0 (NVIDIA H100)")
    assert kind_of("cpu,cpu (a processor, 1 thread)") == kind_of("cpu (another, 2 threads)")


def test_a_run_goes_on_only_where_its_noise_is_drawn(golden: Golden) -> None:
    old = run_info(device="cpu (one, 1 thread)")
    now = changed(old, device="cuda:0 (NVIDIA A100)")
    with pytest.raises(AnotherRunError) as caught:
        refuse_another_machine(old, now, "run", Listener())
    golden(caught.value)
