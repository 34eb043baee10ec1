"""Images prepared otherwise than the model needs them: named, and explained where it costs
accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import robaudit
from robaudit.auditing.checks import check_input
from robaudit.auditing.preparations import overridden, preparations
from robaudit.datasets.digits import DigitsSpec
from robaudit.datasets.open_dataset import open_dataset
from robaudit.errors import RobauditWarning
from robaudit.models.load_model import from_module
from robaudit.models.pretrained import filled
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import load_spec
from tests.conftest import RunCli
from tests.specs import digits, read_info, write
from tests.unit.api.nets import arrays, network

CFG = {
    "input_size": [3, 32, 32],
    "mean": [0.2, 0.2, 0.2],
    "std": [0.5, 0.5, 0.5],
    "interpolation": "bilinear",
    "crop_pct": 0.8,
}
CONFIG = {
    "architecture": "resnet18",
    "num_classes": 3,
    "label_names": ["0", "1", "2"],
    "pretrained_cfg": CFG,
}
CODE = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return -100 * (x.mean((1, 2, 3))[:, None] - torch.tensor([0.3, 0.5, 0.7])).square()
"""


class Brightness(nn.Module):
    """Three classes by the mean of the normalised pixels, which fits images of any size."""

    def __init__(self, centres: tuple[float, ...] = (0.3, 0.5, 0.7)) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.tensor(centres))

    def forward(self, x: Tensor) -> Tensor:
        return -100 * (x.mean((1, 2, 3))[:, None] - self.centres).square()


def draw(folder: Path, count: int, width: int = 40) -> None:
    """Images of 40 pixels by class, whose brightness shows in the centre; around it are strips of
    any brightness."""
    random = np.random.default_rng(0)
    for number in range(count):
        pixels = np.full((40, width), random.integers(0, 2) * 255, np.uint8)
        pixels[4:-4, 4:-4] = (77, 128, 178)[number % 3]
        place = folder / f"images/{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).convert("RGB").save(place / f"{number:02}.png")


def spec(folder: Path, more: str = "", model: str = "path: net") -> AuditSpec:
    (folder / "net").mkdir(exist_ok=True)
    (folder / "net/config.json").write_text(json.dumps(CONFIG))
    text = (
        f"model: {{{model}}}\ndataset: {{kind: images, path: images{more}}}\nnoise: {{sigma: "
        "0.05}\n"
    )
    return filled(load_spec(folder / "spec.yaml", text=text))


def warnings_of(asked: AuditSpec, centres: tuple[float, ...]) -> list[str]:
    """Those of the check of the accuracy."""
    model = from_module(Brightness(centres), mean=asked.model.mean, std=asked.model.std, name="net")
    data = open_dataset(asked.dataset, base_dir=asked.base_dir, trust=False)

    def prepared(shape: Any) -> Any:
        return preparations(asked, shape, trust=False, in_memory=False)

    return list(
        check_input(model, data, gradients=False, skip_bad=False, prepared=prepared).warnings
    )


@pytest.mark.parametrize(
    ("more", "model", "says"),
    [
        ("", "", ""),
        (
            ", resize: 40, crop: [32, 32], interpolation: bilinear",
            ", mean: 0.2, std: 0.5",
            "",
        ),  # as it is
        (
            ", resize: 20, crop: 16",
            "",
            "resize: 40, crop: 32, but the spec has resize: 20, crop: 16",
        ),
        (
            ", resize: [32, 32]",
            "",
            "resize: 40, crop: 32, but the spec has resize: [32, 32], no crop",
        ),
        (
            ", interpolation: lanczos",
            "",
            "interpolation: bilinear, but the spec has interpolation: lanczos",
        ),
        (
            "",
            ", mean: 0.5, std: 0.5",
            "mean: [0.2, 0.2, 0.2], std: [0.5, 0.5, 0.5], but the spec has mean: [0.5], std: [0.5]",
        ),
    ],
)
def test_what_overrides_the_models_own_file_is_named(
    tmp_path: Path, more: str, model: str, says: str
) -> None:
    pytest.importorskip("timm")
    asked = spec(tmp_path, more, f"path: net{model}")
    line = f"net/config.json: the model's own preprocessing has {says}"
    assert list(overridden(asked)) == ([line] if says else [])


def test_an_architecture_says_nothing_about_weights_of_its_own(tmp_path: Path) -> None:
    """Who trains an architecture anew may prepare images otherwise."""
    pytest.importorskip("timm")
    asked = spec(
        tmp_path,
        ", resize: 32",
        "path: best.safetensors, architecture: 'timm:test_resnet', mean: 0.1, std: 0.2",
    )
    assert list(overridden(asked)) == []


@pytest.mark.parametrize("more", [", resize: 40", ", resize: [32, 32]"])
def test_the_models_own_preparation_is_tried(tmp_path: Path, more: str) -> None:
    pytest.importorskip("timm")
    draw(tmp_path, 60)
    centres = tuple((value - 0.2) / 0.5 for value in (0.3, 0.5, 0.7))
    assert warnings_of(spec(tmp_path), centres) == []
    (line,) = warnings_of(spec(tmp_path, more), centres)
    assert "% on 60 images, but 100.0% with resize: 40, crop: 32 (net/config.json)" in line


