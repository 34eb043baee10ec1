"""Models of timm, saved as timm saves them, give timm's own logits: its preprocessing included."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from robaudit.datasets.decode import file_pixels
from robaudit.errors import RobauditError
from robaudit.models.pretrained import describe
from robaudit.spec.class_names import imagenet_names
from robaudit.spec.model import ImageOptions, ModelSpec
from tests.golden import Golden
from tests.unit.models.conftest import refusal
from tests.unit.models.pictures import CLASSES, audited, difference, draw, files, spec_of

timm = pytest.importorskip("timm")
TOLERANCE = 1e-5  # of the largest logit
MODELS: dict[str, dict[str, Any]] = {
    "test_resnet": {},
    "test_vit": {"img_size": 64},
    "test_convnext": {},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and with the models in folders as timm writes them for the Hub."""
    folder = tmp_path_factory.mktemp("timm")
    draw(folder / "images")
    for number, (name, options) in enumerate(MODELS.items()):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            network = timm.create_model(name, num_classes=3, **options)
        labels = {"label_names": list(CLASSES)}
        size = {"img_size": 64, "crop_pct": 0.9}
        timm.models.save_for_hf(
            network,
            folder / name,
            safe_serialization=number != 1,
            model_config=labels,
            data_config=size,
        )
    return folder


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_logits_of_timm(home: Path, name: str) -> None:
    theirs = timm.create_model(f"local-dir:{home / name}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(theirs))
    inputs = torch.stack(
        [transform(Image.open(path).convert("RGB")) for path in files(home / "images")]
    )
    with torch.inference_mode():
        wanted = theirs(inputs)
    pixels, logits, labels = audited(spec_of(home, f"path: {name}"))
    assert pixels.shape[1:] == (3, 64, 64)
    assert labels == [0, 0, 1, 1, 2, 2]
    assert difference(logits, wanted) <= TOLERANCE
    assert wanted.std() > 100 * TOLERANCE * wanted.abs().max()  # else any network would do


@pytest.mark.parametrize(
    ("mode", "size", "share", "interpolation"),
    [
        ("center", (3, 40, 40), 0.875, "bicubic"),
        ("center", (3, 49, 49), 1.0, "bilinear"),
        ("center", (3, 57, 57), 0.95, "nearest"),
        ("squash", (3, 40, 40), 0.875, "lanczos"),
        ("squash", (3, 32, 48), 0.9, "bicubic"),
    ],
)
def test_the_pixels_of_timm(
    tmp_path: Path, mode: str, size: tuple[int, int, int], share: float, interpolation: str
) -> None:
    """To the last bit."""
    cfg = {
        "input_size": size,
        "crop_pct": share,
        "crop_mode": mode,
        "interpolation": interpolation,
        "mean": [0.4, 0.5, 0.6],
    }
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "resnet18", "num_classes": 3, "pretrained_cfg": cfg})
    )
    about = describe(ModelSpec(path="."), tmp_path)
    assert about is not None
    options = ImageOptions(
        kind="images",
        **{key: value for key, value in about.input.items() if key not in ("mean", "std")},
    )
    transform = timm.data.create_transform(
        input_size=size,
        crop_pct=share,
        crop_mode=mode,
        interpolation=interpolation,
        mean=(0.4, 0.5, 0.6),
        normalize=False,
    )
    for path in files(draw(tmp_path / "images")):
        wanted = transform(Image.open(path).convert("RGB"))
        found = file_pixels(path.name, path.name, path.parent, path.parent.resolve(), options)
        assert torch.equal((found * 255).round().to(torch.uint8), wanted)


def test_a_name_alone_takes_the_entry_of_timm(home: Path) -> None:
    save_file(
        timm.create_model("test_resnet", num_classes=3).state_dict(), home / "net.safetensors"
    )
    spec = spec_of(
        home,
        "path: net.safetensors, architecture: 'timm:test_resnet', architecture_options: "
        "{num_classes: 3}",
    )
    assert spec.model.mean == (0.5, 0.5, 0.5)
    assert spec.dataset.model_dump(include={"resize", "crop", "interpolation"}) == {
        "resize": 168,
        "crop": 160,
        "interpolation": "bilinear",
    }
    assert spec.dataset.class_names is None  # three classes of the user's, not ImageNet's
    assert spec.origin.taken[0].startswith(
        "from timm's entry for test_resnet.r160_in1k: mean 0.5 0.5 0.5; "
    )
    whole = describe(ModelSpec(path="net.onnx", architecture="timm:resnet18"), home)
    three = describe(
        ModelSpec(
            path="net.onnx", architecture="timm:resnet18", architecture_options={"num_classes": 3}
        ),
        home,
    )
    assert whole is not None
    assert three is not None
    assert whole.classes["class_names"][0] == "tench, Tinca tinca"
    assert not three.classes


def test_imagenet_by_synset(home: Path) -> None:
    """Ten of ImageNet's thousand classes: folders with synsets or with names find their indices,
    and two cranes stay apart."""
    names, synsets = imagenet_names().values()
    assert len(set(names)) == len(set(synsets)) == 1000
    folders = (synsets[1], "crane (n03126707)", "red fox")
    draw(home / "some", folders)
    save_file(timm.create_model("test_resnet").state_dict(), home / "thousand.safetensors")
    spec = spec_of(
        home,
        "path: thousand.safetensors, architecture: 'timm:test_resnet'",
        "kind: images, path: some, resize: 32, crop: 32",
    )
    _, logits, labels = audited(spec)
    assert logits.shape[1] == 1000
    assert sorted(set(labels), key=str) == [1, 277, 517]


@pytest.mark.parametrize(
    "fields",
    [
        {"architecture": "timm:resnet81"},
        {"architecture": "timm:resnet18.a9_in1k"},
        {"architecture": "resnet18"},
        {"architecture": "timm:test_resnet"},
        {"architecture": "timm:resnet18", "architecture_options": {"pretrained": True}},
        {"architecture": "timm:resnet18", "architecture_options": {"num_class": 3}},
        {"architecture": "timm:local-dir:/tmp"},
    ],
)
def test_names_and_options_that_are_wrong(
    home: Path, fields: dict[str, Any], golden: Golden
) -> None:
    golden(refusal(home / "test_resnet" / "model.safetensors", **fields))


def test_without_timm(home: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "timm.data", None)
    with pytest.raises(RobauditError) as caught:
        spec_of(home, "path: test_resnet")
    golden(caught.value)


def test_saved_by_the_wrapper_of_transformers(home: Path, tmp_path: Path) -> None:
    """The class of Transformers for timm's models writes timm's configuration, and in some versions
    a prefix before every key."""
    (tmp_path / "net").mkdir()
    (tmp_path / "images").symlink_to(home / "images")
    config = json.loads((home / "test_resnet" / "config.json").read_text())
    config |= {
        "model_type": "timm_wrapper",
        "architectures": ["TimmWrapperForImageClassification"],
        "model_args": None,
    }
    (tmp_path / "net" / "config.json").write_text(json.dumps(config))
    tensors = load_file(home / "test_resnet" / "model.safetensors")
    save_file(
        {f"timm_model.{key}": tensor for key, tensor in tensors.items()},
        tmp_path / "net" / "model.safetensors",
    )
    assert torch.equal(
        audited(spec_of(tmp_path, "path: net"))[1], audited(spec_of(home, "path: test_resnet"))[1]
    )
