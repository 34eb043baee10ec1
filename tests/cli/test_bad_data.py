"""Data that cannot be audited: one line, exit 2, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Refuse
from tests.specs import digits, save_npz, write

RefuseData = Callable[..., str]


@pytest.fixture
def refuse_data(tmp_path: Path, refuse: Refuse) -> RefuseData:
    """Refuse an audit of the embedded network on this data set."""

    def run(*args: str, says: str, code: int = 2, **dataset: Any) -> str:
        return refuse("estimate", write(tmp_path, digits(dataset=dataset)), *args, says=says, code=code)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of ten class folders with one 8 x 8 image each."""
    for number in range(10):
        (tmp_path / "digits" / str(number)).mkdir(parents=True)
        Image.new("L", (8, 8), 20 * number).save(tmp_path / "digits" / str(number) / "0.png")
    return tmp_path / "digits"


def test_missing_npz(tmp_path: Path, refuse_data: RefuseData) -> None:
    save_npz(tmp_path / "cifar10.npz")
    refuse_data(kind="npz", path="cifar.npz", says="cifar.npz: no such file in")
    refuse_data(kind="npz", path="cifar.npz", says="did you mean 'cifar10.npz'?")


@pytest.mark.parametrize("keep", [4, 300])
def test_truncated_npz(keep: int, tmp_path: Path, refuse_data: RefuseData) -> None:
    whole = save_npz(tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(whole[:keep])
    refuse_data(kind="npz", path="x.npz", says="x.npz: is not a .npz file")


KEYS = {
    "images_key": ({"images_key": "image"}, "has no array 'image' (it has: images, labels); set images_key; did you mean 'images'?"),
    "labels_key": ({"labels_key": "targets"}, "has no array 'targets' (it has: images, labels); set labels_key"),
    "layout": ({"layout": "nhw"}, "layout nhw does not fit shape (4, 1, 8, 8); it needs 3 dimensions"),
    "class_names twice": ({"class_names": ["a"] * 10}, "dataset.class_names: 'a' appears twice; names must differ"),
    "too few class_names": ({"class_names": ["a", "b"]}, "sample '3' has the label 3, but class_names has 2 names; add the missing names"),
    "class_names of another count": ({"class_names": list("abcd")}, "has 4 class names, but"),
    "sample of more than there are": ({"sample": {"size": 5}}, "sample.size 5 is larger than the data set (4 samples); at most 4"),
}


@pytest.mark.parametrize(("options", "says"), KEYS.values(), ids=list(KEYS))
def test_npz_option(options: dict[str, Any], says: str, tmp_path: Path, refuse_data: RefuseData) -> None:
    save_npz(tmp_path / "x.npz")
    refuse_data(kind="npz", path="x.npz", **options, says=says)


ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "label out of range": ({"labels": [0, 1, 2, 10]}, "label 10 is out of range:"),
    "negative label": ({"labels": [0, 1, 2, -1]}, "the label of sample 3 is -1; class indices start at 0"),
    "fractional labels": ({"labels": [0.5, 1.0, 2.0, 3.0]}, "labels are of type float64; they must be integers"),
    "fewer labels": ({"labels": [0, 1]}, "there are 4 images: it must be (4,)"),
    "no image": ({"count": 0}, "it holds no images; give at least one image"),
    "no stack of images": ({"shape": (64,)}, "has shape (4, 64); images are (n, c, h, w)"),
    "two layouts": ({"shape": (3, 8, 3)}, "cannot tell the layout of shape (4, 3, 8, 3); set layout: nchw or nhwc"),
    "int32 pixels": ({"images": np.zeros((4, 1, 8, 8), np.int32)}, "is of type int32; set scale"),
    "pickled objects": ({"images": np.array([{}] * 4, dtype=object)}, "Object arrays cannot be loaded when allow_pickle=False"),
    "NaN pixels": ({"images": np.full((4, 1, 8, 8), np.nan)}, "sample 0: 64 of 64 pixels are NaN or infinite"),
}


