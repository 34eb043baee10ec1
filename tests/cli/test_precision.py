"""`run.precision` from the command line: what is said, what is kept, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robaudit import audit
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, write

LEVELS = {"sigma": [0.25]}


def values(run: Path) -> list[float]:
    return [row["value"] for row in json.loads((run / "samples.json").read_text())["rows"]]


def test_bf16_is_measured_printed_and_near(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    document = digits(
        limit=16, noise=LEVELS, estimators=[{"mc": {"draws": 200}}, {"mmse": {"draws": 4}}]
    )
    spec = write(tmp_path, document)
    assert run_cli("estimate", spec, "--out", "exact").code == 0
    outcome = run_cli("estimate", spec, "--out", "lower", "--set", "run.precision=bf16")
    assert outcome.code == 0
    (line,) = [line for line in outcome.err.splitlines() if "precision bf16" in line]
    golden(line)
    about = json.loads((tmp_path / "lower" / "run.json").read_text())
    (effect,) = about["precision_effect"]
    assert (effect["precision"], effect["level"], effect["images"], effect["copies"]) == (
        "bf16",
        0.25,
        16,
        512,
    )
    assert 0 <= effect["changed"] < 26
    assert abs(effect["kept"] - effect["kept_fp32"]) <= effect["changed"]
    assert f"{effect['changed']} of 512 noisy copies (16 images) change class" in line
    exact = values(tmp_path / "exact")
    lower = values(tmp_path / "lower")
    assert exact[1::2] == lower[1::2]  # mmse needs gradients: fp32
    assert max(abs(a - b) for a, b in zip(exact, lower, strict=True)) < 0.05
    plain = json.loads((tmp_path / "exact" / "run.json").read_text())
    assert "precision_effect" not in plain
    assert plain["identity"] != about["identity"]
    assert plain["batch_rows"] == about["batch_rows"] == 128


def test_tf32_on_the_cpu_is_fp32_and_says_so(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    spec = write(tmp_path, digits(limit=2))
    assert run_cli("estimate", spec, "--out", "plain").code == 0
    outcome = run_cli(
        "estimate", spec, "--out", "tf32", "--set", "run.precision=tf32", "--device", "cpu"
    )
    assert outcome.code == 0
    golden.lines(outcome.err, "warning: ")
    assert values(tmp_path / "plain") == values(tmp_path / "tf32")


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_cuda_rounds_the_products_of_the_network_alone_and_only_when_asked(
    precision: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch import nn

    from robaudit.noise import correlated
    from robaudit.numerics.rowwise import product
    from robaudit.spec.model import AuditSpec

    networks = set()
    own = set()

    def rounds() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            networks.add(rounds())
            return x.flatten(1)[:, :10]

    def spied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        own.add(rounds())
        return product(a, b)

    monkeypatch.setattr(correlated, "product", spied)
    noise = [{"kind": "gaussian_correlated", "length": 2, "sigma": [0.2]}]
    run = {"precision": precision, "device": "cpu"}
    spec = AuditSpec.model_validate(
        digits(limit=2, noise=noise, estimators=["logit_gaussian", "mmse"], run=run)
    )
    audit(spec, out=tmp_path / "run", model=Spy())
    assert networks == {(allowed, allowed)}
    assert own == {(False, False)}
