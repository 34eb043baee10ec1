"""Rows in batches of different sizes: what is measured before a run, and what the run then says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit.auditing.batches import check_rows
from robaudit.engine.passes import Engine
from robaudit.models import from_module
from robaudit.runs.info import RowBits, Rows
from tests.conftest import RunCli
from tests.specs import digits, read_info, write
from tests.unit.engine.tools import SHAPE, sources

IMAGES = torch.rand(7, *SHAPE, generator=torch.Generator().manual_seed(1))

NETWORKS = """
import torch

def kernels(x):
    "Logits whose last digits depend on the number of rows, as if a library chose kernels by it."
    logits = 8 * x.flatten(1)[:, 20:30]
    return logits * (1 + 2e-7) if len(x) > 16 else logits

def rounding():
    return kernels

def together():
    return lambda x: x.flatten(1)[:, :10] - x.flatten(1)[:, :10].mean(0)
"""


class Pixels(nn.Module):
    """Five pixels as logits: no sums, and so the same bits on every machine."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x.flatten(1)[:, :5]


class Kernels(Pixels):
    """Its logits are a little larger in batches of more than ``most`` rows."""

    def __init__(self, most: int, more: float = 2**-20) -> None:
        super().__init__()
        self.most = most
        self.more = more

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + self.more * (len(x) > self.most))


class Slopes(torch.autograd.Function):
    """The identity, whose derivative depends on the number of rows."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Tensor:
        return slopes[0] * (1 + 2**-20 * (len(slopes[0]) > 8))


class Backward(Pixels):
    """Its gradients alone depend on the size of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(Slopes.apply(x))


class Together(Pixels):
    """Takes the mean over the batch away."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits - logits.mean(0)


class Random(Pixels):
    """Adds noise of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(len(x), 5)


def check(
    network: nn.Module,
    batch_size: int | None = None,
    *,
    gradients: bool = True,
    images: Tensor = IMAGES,
) -> Rows:
    return warned(network, batch_size, gradients=gradients, images=images)[0]


def warned(
    network: nn.Module,
    batch_size: int | None = None,
    *,
    gradients: bool = True,
    images: Tensor = IMAGES,
) -> tuple[Rows, list[str]]:
    return check_rows(
        Engine(from_module(network), sources(1, torch.float32), 5, batch_size),
        images,
        gradients=gradients,
    )


@pytest.mark.parametrize("images", [1, 2, 7])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 8, 24, 300])
def test_rows_that_do_not_depend_on_the_batch(batch_size: int | None, images: int) -> None:
    assert check(Pixels(), batch_size, images=IMAGES[:images]) == Rows(
        kind=RowBits.BITWISE, largest_difference=0.0
    )


@pytest.mark.parametrize(
    ("most", "batch_size"),
    [(8, None), (16, None), (120, None), (16, 24), (200, 256), (8, 11), (255, 300)],
)
def test_rounding_is_found_at_any_size_that_the_run_uses(most: int, batch_size: int | None) -> None:
    found = check(Kernels(most), batch_size)
    assert found.kind is RowBits.ROUNDING
    assert 2**-22 < found.largest_difference < 2**-18


def test_gradients_count_where_the_run_uses_them() -> None:
    assert check(Backward(), gradients=True).kind is RowBits.ROUNDING
    assert check(Backward(), gradients=False).kind is RowBits.BITWISE


def test_networks_that_are_not_reproducible_are_told_apart_from_rounding() -> None:
    together, mixed = warned(Together())
    _, random = warned(Random())
    assert together.kind is RowBits.MIXED
    assert ["depend on the other images of its batch" in line for line in mixed] == [True]
    assert ["other logits the second time" in line for line in random] == [True]


class Partly(Pixels):
    """Some images have logits that are not numbers."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        logits[x.flatten(1)[:, 0] > 0.5] = torch.nan
        logits[x.flatten(1)[:, 0] < 0.2, 0] = torch.inf
        return logits


class Whole(Pixels):
    """Takes batches of 8 rows up to 64: of fewer it makes no batch at all, and of more it runs out
    of memory."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) % 8:
            raise RuntimeError("expected a multiple of 8 rows")
        if len(x) > 64:
            raise torch.OutOfMemoryError
        return super().forward(x)


