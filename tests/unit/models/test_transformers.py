"""Image classifiers of Transformers, saved by the library, give the library's own logits: its
preprocessing included."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import robaudit
from robaudit.datasets.decode import file_pixels
from robaudit.errors import ModelError, RobauditError
from robaudit.models.pretrained import describe
from robaudit.spec.model import ImageOptions, ModelSpec
from tests.golden import Golden
from tests.unit.models.pictures import CLASSES, audited, difference, draw, files, spec_of

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5  # of the largest logit
LABELS: dict[str, Any] = {
    "id2label": dict(enumerate(CLASSES)),
    "label2id": {name: index for index, name in enumerate(CLASSES)},
}


@contextmanager
def silent() -> Iterator[None]:
    """Without the library's progress bars."""
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


def pil_processor(name: str, **options: Any) -> Any:
    """An image processor of the library that works with Pillow."""
    module = {
        "ConvNext": "convnext",
        "PoolFormer": "poolformer",
        "EfficientNet": "efficientnet",
        "MobileNetV2": "mobilenet_v2",
    }
    folder = module.get(name, name.lower())
    found = importlib.import_module(f"transformers.models.{folder}.image_processing_pil_{folder}")
    return getattr(found, f"{name}ImageProcessorPil")(**options)


def networks() -> dict[str, tuple[Any, Any]]:
    """Small networks with random weights, and their image processors."""
    vit = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
        **LABELS,
    )
    resnet = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3, **LABELS
    )
    return {
        "vit": (
            transformers.ViTForImageClassification(vit),
            pil_processor("ViT", size={"height": 32, "width": 32}),
        ),
        "resnet": (
            transformers.ResNetForImageClassification(resnet),
            pil_processor("Bit", size={"shortest_edge": 37}, crop_size={"height": 32, "width": 32}),
        ),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and with the models as ``save_pretrained`` writes them."""
    folder = tmp_path_factory.mktemp("transformers")
    draw(folder / "images")
    with torch.random.fork_rng(devices=[]), silent():
        torch.manual_seed(0)
        for name, (network, processor) in networks().items():
            for tensor in network.parameters():
                torch.nn.init.normal_(tensor, std=0.2)
            network.save_pretrained(folder / name)
            processor.save_pretrained(folder / name)
    return folder


def rgb(folder: Path) -> list[Image.Image]:
    return [Image.open(path).convert("RGB") for path in files(folder)]


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_the_logits_of_transformers(home: Path, name: str) -> None:
    processor = transformers.AutoImageProcessor.from_pretrained(home / name, backend="pil")
    with silent():
        theirs = transformers.AutoModelForImageClassification.from_pretrained(home / name).eval()
    with torch.inference_mode():
        wanted = theirs(**processor(rgb(home / "images"), return_tensors="pt")).logits
    spec = spec_of(home, f"path: {name}")
    _, logits, labels = audited(spec)
    assert labels == [0, 0, 1, 1, 2, 2]
    assert difference(logits, wanted) <= TOLERANCE
    assert wanted.std() > 100 * TOLERANCE * wanted.abs().max()  # else any network would do
    assert spec.dataset.class_names == CLASSES


PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {"size": {"height": 30, "width": 41}, "resample": 3}),
    (
        "ViT",
        {"size": {"height": 32, "width": 32}, "do_normalize": False, "rescale_factor": 1 / 127.5},
    ),
    (
        "ViT",
        {
            "size": {"height": 32, "width": 32},
            "do_rescale": False,
            "image_mean": [120, 121, 122],
            "image_std": [60, 61, 62],
        },
    ),
    ("DeiT", {"size": {"height": 47, "width": 46}, "crop_size": {"height": 32, "width": 31}}),
    (
        "CLIP",
        {"size": {"shortest_edge": 32}, "crop_size": {"height": 29, "width": 29}, "resample": 1},
    ),
    ("ConvNext", {"size": {"shortest_edge": 50}, "crop_pct": 0.9}),
    ("ConvNext", {"size": {"shortest_edge": 384}, "resample": 2}),
    ("MobileNetV2", {"size": {"shortest_edge": 40}, "crop_size": {"height": 33, "width": 33}}),
    (
        "PoolFormer",
        {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, "crop_pct": 0.9},
    ),
    ("Levit", {"size": {"shortest_edge": 35}, "crop_size": {"height": 32, "width": 32}}),
    (
        "EfficientNet",
        {"size": {"height": 28, "width": 28}, "image_std": [0.4, 0.5, 0.6], "rescale_offset": True},
    ),
    ("EfficientNet", {"size": {"height": 28, "width": 28}, "include_top": False, "resample": 0}),
]


@pytest.mark.parametrize(
    ("name", "options"),
    PROCESSORS,
    ids=[f"{name}-{number}" for number, (name, _) in enumerate(PROCESSORS)],
)
def test_the_pixels_of_image_processors(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    """Resize, crop, rescale and normalise as the library's Pillow backend does them, from the file
    that it saves."""
    processor = pil_processor(name, **options)
    processor.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "vit", "architectures": ["ViTForImageClassification"]})
    )
    known = describe(ModelSpec(path="."), tmp_path)
    assert known is not None
    about = known.input
    mean, std = (
        torch.tensor(about.get(key, (default,))).reshape(-1, 1, 1)
        for key, default in (("mean", 0.0), ("std", 1.0))
    )
    for path in files(draw(tmp_path / "images")):
        wanted = np.asarray(processor(Image.open(path).convert("RGB"))["pixel_values"][0])
        how = ImageOptions(
            kind="images",
            **{key: value for key, value in about.items() if key not in ("mean", "std")},
        )
        found = (
            file_pixels(path.name, path.name, path.parent, path.parent.resolve(), how).float()
            - mean
        ) / std
        assert found.shape == wanted.shape
        assert difference(found, torch.tensor(wanted)) <= 1e-6


Change = dict[str, Any]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"architectures": ["ViTModel"]}),
        ("config.json", {"model_type": "vitt"}),
        ("config.json", {"model_type": "beit"}),
        ("config.json", {"num_hidden_layers": 3}),
        ("config.json", {"intermediate_size": 47}),
        ("config.json", {"id2label": {"zero": "cat"}}),
        ("preprocessor_config.json", {"image_processor_type": "MobileViTImageProcessor"}),
        ("preprocessor_config.json", {"size": {"height": 32, "width": 10**6}}),
        ("preprocessor_config.json", {"size": {"longest_edge": 3}}),
    ],
)
def test_folders_that_are_refused(
    home: Path, tmp_path: Path, file: str, change: Change, golden: Golden
) -> None:
    shutil.copytree(home / "vit", tmp_path / "vit")
    path = tmp_path / "vit" / file
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(
        json.dumps({key: value for key, value in {**before, **change}.items() if value is not None})
    )
    (tmp_path / "images").symlink_to(home / "images")
    with pytest.raises(RobauditError) as caught:
        audited(spec_of(tmp_path, "path: vit"))
    golden(caught.value)


def test_code_in_the_folder_never_runs(home: Path, tmp_path: Path, golden: Golden) -> None:
    shutil.copytree(home / "vit", tmp_path / "vit")
    config = json.loads((tmp_path / "vit" / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForImageClassification": "code.Net"},
    }
    (tmp_path / "vit" / "config.json").write_text(json.dumps(config))
    (tmp_path / "vit" / "code.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    with pytest.raises(ModelError) as caught:
        audited(spec_of(tmp_path, "path: vit", "kind: digits"))
    golden(caught.value)
    assert not (tmp_path / "canary").exists()


def test_without_transformers(home: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(RobauditError) as caught:
        spec_of(home, "path: vit")
    golden(caught.value)


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_networks_that_do_not_choose_one_class(
    home: Path, tmp_path: Path, problem: str, golden: Golden
) -> None:
    """From a folder and from memory."""
    shutil.copytree(home / "vit", tmp_path / "vit")
    config = json.loads((tmp_path / "vit/config.json").read_text())
    (tmp_path / "vit/config.json").write_text(json.dumps({**config, "problem_type": problem}))
    with pytest.raises(ModelError) as caught:
        describe(ModelSpec(path="vit"), tmp_path)
    golden(caught.value)
    with silent():
        network = transformers.ViTForImageClassification.from_pretrained(tmp_path / "vit")
    with pytest.raises(ModelError) as caught:
        robaudit.audit(network, torch.rand(2, 3, 32, 32), sigma=0.1, estimators="softmax")
    golden(caught.value)
    network.config.problem_type = "single_label_classification"
    assert (
        len(robaudit.audit(network, torch.rand(2, 3, 32, 32), sigma=0.1, estimators="softmax").rows)
        == 2
    )