@pytest.mark.parametrize(("arrays", "says"), ARRAYS.values(), ids=list(ARRAYS))
def test_npz_array(arrays: dict[str, Any], says: str, tmp_path: Path, refuse_data: RefuseData) -> None:
    save_npz(tmp_path / "x.npz", **arrays)
    refuse_data(kind="npz", path="x.npz", says=says)


def test_empty_folder(tmp_path: Path, refuse_data: RefuseData) -> None:
    (tmp_path / "empty").mkdir()
    refuse_data(kind="images", path="empty", says="empty: is an empty folder; give a folder with one folder per class")


def test_unreadable_image_stops(folder: Path, refuse_data: RefuseData) -> None:
    (folder / "4" / "0.png").write_bytes(b"not an image")
    line = refuse_data(kind="images", path="digits", channels=1, says="digits/4/0.png: is not an image that Pillow can read")
    assert line.endswith("or continue without it: robaudit estimate --on-error skip")


def test_fewer_class_folders_than_classes(folder: Path, refuse_data: RefuseData) -> None:
    (folder / "9" / "0.png").unlink()
    (folder / "9").rmdir()
    refuse_data(kind="images", path="digits", channels=1, says="has 9 class names, but")


def test_all_samples_unreadable_is_exit_5(folder: Path, refuse_data: RefuseData) -> None:
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    line = refuse_data("--on-error", "skip", kind="images", path="digits", channels=1, code=5, says="none of its 10 samples can be used")
    assert "the first: digits/0/0.png" in line


LISTS = {
    "no label column": ("file\n0.png\n", "path"),
    "missing image": ("path,label\n0.png,0\nzero.png,1\n", "zero.png: no such file; correct the path or leave it out"),
    "names and numbers": (
        "path,label,id\n0.png,0,a\n0.png,one,b\n",
        "mixes labels that are names ('one', line 3) and numbers ('0', line 2)",
    ),
    "nothing": ("path,label\n", "images.csv"),
    "an image elsewhere": ("path,label\n../0.png,0\n", "../0.png: leads out of the folder of the data; set root to a folder that all"),
    "an absolute path": ("path,label\n/etc/passwd,0\n", "/etc/passwd: leads out of the folder of the data; set root to a folder that"),
    "control characters": ('path,label\n0.png,"a\n::error::"\n', r"the class name 'a\n::error::' has control characters; rename it"),
}


@pytest.mark.parametrize(("text", "says"), LISTS.values(), ids=list(LISTS))
def test_csv(text: str, says: str, tmp_path: Path, refuse_data: RefuseData) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "0.png")
    (tmp_path / "images.csv").write_text(text)
    refuse_data(kind="csv", path="images.csv", channels=1, says=says)


TORCHVISION = {
    "unknown name": ({"name": "CIFAR11"}, "is not in torchvision.datasets; did you mean 'CIFAR10'?"),
    "absent": ({"name": "CIFAR10"}, "no CIFAR10 in 'tv' (missing or damaged); set download: true, or correct root"),
    "unknown split": ({"name": "CIFAR10", "split": "valid"}, "has no split 'valid'; it has train and test"),
}


@pytest.mark.parametrize(("options", "says"), TORCHVISION.values(), ids=list(TORCHVISION))
def test_torchvision(options: dict[str, Any], says: str, refuse_data: RefuseData) -> None:
    refuse_data(kind="torchvision", root="tv", **options, says=says)


def test_python_code_needs_trust(tmp_path: Path, refuse_data: RefuseData) -> None:
    (tmp_path / "own_data.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'canary')!r}).touch()\n")
    refuse_data(
        kind="python", target="own_data:make", says="is Python code, which runs only when trusted; pass --trust if you trust the code"
    )
    assert not (tmp_path / "canary").exists()


def test_trusted_python_code_that_is_no_data_set(tmp_path: Path, refuse_data: RefuseData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "own_numbers.py").write_text("def make(): return 3\n")
    refuse_data("--trust", kind="python", target="own_numbers:make", says="it must return a collection with len() and items")
