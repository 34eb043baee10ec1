"""The commands on the pretended card: the rows are the CPU's, and another card is another source of
noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import robaudit
from tests.conftest import RunCli
from tests.specs import digits, read_info, write
from tests.system.device import pretended

ESTIMATORS = [{"mc": {"draws": 60}}, "softmax"]
MORE = [*ESTIMATORS, {"taylor_mvs": {"noise": ["gaussian"]}}]
NOISES = [
    {"kind": "gaussian", "sigma": [0.3]},
    {"kind": "sensor", "photons": [100]},
]
SMALL = ("--set", "run.batch_size=16")
"""Few sizes of batches, which every run tries out."""
NUMBERS = (
    "value",
    "lower",
    "upper",
    "std_error",
    "votes",
    "predicted",
    "label",
    "forwards",
    "backwards",
)


def rows(run: Path) -> dict[tuple[str, str, str], list[Any]]:
    found = json.loads((run / "samples.json").read_text())["rows"]
    return {
        (row["sample_id"], row["estimator"], row["noise"]): [row.get(name) for name in NUMBERS]
        for row in found
    }


def assert_same(run: Path, other: Path) -> None:
    here = rows(run)
    there = rows(other)
    assert here.keys() == there.keys()
    for key, numbers in here.items():
        for a, b in zip(numbers, there[key], strict=True):
            assert a == b or (
                isinstance(a, float) and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
            ), (key, numbers, there[key])


def test_estimate_extend_and_verify(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    few = write(tmp_path, digits(limit=1, noise=NOISES, estimators=ESTIMATORS), "few.yaml")
    more = write(tmp_path, digits(limit=1, noise=NOISES, estimators=MORE), "more.yaml")
    options = (*SMALL, "--set", "run.precision=fp64", "--deterministic")
    with pretended():
        for arguments in (("estimate", few), ("estimate", more, "--extend")):
            code, _, err = run_cli(*arguments, "--out", "there", *options, "--device", "cuda")
            assert code == 0, err
        assert run_cli("verify", "there", "--samples", "1").code == 0
    assert read_info(tmp_path / "there")["device"] == "cuda:0 (Pretended Card)"
    assert run_cli("estimate", more, "--out", "here", *options, "--device", "cpu").code == 0
    assert_same(tmp_path / "here", tmp_path / "there")


def test_a_lower_precision(tmp_path: Path, run_cli: RunCli) -> None:
    spec = write(tmp_path, digits(limit=1))
    with pretended():
        code, _, err = run_cli(
            "estimate",
            spec,
            "--out",
            "there",
            *SMALL,
            "--set",
            "run.precision=bf16",
            "--device",
            "cuda",
        )
    assert code == 0, err
    assert [one["precision"] for one in read_info(tmp_path / "there")["precision_effect"]] == [
        "bf16"
    ]


@pytest.fixture
def on_a_card(tmp_path: Path, run_cli: RunCli) -> Callable[[str], Path]:
    def made(name: str) -> Path:
        spec = write(tmp_path, digits(limit=1))
        with pretended(name):
            assert run_cli("estimate", spec, "--out", name, *SMALL, "--device", "cuda").code == 0
        return tmp_path / name

    return made


def test_another_card_draws_other_noise(on_a_card: Callable[[str], Path], run_cli: RunCli) -> None:
    first = on_a_card("A100")
    second = on_a_card("H100")
    with pretended("H100"):
        code, out, err = run_cli("verify", first)
    assert code == 2
    assert "rows" not in out, "only the results are compared"
    assert (
        "was made on cuda:0 (A100), and cuda:0 (H100) draws other noise; verify it on cuda (A100)"
        in err
    )
    _, out, err = run_cli("compare", first, second)
    assert "unpaired, as noise on cuda (A100) differs from noise on cuda (H100)" in out + err


def test_a_network_and_data_on_the_device(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)).eval()
    x = torch.rand(5, 1, 6, 6)
    y = torch.tensor([0, 1, 2, 0, 1])
    options: dict[str, Any] = {
        "sigma": [0.2],
        "estimators": [{"mc": {"draws": 60}}, {"mmse": {"draws": 4}}],
    }
    robaudit.audit(network, (x, y), out=tmp_path / "here", device="cpu", **options)
    with pretended() as card:
        run = robaudit.audit(
            network.to("cuda"), (x.cuda(), y.cuda()), out=tmp_path / "there", **options
        )
        assert run.info.device == f"cuda:0 ({card.name})"
    assert_same(tmp_path / "here", tmp_path / "there")
