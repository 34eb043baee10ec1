"""torchvision's weights by name: the transforms and the class names of the enum, with a file from disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from PIL import Image
from torchvision import models

from robaudit.errors import ModelError, SpecError
from robaudit.models.pretrained import Pretrained, describe, name_of_file
from robaudit.models.transforms import Translation
from robaudit.spec.load import load_spec
from robaudit.spec.model import ModelSpec
from tests.conftest import RunCli
from tests.unit.models.conftest import load
from tests.unit.models.pictures import audited, difference, draw, files, spec_of

TOLERANCE = 1e-5  # of the largest logit
FOLDERS = ("tench", "Golden Retriever", "crane bird")
NAMED = "path: net.pth, weights: ResNet18_Weights.IMAGENET1K_V1"


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
        wanted = theirs(torch.stack([transform(Image.open(path).convert("RGB")) for path in files(home / "images")]))
    spec = spec_of(home, NAMED)
    pixels, logits, labels = audited(spec)
    assert pixels.shape[1:] == (3, 224, 224)
    assert difference(logits, wanted) <= TOLERANCE
    assert sorted(set(labels), key=str) == [0, 134, 207]
    assert spec.dataset.class_names == tuple(models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
    assert spec.origin.taken[0].startswith("from weights ResNet18_Weights.IMAGENET1K_V1: torchvision:resnet18; mean 0.485 0.456 0.406; ")
    assert (
        "resize 256; crop 224; interpolation bilinear; channels 3; 1,000 class names (tench, goldfish, great white shark, ...)"
        in spec.origin.taken[0]
    )


def from_weights(name: str) -> Pretrained:
    found = describe(ModelSpec(weights=name, download=True), Path())
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name", ["EfficientNet_B0_Weights.IMAGENET1K_V1", "ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1", "Swin_T_Weights.DEFAULT"]
)
def test_the_transforms_of_other_weights(name: str) -> None:
    about = from_weights(name)
    transform = models.get_weight(name).transforms()
    assert isinstance(about.input, Translation)
    images = about.input.images
    assert (images["resize"], images["crop"]) == (transform.resize_size[0], transform.crop_size[0])
    assert images["interpolation"] == transform.interpolation.value
    assert about.options == ({"image_size": 384} if name.startswith("ViT") else {})


def test_what_the_builders_change_for_trained_weights(home: Path) -> None:
    """GoogLeNet's and Inception's weights expect another normalisation, which the network itself makes."""
    assert from_weights("GoogLeNet_Weights.IMAGENET1K_V1").options == {"transform_input": True}
    assert from_weights("Inception_V3_Weights.IMAGENET1K_V1").options == {"transform_input": True}
    state = {key: tensor for key, tensor in models.densenet121().state_dict().items() if not key.endswith("num_batches_tracked")}
    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", key): tensor for key, tensor in state.items()}
    torch.save(old, home / "densenet.pth")
    model = load(home / "densenet.pth", architecture="torchvision:densenet121")
    assert any("first densenets" in note for note in model.notes)


def test_what_the_spec_says_stays(home: Path) -> None:
    spec = spec_of(home, f"{NAMED}, mean: [0.5], std: [0.25]", "kind: images, path: images, resize: 64, class_names: null")
    assert spec.model.mean == (0.5,)
    assert spec.dataset.model_dump(include={"resize", "crop", "class_names", "interpolation"}) == {
        "resize": 64,
        "crop": None,
        "class_names": None,
        "interpolation": "bilinear",
    }
    assert spec.origin.taken[0] == "from weights ResNet18_Weights.IMAGENET1K_V1: torchvision:resnet18; interpolation bilinear; channels 3"


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("path: net.pth, weights: ResNet18_Weights.IMAGENET1K_V2", "did you mean 'ResNet18_Weights.IMAGENET1K_V1'?"),
        (
            "path: net.pth, weights: ResNet81_Weights.DEFAULT",
            "weights ResNet81_Weights.DEFAULT: torchvision has no such weights; did you mean",
        ),
        ("path: net.pth, weights: FCN_ResNet50_Weights.DEFAULT", "torchvision has no such weights"),
        ("weights: ResNet18_Weights.DEFAULT", "needs a path: the file of the weights; or download: true, and torchvision fetches it"),
        ("path: net.pth, download: true", "download needs weights, torchvision's name"),
        ("path: net.pth, weights: ResNet18_Weights.DEFAULT, download: true", "download is for weights without a path"),
        ("path: net.pth, revision: main", "revision is for a path such as hf:org/name"),
    ],
)
def test_weights_that_are_refused(home: Path, model: str, says: str) -> None:
    with pytest.raises((ModelError, SpecError)) as caught:
        spec_of(home, model)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fetching(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is asked for; into torch's own cache, and from there the next time; without a network one line says so."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    asked: list[str] = []

    def fails(url: str, *_: Any, **__: Any) -> None:
        asked.append(url)
        raise URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fails)
    spec = spec_of(home, "weights: ResNet18_Weights.IMAGENET1K_V1, download: true")
    assert not asked
    with pytest.raises(
        ModelError, match=r"cannot be fetched from https://download\.pytorch\.org/models/resnet18-f37072fd\.pth \(.*no network"
    ):
        audited(spec)

    def fetches(url: str, to: str, prefix: str | None, **_: Any) -> None:
        asked.append(url)
        assert prefix == "f37072fd"
        Path(to).write_bytes((home / "net.pth").read_bytes())

    monkeypatch.setattr(torch.hub, "download_url_to_file", fetches)
    _, logits, _ = audited(spec)
    assert torch.equal(logits, audited(spec_of(home, NAMED))[1])
    audited(spec)
    assert len(asked) == 2


def test_init_knows_the_files_of_torchvision_by_their_names(home: Path, tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "images").symlink_to(home / "images")
    (tmp_path / "resnet18-f37072fd.pth").symlink_to(home / "net.pth")
    code, _, err = run_cli("init", "--model", "resnet18-f37072fd.pth", "--data", "images")
    assert code == 0, err
    text = (tmp_path / "audit.yaml").read_text()
    assert 'weights: "ResNet18_Weights.IMAGENET1K_V1"' in text
    code, _, err = run_cli("init", "none.yaml", "--model", "resnet18-f37072fd.pth", "--data", "images", "--normalise", "none")
    assert code == 0, err
    assert load_spec(tmp_path / "none.yaml").model.mean == ()
    assert name_of_file("resnet18-00000000.pth") is None
