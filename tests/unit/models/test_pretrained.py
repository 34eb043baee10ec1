"""A spec's missing keys from the model's own files."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from robaudit.errors import ModelError, RobauditError
from robaudit.models.pretrained import filled
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import load_spec
from tests.golden import Golden
from tests.specs import located

pytest.importorskip("timm")
pytest.importorskip("transformers")
CFG = {
    "input_size": [3, 32, 32],
    "mean": [0.1, 0.2, 0.3],
    "std": [0.4, 0.5, 0.6],
    "interpolation": "bilinear",
    "crop_pct": 0.8,
}


def model(folder: Path, **entries: Any) -> Path:
    """The configuration of a model of timm with three classes, in a folder."""
    config = {
        "architecture": "resnet18",
        "num_classes": 3,
        "label_names": ["cat", "dog", "owl"],
        "pretrained_cfg": CFG,
        **entries,
    }
    (folder / "net").mkdir(exist_ok=True)
    (folder / "net" / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None})
    )
    return folder / "net" / "config.json"


def spec(
    folder: Path, dataset: str = "kind: images, path: images", more: str = "", **settings: str
) -> AuditSpec:
    text = f"model: {{path: net{more}}}\ndataset: {{{dataset}}}\nnoise: {{sigma: 0.05}}\n"
    return filled(
        load_spec(
            folder / "spec.yaml",
            text=text,
            settings=[f"{key}={value}" for key, value in settings.items()],
        )
    )


def test_a_network_without_a_classifier(tmp_path: Path, golden: Golden) -> None:
    """timm's models of features (DINOv2, CLIP's towers) have no classes."""
    for entries in (
        {"num_classes": 0},
        {"num_classes": None, "pretrained_cfg": {**CFG, "num_classes": 0}},
    ):
        model(tmp_path, label_names=None, **entries)
        with pytest.raises(ModelError) as caught:
            spec(tmp_path)
        golden(caught.value)


def test_a_configuration_without_end(tmp_path: Path, golden: Golden) -> None:
    model(tmp_path).write_text("[" * 200_000)
    with pytest.raises(ModelError) as caught:
        spec(tmp_path)
    golden(caught.value)


@pytest.mark.parametrize("kind", ["images", "hf", "csv"])
def test_everything_that_is_left_out(tmp_path: Path, kind: str) -> None:
    model(tmp_path)
    found = spec(tmp_path, f"kind: {kind}, path: data")
    assert found.model.architecture == "timm:resnet18"
    assert found.model.architecture_options == {"num_classes": 3}
    assert (found.model.mean, found.model.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    wanted = {
        "class_names": ("cat", "dog", "owl"),
        "resize": 40,
        "interpolation": "bilinear",
        "crop": 32,
        "crop_rounding": "round",
        "channels": 3,
    }
    assert found.dataset.model_dump(include=set(wanted)) == wanted
    assert found.base_dir == tmp_path
    assert found.stem == "spec"
    assert found.origin.lines


def test_twice_is_once(tmp_path: Path) -> None:
    """A spec as run.json keeps it changes no more, whatever becomes of the model's files."""
    path = model(tmp_path)
    first = spec(tmp_path)
    assert filled(first) is first
    again = located(first.document(), first.base_dir, first.stem)
    path.write_text(
        json.dumps({"architecture": "resnet50", "num_classes": 5, "pretrained_cfg": {}})
    )
    assert filled(again).document() == first.document()


@pytest.mark.parametrize(
    ("setting", "kept", "taken"),
    [
        ({"model.mean": "[0.5]"}, {"mean": (0.5,), "std": ()}, {"resize": 40}),
        ({"model.mean": "[]"}, {"mean": (), "std": ()}, {"crop": 32}),
        (
            {"dataset.resize": "64"},
            {"resize": 64, "crop": None},
            {"interpolation": "bilinear", "mean": (0.1, 0.2, 0.3)},
        ),
        ({"dataset.crop": "null"}, {"resize": None, "crop": None}, {"channels": 3}),
        (
            {"dataset.interpolation": "lanczos"},
            {"interpolation": "lanczos"},
            {"resize": 40, "crop": 32},
        ),
        ({"dataset.class_names": "[a, b, c]"}, {"class_names": ("a", "b", "c")}, {"resize": 40}),
        ({"dataset.class_names": "null"}, {"class_names": None}, {"resize": 40}),
        (
            {"model.architecture_options": "{drop_rate: 0.1}"},
            {"architecture_options": {"drop_rate": 0.1, "num_classes": 3}},
            {},
        ),
        (
            {"model.architecture": "timm:resnet34"},
            {"architecture": "timm:resnet34", "architecture_options": {}},
            {"crop": 32},
        ),
    ],
)
def test_what_the_spec_says_stays(
    tmp_path: Path, setting: dict[str, str], kept: dict[str, Any], taken: dict[str, Any]
) -> None:
    model(tmp_path)
    found = spec(tmp_path, **setting)
    values = {**found.model.model_dump(), **found.dataset.model_dump()}
    assert {key: values[key] for key in {**kept, **taken}} == {**kept, **taken}