def test_images_without_finite_logits_are_passed_over() -> None:
    images = IMAGES.clone()
    images[:, 0, 0, 0] = torch.linspace(0, 1, 7)
    assert check(Partly(), images=images, gradients=False) == Rows(
        kind=RowBits.BITWISE, largest_difference=0.0
    )


@pytest.mark.parametrize("batch_size", [None, 256])
def test_batches_are_those_of_the_run_as_far_as_memory_goes(batch_size: int | None) -> None:
    assert check(Whole(), batch_size, images=IMAGES[:3]) == Rows(
        kind=RowBits.BITWISE, largest_difference=0.0
    )


def test_rounding_is_said_and_verified_as_such(tmp_path: Path, run_cli: RunCli) -> None:
    """The honest way, on any machine: run.json, and what `verify` says of rows recomputed in other
    batches."""
    (tmp_path / "networks.py").write_text(NETWORKS, encoding="utf-8")
    estimators = [{"mc": {"draws": 30}}, "logit_gaussian"]
    spec = write(
        tmp_path,
        digits(
            limit=12,
            model={"format": "python", "architecture": "networks:rounding"},
            estimators=estimators,
            noise={"sigma": 0.5},
        ),
    )
    code, _, err = run_cli("estimate", spec, "--out", "run", "--trust")
    assert code == 0
    rows = read_info(tmp_path / "run")["rows"]
    assert rows["kind"] == "rounding"
    assert 1e-8 < rows["largest_difference"] < 1e-6
    assert "logits differ" not in err, "routine: run.json has it"
    code, out, err = run_cli("verify", "run", "--samples", "1", "--trust")
    assert code == 0
    assert out.startswith("2 rows of 1 samples recomputed: all as written, ")


def test_a_row_with_other_bits_is_named_only_where_they_were_promised(
    tmp_path: Path, run_cli: RunCli
) -> None:
    """A network without sums has the same bits everywhere; a value that is moved by its last digit
    passes, and is told."""
    (tmp_path / "networks.py").write_text(
        "def net():\n    return lambda x: 8 * x.flatten(1)[:, 20:30]\n", encoding="utf-8"
    )
    spec = write(
        tmp_path,
        digits(
            limit=3,
            model={"format": "python", "architecture": "networks:net"},
            noise={"sigma": 0.5},
        ),
    )
    assert run_cli("estimate", spec, "--out", "run", "--trust").code == 0
    assert read_info(tmp_path / "run")["rows"] == {"kind": "bitwise", "largest_difference": 0.0}
    assert run_cli("verify", "run", "--trust").out.startswith(
        "3 rows of 3 samples recomputed: all as written, bit for bit\n"
    )


def test_another_processor_is_told_when_a_run_is_resumed(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path, digits(limit=3))
    assert run_cli("estimate", spec, "--out", "run").code == 0
    monkeypatch.setattr(
        "robaudit.auditing.prepare.device_name", lambda device: "cpu (another, 9 threads)"
    )
    code, _, err = run_cli("estimate", spec, "--out", "run", "--extend", "--limit", "4")
    assert code == 0
    assert "(now cpu (another, 9 threads)): its rows may differ in the last digits" in err


@pytest.mark.parametrize(
    ("vendor", "own", "asked"),
    [
        ("GenuineIntel", None, "AUTO,STRICT"),
        ("GenuineIntel", "COMPATIBLE", "COMPATIBLE"),
        ("AuthenticAMD", None, None),
        ("", None, None),
    ],
)
def test_mkl_is_asked_for_reproducible_sums_on_intel(
    vendor: str, own: str | None, asked: str | None
) -> None:
    """Unless the user has made a choice; before torch is imported."""
    environment = {key: value for key, value in os.environ.items() if key != "MKL_CBWR"} | (
        {} if own is None else {"MKL_CBWR": own}
    )
    program = (
        "import builtins, io, os, sys\n"
        "real = builtins.open\n"
        f"cpu = io.StringIO('processor : 0\\nvendor_id : {vendor}\\n')\n"
        "builtins.open = lambda path, *a, **k: cpu if path == '/proc/cpuinfo' else real(path, "
        "*a, **k)\n"
        "import robaudit\n"
        "assert 'torch' not in sys.modules\n"
        "print(os.environ.get('MKL_CBWR'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{asked}\n"
