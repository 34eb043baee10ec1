"""torchvision's data sets, offline, from small files in the real formats."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from robaudit.datasets.dataset import Dataset
from robaudit.errors import SampleError
from tests.golden import Golden
from tests.unit.datasets import reading
from tests.unit.datasets.cifar10 import NAMES, write_cifar10

RNG = np.random.default_rng(5)


def opened(folder: Path, name: str, **options: Any) -> Dataset:
    return reading.opened(folder, kind="torchvision", name=name, root="files", **options)


def message(folder: Path, name: str, **options: Any) -> str:
    return reading.refusal(folder, kind="torchvision", name=name, root="files", **options)


def write_mnist(
    folder: Path, part: str, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> None:
    raw = folder / "files" / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    (raw / f"{part}-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, *images.shape) + images.tobytes()
    )
    (raw / f"{part}-labels-idx1-ubyte").write_bytes(
        struct.pack(">II", 0x801, len(labels)) + labels.tobytes()
    )


def test_mnist(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (2, 3, 28, 28), dtype=np.uint8)
    labels = np.array([[3, 1, 4], [1, 5, 9]], np.uint8)
    for part, name in enumerate(("train", "t10k")):
        write_mnist(tmp_path, name, images[part], labels[part])
    for split, part in (("train", 0), ("test", 1)):
        dataset = opened(tmp_path, "MNIST", split=split)
        assert reading.labels(dataset) == labels[part].tolist()
        assert len(dataset.class_names or ()) == 10
        sample = dataset[2]
        assert (sample.id, sample.label) == ("2", labels[part, 2])
        assert sample.pixels.equal(torch.from_numpy(images[part, 2:3]).double() / 255)


def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    images = RNG.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    base = write_cifar10(tmp_path / "files", images, [6, 0, 9, 3], monkeypatch)
    dataset = opened(tmp_path, "CIFAR10")
    assert dataset.class_names == NAMES
    assert dataset[2].label == 9
    assert dataset[2].pixels.equal(torch.from_numpy(images[2]).double() / 255)
    (base / "test_batch").write_bytes(b"damaged")
    golden(message(tmp_path, "CIFAR10"))


def test_image_folder(tmp_path: Path, golden: Golden) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "files" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "files" / name / "a.png")
    dataset = opened(tmp_path, "ImageFolder")
    assert dataset.class_names == ("cat", "dog")
    assert dataset[1].label == 1
    (tmp_path / "files" / "dog" / "a.png").write_bytes(b"junk")
    with pytest.raises(SampleError) as caught:
        dataset[1]
    golden(caught.value)


def test_no_program_is_started_for_postscript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """torchvision's own image folders open any file that Pillow knows: Ghostscript must not be
    asked."""
    (tmp_path / "files" / "0").mkdir(parents=True)
    (tmp_path / "files" / "0" / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n"
    )
    monkeypatch.setattr(
        "subprocess.check_call", lambda *_, **__: pytest.fail("a program was started")
    )
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    with pytest.raises(SampleError) as caught:
        opened(tmp_path, "ImageFolder")[0]
    golden(caught.value)


class Odd:
    """A data set of tensors whose classes have several names."""

    classes = (("tench", "Tinca tinca"), ("goldfish",))

    def __init__(self, root: Path) -> None:
        pass

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> Any:
        return torch.full((1, 4, 4), 51, dtype=torch.uint8), -1


def test_tensors_and_classes_of_several_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(datasets, "Kitti", Odd)
    dataset = opened(tmp_path, "Kitti")
    assert dataset.class_names == ("tench", "goldfish")
    assert dataset[0].label is None
    torch.testing.assert_close(
        dataset[0].pixels, torch.full((1, 4, 4), 0.2, dtype=torch.float64), rtol=0, atol=1e-6
    )
    with pytest.raises(SampleError) as caught:
        opened(tmp_path, "Kitti", resize=4)[0]
    golden(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CIFAR1O", {}),
        ("ImageFolder", {}),
        ("MNIST", {"split": "val"}),
        ("ImageNet", {}),
        ("ImageNet", {"download": True}),
        ("MNIST", {"options": {"transform": 1}}),
        ("STL10", {"options": {"fold": 1}}),
    ],
)
def test_wrong_specs(tmp_path: Path, name: str, options: dict[str, Any], golden: Golden) -> None:
    golden(message(tmp_path, name, **options))


def test_a_failed_download_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """What torchvision prints goes to stderr."""

    def offline(self: datasets.MNIST) -> None:
        print("Downloading ...")  # noqa: T201
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(datasets.MNIST, "download", offline)
    golden(message(tmp_path, "MNIST", download=True))
    assert capsys.readouterr() == ("", "Downloading ...\n")
