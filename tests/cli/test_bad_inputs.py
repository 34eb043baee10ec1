"""Models and data that open and cannot be audited: one line, exit 2, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from robaudit.models.architectures import digits_cnn
from tests.cli.conftest import Refuse
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import NETWORK, WEIGHTS, boxed, digits, read_rows, save_npz, write
from tests.system.hostile.models import onnx_bytes
from tests.unit.models.test_model_files import script

KEYS = {
    "class_names of another count": {"class_names": list("abcd")},
    "sample of more than there are": {"sample": {"size": 5}},
}


@pytest.mark.parametrize("options", KEYS.values(), ids=list(KEYS))
def test_npz_option(options: dict[str, Any], tmp_path: Path, refuse: Refuse) -> None:
    save_npz(tmp_path / "x.npz")
    refuse("estimate", write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz", **options})))


def test_images_without_labels(tmp_path: Path, refuse: Refuse) -> None:
    save_npz(tmp_path / "x.npz", count=2)
    spec = write(
        tmp_path, boxed("qnorm_mc", dataset={"kind": "npz", "path": "x.npz", "labels_key": None})
    )
    refuse("estimate", spec)


def test_unreadable_images(tmp_path: Path, refuse: Refuse) -> None:
    """One stops the audit; if all are skipped, nothing is left: exit 5."""
    files = [tmp_path / "digits" / str(number) / "0.png" for number in range(10)]
    for file in files:
        file.parent.mkdir(parents=True)
        Image.new("L", (8, 8)).save(file)
    spec = write(tmp_path, digits(dataset={"kind": "images", "path": "digits", "channels": 1}))
    files[4].write_bytes(b"not an image")
    refuse("estimate", spec)
    for file in files:
        file.write_bytes(b"")
    refuse("estimate", spec, "--on-error", "skip", code=5)


def test_logits_that_overflow(tmp_path: Path, refuse: Refuse) -> None:
    save_file(
        {key: tensor * 1e30 for key, tensor in load_file(WEIGHTS).items()},
        tmp_path / "huge.safetensors",
    )
    spec = write(tmp_path, digits(model={**NETWORK, "path": "huge.safetensors"}))
    refuse("estimate", spec)


class Masked(nn.Module):
    """The embedded network without the class 7."""

    def __init__(self) -> None:
        super().__init__()
        self.network = digits_cnn()
        self.network.load_state_dict(load_file(WEIGHTS))
        self.register_buffer("mask", torch.where(torch.arange(10) == 7, -torch.inf, 0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(x) + self.mask
        return logits


def test_a_label_that_the_network_masks(tmp_path: Path, run_cli: RunCli, golden: Golden) -> None:
    script(tmp_path, Masked().eval())
    by_label = [{"difficulty": {"target": "label"}}]
    spec = write(tmp_path, digits(limit=12, model={"path": "net.pt"}, estimators=by_label))
    refused = run_cli("estimate", spec, "--out", "by_label")
    assert refused.code == 2
    golden.lines(refused.err)
    spec = write(
        tmp_path, digits(limit=12, model={"path": "net.pt"}, estimators=["mc", "difficulty"])
    )
    assert run_cli("estimate", spec, "--out", "run").code == 0
    rows = read_rows(tmp_path / "run")
    assert len(rows) == 24
    assert "7" not in {row["predicted"] for row in rows}


def test_what_onnx_cannot(tmp_path: Path, refuse: Refuse) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    (tmp_path / "net.onnx").write_bytes(onnx_bytes())
    for estimator in ("taylor", "radius_attack"):
        spec = write(
            tmp_path, digits(limit=4, model={"path": "net.onnx"}, estimators=["mc", estimator])
        )
        refuse("estimate", spec)
    spec = write(tmp_path, digits(model={"path": "net.onnx"}))
    refuse("estimate", spec, "--set", "run.precision=bf16")