def test_data_that_are_no_image_files(tmp_path: Path) -> None:
    """An array gets the names, and a line on the size; what has names of its own keeps them."""
    model(tmp_path)
    found = spec(tmp_path, "kind: npz, path: a.npz")
    assert found.dataset.class_names == ("cat", "dog", "owl")
    assert found.origin.taken[0].endswith(
        "3 class names (cat, dog, owl); made for images of 32 x 32, which the data must have "
        "already"
    )
    assert spec(tmp_path, "kind: digits").dataset.class_names is None
    torchvision = spec(tmp_path, "kind: torchvision, name: CIFAR10, root: data").dataset
    assert torchvision.class_names is None
    assert torchvision.model_dump(include={"resize", "crop", "channels"}) == {
        "resize": 40,
        "crop": 32,
        "channels": None,
    }


@pytest.mark.parametrize(
    ("path", "architecture", "counts"),
    [
        ("net/model.safetensors", None, True),
        ("net/model.safetensors", "timm:resnet18", True),
        ("net/model.safetensors", "torchvision:resnet18", False),
        ("net/model.pt", None, False),  # TorchScript, perhaps, and its normalisation may be inside
        ("net/none.safetensors", None, False),
    ],
)
def test_files_beside_a_configuration(
    tmp_path: Path, path: str, architecture: str | None, counts: bool
) -> None:
    model(tmp_path)
    for name in ("model.safetensors", "model.pt"):
        save_file({"weight": torch.zeros(1)}, tmp_path / "net" / name)
    given = {"path": path, **({} if architecture is None else {"architecture": architecture})}
    text = f"model: {json.dumps(given)}\ndataset: {{kind: digits}}\nnoise: {{sigma: 0.05}}\n"
    assert bool(filled(load_spec(tmp_path / "spec.yaml", text=text)).model.mean) == counts


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["0", "1e5", "ViTForImageClassification"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["0", "1", "height", "width", "shortest_edge", "x"]), inner
        )
    ),
    max_leaves=8,
)
TIMM_KEYS = (
    "architecture",
    "num_classes",
    "label_names",
    "label_descriptions",
    "model_args",
    "pretrained_cfg",
    "quantization_config",
)
CFG_KEYS = (
    "input_size",
    "mean",
    "std",
    "crop_pct",
    "crop_mode",
    "interpolation",
    "tag",
    "fixed_input_size",
    "num_classes",
)
CONFIG_KEYS = ("architectures", "model_type", "id2label", "num_channels")
IMAGE_KEYS = (
    "image_processor_type",
    "size",
    "crop_size",
    "resample",
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "rescale_factor",
)
MORE_KEYS = (
    "image_mean",
    "image_std",
    "do_normalize",
    "crop_pct",
    "rescale_offset",
    "include_top",
    "do_pad",
)
KINDS = st.sampled_from(
    [
        f"{name}ImageProcessor"
        for name in ("ViT", "ConvNext", "Levit", "PoolFormer", "EfficientNet", "CLIP")
    ]
)


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.sampled_from(TIMM_KEYS), JSON),
    st.dictionaries(st.sampled_from(CFG_KEYS), JSON),
)
def test_any_configuration_of_timm(change: dict[str, Any], cfg: dict[str, Any]) -> None:
    """It fills in the spec, or is refused in one line."""
    config = {
        "architecture": "resnet18",
        "num_classes": 3,
        "pretrained_cfg": {**CFG, **cfg},
        **change,
    }
    fills_or_is_refused({"config.json": config})


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.sampled_from(CONFIG_KEYS), JSON),
    KINDS,
    st.dictionaries(st.sampled_from((*IMAGE_KEYS, *MORE_KEYS)), JSON),
)
def test_any_configuration_of_transformers(
    change: dict[str, Any], kind: str, images: dict[str, Any]
) -> None:
    config = {"model_type": "vit", "architectures": ["ViTForImageClassification"], **change}
    fills_or_is_refused(
        {
            "config.json": config,
            "preprocessor_config.json": {"image_processor_type": kind, **images},
        }
    )


def fills_or_is_refused(files: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net").mkdir()
        for file, content in files.items():
            (folder / "net" / file).write_text(json.dumps(content))
        with contextlib.suppress(RobauditError):  # whose text is one line
            found = spec(folder)
            assert (
                AuditSpec.model_validate(json.loads(json.dumps(found.document()))).document()
                == found.document()
            )