def test_usual_preparations_are_tried_without_a_file_of_the_model(
    tmp_path: Path, run_cli: RunCli
) -> None:
    draw(tmp_path, 60, width=80)
    (tmp_path / "net.py").write_text(CODE)
    dataset = {"kind": "images", "path": "images", "resize": [40, 40], "limit": 5}
    path = write(
        tmp_path, digits(model={"format": "python", "architecture": "net:Net"}, dataset=dataset)
    )
    assert run_cli("estimate", path, "--out", "run", "--trust").code == 0
    (line,) = read_info(tmp_path / "run")["warnings"]
    assert line.startswith("net:Net: clean accuracy is ")
    assert "% on 60 images, but 100.0% with resize: 46, crop: [40, 40]" in line
    assert run_cli("gate", "run", "warnings <= 0").code == 1


def test_the_check_sees_more_images_than_the_run(tmp_path: Path, run_cli: RunCli) -> None:
    """From the command line and from Python."""
    path = write(tmp_path, digits(limit=5))
    assert (
        run_cli(
            "estimate",
            path,
            "--out",
            "run",
            "--set",
            "model.mean=[0.8]",
            "--set",
            "model.std=[0.1]",
        ).code
        == 0
    )
    (line,) = read_info(tmp_path / "run")["warnings"]
    assert " on 256 images, but " in line
    same = DigitsSpec(kind="digits").open(tmp_path, trust=False)
    with pytest.warns(RobauditWarning, match=" on 256 images, but "):
        run = robaudit.audit(
            network(), same, sigma=0.2, estimators="softmax", limit=5, mean=[0.8], std=[0.1]
        )
    assert [text.partition(": ")[2] for text in run.info.warnings] == [line.partition(": ")[2]]
    assert len(run.rows) == 5
    assert run_cli("estimate", path, "--out", "right").code == 0
    assert read_info(tmp_path / "right")["warnings"] == []


def test_other_samples_are_no_concern_of_a_run() -> None:
    pixels, labels = arrays(40)
    images = pixels.astype(np.float64) / 255
    images[20:] = np.nan
    run = robaudit.audit(
        network(), (images, [*labels[:30], *[77] * 10]), sigma=0.2, estimators="softmax", limit=5
    )
    assert run.info.warnings == []


def test_the_normalisation_of_timm_is_tried_in_memory(tmp_path: Path) -> None:
    """As a file of the model would be on the command line."""
    net = Brightness(tuple((value - 0.1) / 0.05 for value in (0.3, 0.5, 0.7)))
    net.pretrained_cfg = {"mean": (0.1,) * 3, "std": (0.05,) * 3}  # type: ignore[assignment]  # as timm.create_model sets it
    images = torch.tensor([0.3, 0.5, 0.7]).repeat(20)[:, None, None, None].expand(-1, 3, 8, 8)
    data = images, torch.arange(3).repeat(20)
    text = (
        r"% on 60 images, but 100\.0% with mean: \[0\.1, 0\.1, 0\.1\], std: \[0\.05, 0\.05, "
        r"0\.05\] \(its timm configuration\)"
    )
    with pytest.warns(RobauditWarning, match=text):
        robaudit.audit(net, data, sigma=0.1, estimators="softmax", mean=0.5, std=0.5)


def test_the_configuration_of_timm_is_compared_whatever_the_accuracy() -> None:
    """Where every image is right, no correction can gain anything."""
    net = Brightness()
    net.pretrained_cfg = {  # type: ignore[assignment]  # as timm.create_model sets it
        "mean": (0.1,) * 3,
        "std": (0.05,) * 3,
        "input_size": (3, 16, 16),
    }
    images = torch.tensor([0.3, 0.5, 0.7]).repeat(20)[:, None, None, None].expand(-1, 3, 8, 8)
    with pytest.warns(RobauditWarning, match="configuration"):
        run = robaudit.audit(
            net, (images, torch.arange(3).repeat(20)), sigma=0.1, estimators="softmax"
        )
    size, normalisation = run.info.warnings
    assert size.endswith("is for images of 3 x 16 x 16, and these are 3 x 8 x 8")
    assert "no mean and std are applied, but its timm configuration has mean" in normalisation


@pytest.mark.parametrize("mean", [0.2, 0.4])
def test_a_file_of_another_format_is_compared_with_what_lies_beside_it(
    mean: float, tmp_path: Path
) -> None:
    model = f"path: net/net.onnx, mean: {mean}, std: 0.5"
    found = spec(tmp_path, ", resize: 40, crop: 32", model)
    assert found.origin.taken == ()
    says = "net/config.json: the model's own preprocessing has mean: [0.2, 0.2, 0.2]"
    assert [line.startswith(says) for line in overridden(found)] == [True] * (mean != 0.2)


def test_another_architecture_than_the_folder_s(tmp_path: Path) -> None:
    found = spec(tmp_path, model="path: net, architecture: 'timm:resnet34'")
    (line,) = overridden(found)
    assert line == (
        "net/config.json: describes timm:resnet18, but the spec has architecture: timm:resnet34"
    )
