"""torchvision's architectures with the tag of their weights: the transforms and the class names of
the enum, with a file from disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision import models

from robaudit.models.pretrained import Pretrained, describe
from robaudit.spec.model import ModelSpec
from tests.golden import Golden
from tests.unit.models.conftest import load, refusal
from tests.unit.models.pictures import audited, difference, draw, files, spec_of

TOLERANCE = 1e-5  # of the largest logit
FOLDERS = ("tench", "Golden Retriever", "crane bird")
NAMED = "path: net.pth, architecture: 'torchvision:resnet18.IMAGENET1K_V1'"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and with the file of a random network."""
    folder = tmp_path_factory.mktemp("torchvision")
    draw(folder / "images", FOLDERS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(models.resnet18().state_dict(), folder / "net.pth")
    return folder


def test_the_logits_of_torchvision(home: Path) -> None:
    theirs = models.resnet18().eval()
    theirs.load_state_dict(torch.load(home / "net.pth"))
    transform = models.ResNet18_Weights.IMAGENET1K_V1.transforms()
    with torch.inference_mode():
        wanted = theirs(
            torch.stack(
                [transform(Image.open(path).convert("RGB")) for path in files(home / "images")]
            )
        )
    spec = spec_of(home, NAMED)
    pixels, logits, labels = audited(spec)
    assert pixels.shape[1:] == (3, 224, 224)
    assert difference(logits, wanted) <= TOLERANCE
    assert sorted(set(labels), key=str) == [0, 134, 207]
    assert spec.dataset.class_names == tuple(
        models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"]
    )
    assert spec.origin.taken == (
        "from torchvision's entry for resnet18.IMAGENET1K_V1: mean 0.485 0.456 0.406; std 0.229 "
        "0.224 0.225; resize 256; crop 224; "
        "interpolation bilinear; channels 3; 1,000 class names (tench, goldfish, great white "
        "shark, ...)",
    )


def of_name(name: str) -> Pretrained:
    found = describe(ModelSpec(path="net.pth", architecture=f"torchvision:{name}"), Path())
    assert found is not None
    return found


def test_the_transforms_of_other_weights() -> None:
    about = of_name("vit_b_16.IMAGENET1K_SWAG_E2E_V1")
    transform = models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1.transforms()
    assert (about.input["resize"], about.input["crop"]) == (
        transform.resize_size[0],
        transform.crop_size[0],
    )
    assert about.input["interpolation"] == transform.interpolation.value
    assert about.options == {"image_size": 384}


def test_what_the_builders_change_for_trained_weights() -> None:
    """GoogLeNet's and Inception's weights expect another normalisation, which the network itself
    makes."""
    assert of_name("googlenet.IMAGENET1K_V1").options == {"transform_input": True}
    assert of_name("inception_v3.IMAGENET1K_V1").options == {"transform_input": True}


def test_the_names_of_the_first_densenets(tmp_path: Path) -> None:
    state = {
        key: tensor
        for key, tensor in models.densenet121().state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    old = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", key): tensor
        for key, tensor in state.items()
    }
    torch.save(old, tmp_path / "densenet.pth")
    model = load(tmp_path / "densenet.pth", architecture="torchvision:densenet121")
    assert any("first densenets" in note for note in model.notes)


@pytest.mark.parametrize("name", ["resnet18.IMAGENET1K_V2", "resnet18.DEFAULTS"])
def test_weights_that_torchvision_does_not_have(home: Path, name: str, golden: Golden) -> None:
    golden(refusal(home / "net.pth", architecture=f"torchvision:{name}"))
