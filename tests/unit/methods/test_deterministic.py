"""`run.deterministic`: torch's switches, the workspace of cuBLAS, what has no such form, and that
our own operations have one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import robaudit
from robaudit import AuditSpec
from robaudit.auditing.environment import deterministic, explained
from robaudit.errors import ModelError, RobauditError
from tests.golden import Golden
from tests.specs import digits, located
from tests.unit.engine.tools import build, installed_estimators, network_for, values, work_on

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
KEY = "CUBLAS_WORKSPACE_CONFIG"
_memory: Any = torch.utils.deterministic

RAISES = {
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "_ctc_loss_backward",
    "_embedding_bag_dense_backward",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_bilinear2d_aa_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "avg_pool3d_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "histc",
    "kthvalue",
    "max_pool3d_with_indices_backward",
    "max_unpool2d",
    "max_unpool3d",
    "nll_loss2d_backward",
    "nll_loss2d_forward",
    "nll_loss_backward",
    "nll_loss_forward",
    "put",
    "put_",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "reflection_pad3d_backward",
    "replication_pad1d_backward",
    "replication_pad3d_backward",
    "scatter_reduce",
    "scatter_reduce_",
    "upsample_bicubic2d_backward",
    "upsample_bilinear2d_backward",
    "upsample_linear1d_backward",
    "upsample_trilinear3d_backward",
}
"""Operations of which torch says that they raise on CUDA, in one of the versions we run with."""


def state() -> tuple[object, ...]:
    """Everything that may be changed."""
    cudnn = torch.backends.cudnn
    modes = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    return (
        *modes,
        cudnn.deterministic,
        cudnn.benchmark,
        _memory.fill_uninitialized_memory,
        os.environ.get(KEY),
    )


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = state()[:-1]
    yield
    assert state()[:-1] == before


@pytest.fixture
def no_cuda_yet(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A machine on which CUDA has begun when the test says so; no value is in the environment."""
    begun = {"it": False}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: begun["it"])
    monkeypatch.setenv(KEY, "")  # so that it is restored at the end
    monkeypatch.delenv(KEY)
    return begun


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_switches_are_set_and_put_back(device: torch.device, no_cuda_yet: dict[str, bool]) -> None:
    before = state()
    with deterministic(True, device):
        assert state() == (True, False, True, False, False, ":4096:8" if device is CUDA else None)
    assert state()[:-1] == before[:-1]
    with pytest.raises(ZeroDivisionError), deterministic(True, device):
        raise ZeroDivisionError
    assert state()[:-1] == before[:-1]


@pytest.mark.parametrize(
    ("begun", "before", "within"),
    [
        (False, ":4096:8", ":4096:8"),
        (False, ":16:8", ":16:8"),
        (False, ":4096:2:16:8", ":4096:8"),
        (True, ":16:8", ":16:8"),
        (True, ":4096:2:16:8", ":4096:2:16:8"),  # torch refuses the first product
    ],
)
def test_the_workspace_of_cublas(
    begun: bool,
    before: str,
    within: str,
    no_cuda_yet: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEY, before)
    no_cuda_yet["it"] = begun
    with deterministic(True, CUDA):
        assert os.environ[KEY] == within


def test_cuda_that_was_in_use_before_is_one_line() -> None:
    error = RuntimeError(
        "Deterministic behavior was enabled with either "
        "`torch.use_deterministic_algorithms(True)` or ..., but this operation is not "
        "deterministic because it uses CuBLAS and you have CUDA >= 10.2."
    )
    says = (
        "run.deterministic: CUDA was in use before deterministic mode was requested; set "
        f"{KEY}=:4096:8 before Python starts"
    )
    assert str(explained(error)) == says


def test_an_operation_without_such_a_form_is_named(golden: Golden) -> None:
    with pytest.raises(ModelError) as refused, deterministic(True, CPU):
        torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
    golden(refused.value)
    assert isinstance(refused.value.__cause__, RuntimeError)


def test_an_error_that_hides_the_cause_is_seen_through() -> None:
    def hidden(*, by: Exception) -> Exception:
        try:
            try:
                raise RuntimeError(
                    "adaptive_avg_pool2d_backward_cuda does not have a deterministic "
                    "implementation, but you set it."
                )
            except RuntimeError as error:
                raise by from error
        except Exception as error:  # noqa: BLE001  whatever hides it
            return error

    found = explained(hidden(by=ModelError("net.pt", "does not accept the images")))
    assert found is not None
    assert "adaptive_avg_pool2d_backward_cuda, " in str(found)
    loop = RuntimeError("a")
    loop.__cause__ = other = RuntimeError("b")
    other.__cause__ = loop
    assert explained(loop) is None


class Unpools(nn.Module):
    """A network with an operation that has no deterministic implementation, not even on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        small, where = nn.functional.max_pool2d(x, 2, return_indices=True)
        return nn.functional.max_unpool2d(small, where, [2, 2]).flatten(1)[:, :10]


def test_an_audit_of_a_network_without_such_a_form(tmp_path: Path, golden: Golden) -> None:
    def spec(*, on: bool) -> AuditSpec:
        return located(digits(limit=2, run={"deterministic": on, "device": "cpu"}), tmp_path, "run")

    with pytest.raises(RobauditError) as caught:
        robaudit.audit(spec(on=True), out=tmp_path / "run", model=Unpools())
    golden(caught.value)
    assert not (tmp_path / "run").exists()
    robaudit.audit(spec(on=False), out=tmp_path / "run", model=Unpools())


class Recorder(TorchDispatchMode):
    """Notes which operations are called that raise on CUDA."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.found = set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # torch has no other names for them
        name = func._overloadpacket.__name__
        overload = func._overloadname
        weighted = name == "bincount" and (
            (len(args) > 1 and args[1] is not None) or (kwargs or {}).get("weights") is not None
        )
        located = name in ("median", "nanmedian") and overload.startswith("dim")
        self.count += 1
        if name in RAISES or weighted or located:
            self.found.add(str(func))
        return func(*args, **(kwargs or {}))


def test_the_recorder_sees_what_raises() -> None:
    with Recorder() as seen:
        x = torch.rand(4, 5)
        x.median(1)
        x.median()
        torch.bincount(torch.arange(3), minlength=7)
        torch.bincount(torch.arange(3), torch.rand(3))
        x.histc(3)
    assert seen.found == {"aten.median.dim", "aten.bincount.default", "aten.histc.default"}


CASES = [
    pytest.param(name, classes, id=f"{name}-{classes}")
    for name in sorted(installed_estimators())
    for classes in (2, 4, 60)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "classes"), CASES)
def test_every_operation_of_an_estimator_has_a_deterministic_form(name: str, classes: int) -> None:
    def estimates() -> object:
        return values(build(name), work_on(network_for(build(name), classes), images=3))

    plain = estimates()
    with deterministic(True, CPU):
        assert estimates() == plain
    with (
        deterministic(True, CPU),
        Recorder() as seen,
    ):  # under which torch takes some products apart, and rounds them otherwise
        estimates()
    assert seen.count > 10
    assert seen.found == set()
