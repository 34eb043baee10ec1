"""Data that cannot be audited: one line, exit 2, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


KEYS = {
    "labels_key": ({"labels_key": "targets"}, "has no array 'targets' (it has: images, labels); set labels_key"),
    "class_names of another count": ({"class_names": list("abcd")}, "has 4 class names, but"),
    "sample of more than there are": ({"sample": {"size": 5}}, "sample.size 5 is larger than the data set (4 samples); at most 4"),
}


@pytest.mark.parametrize(("options", "says"), KEYS.values(), ids=list(KEYS))
def test_npz_option(options: dict[str, Any], says: str, tmp_path: Path, refuse_data: RefuseData) -> None:
    save_npz(tmp_path / "x.npz")
    refuse_data(kind="npz", path="x.npz", **options, says=says)


def test_unreadable_image_stops(folder: Path, refuse_data: RefuseData) -> None:
    (folder / "4" / "0.png").write_bytes(b"not an image")
    line = refuse_data(kind="images", path="digits", channels=1, says="digits, sample 4/0.png: is not an image that Pillow can read")
    assert line.endswith("or continue without it: robaudit estimate --on-error skip")


def test_all_samples_unreadable_is_exit_5(folder: Path, refuse_data: RefuseData) -> None:
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    line = refuse_data("--on-error", "skip", kind="images", path="digits", channels=1, code=5, says="none of its 10 samples can be used")
    assert "the first: digits, sample 0/0.png" in line


def test_python_code_needs_trust(tmp_path: Path, refuse_data: RefuseData) -> None:
    (tmp_path / "own_data.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'canary')!r}).touch()\n")
    refuse_data(
        kind="python", target="own_data:make", says="is Python code, which runs only when trusted; pass --trust if you trust the code"
    )
    assert not (tmp_path / "canary").exists()
