"""A folder of class folders as a data set."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from robaudit.datasets import open_dataset
from robaudit.datasets.base import Dataset
from robaudit.errors import DataError, SampleError
from robaudit.spec.model import ImagesSpec


def opened(folder: Path, **options: Any) -> Dataset:
    return open_dataset(ImagesSpec(kind="images", path="pets", **options), base_dir=folder, trust=False)


def message(folder: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        opened(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def draw(folder: Path, *names: str, size: tuple[int, int] = (4, 4)) -> None:
    for name in names:
        path = folder / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (sum(map(ord, name)) % 256, 0, 0)).save(path)


def ids(dataset: Dataset) -> list[str]:
    return [dataset.sample_id(index) for index in range(len(dataset))]


def labels(dataset: Dataset) -> list[int]:
    found = dataset.labels()
    assert found is not None
    return [int(label) for label in found]


def test_sorted_by_path_with_posix_ids(tmp_path: Path) -> None:
    draw(tmp_path, "dog/b.PNG", "cat/2.png", "cat/10.jpg", "dog/more/a.png")
    (tmp_path / "pets" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "pets" / "dog" / ".hidden.png").write_text("no image")
    (tmp_path / "pets" / ".cache").mkdir()
    dataset = opened(tmp_path)
    assert ids(dataset) == ["cat/10.jpg", "cat/2.png", "dog/b.PNG", "dog/more/a.png"]
    assert labels(dataset) == [0, 0, 1, 1]
    assert dataset.class_names == ("cat", "dog")
    sample = dataset[3]
    assert (sample.id, sample.label, sample.pixels.shape) == ("dog/more/a.png", 1, (3, 4, 4))


def test_class_names_give_the_indices(tmp_path: Path) -> None:
    draw(tmp_path, "dog/a.png", "cat/a.png")
    dataset = opened(tmp_path, class_names=("bird", "dog", "cat"))
    assert labels(dataset) == [2, 1]
    assert dataset.class_names == ("bird", "dog", "cat")


def test_a_folder_without_a_class_name(tmp_path: Path) -> None:
    draw(tmp_path, "dog/a.png", "catt/a.png")
    assert message(tmp_path, class_names=("cat", "dog")) == "pets/catt: the folder is not in class_names; did you mean 'cat'?"


def test_linked_class_folders(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png")
    draw(tmp_path / "elsewhere", "b.png")
    (tmp_path / "pets" / "dog").symlink_to(tmp_path / "elsewhere" / "pets")
    assert ids(opened(tmp_path)) == ["cat/a.png", "dog/b.png"]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png")
    try:
        os.rename(os.fsencode(tmp_path / "pets/cat/a.png"), os.fsencode(tmp_path / "pets/cat") + b"/\xff.png")  # noqa: PTH104  bytes
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    sample = opened(tmp_path)[0]
    assert sample.id == "cat/\\xff.png"
    sample.id.encode()


def test_options_reach_the_decoder(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png", size=(8, 6))
    draw(tmp_path, "cat/b.png", size=(6, 9))
    assert opened(tmp_path, resize=5, crop=(4, 3), channels=1)[1].pixels.shape == (1, 4, 3)


def test_two_shapes(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png", size=(8, 6))
    draw(tmp_path, "cat/b.png", size=(6, 9))
    with pytest.raises(SampleError) as caught:
        opened(tmp_path)[1]
    assert "pets, sample 'cat/b.png': its shape is (3, 9, 6), but that of the first sample 'cat/a.png' is (3, 6, 8); set resize" in str(
        caught.value
    )


def test_unreadable_image(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png", "cat/b.png")
    (tmp_path / "pets/cat/a.png").write_bytes(b"junk")
    dataset = opened(tmp_path)
    with pytest.raises(SampleError, match=r"^pets/cat/a.png: is not an image that Pillow can read; "):
        dataset[0]
    assert dataset[1].id == "cat/b.png"


def test_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "pet").mkdir()
    assert message(tmp_path) == f"pets: no such folder in {str(tmp_path)!r}; did you mean 'pet'?"
    (tmp_path / "pets").write_text("")
    assert message(tmp_path) == "pets: is a file; give the folder"


def test_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    assert message(tmp_path) == "pets: is an empty folder; give a folder with one folder per class"
    (tmp_path / "pets" / "readme.txt").write_text("")
    assert "pets: holds no class folders; " in message(tmp_path)


def test_no_images_in_class_folders(tmp_path: Path) -> None:
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    assert "pets: has no images in its 1 class folder; known suffixes: .bmp" in message(tmp_path)


def test_a_class_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path, "cat/a.png", "dog/a.png")
    scandir = os.scandir

    def guarded(path: Any) -> Any:
        if Path(path).name == "dog":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert message(tmp_path) == "pets/dog: cannot be listed (Permission denied); give folders that you may read"


def test_loose_images(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png")
    assert message(tmp_path) == (
        "pets: holds 2 images but no class folders; put them into one folder per class, or name a file with their labels: labels: FILE"
    )


def test_threads_and_pickles_read_the_same(tmp_path: Path) -> None:
    draw(tmp_path, *(f"cat/{number:03}.png" for number in range(40)))
    dataset = opened(tmp_path)
    again = pickle.loads(pickle.dumps(dataset))
    with ThreadPoolExecutor(8) as pool:
        samples = list(pool.map(dataset.__getitem__, list(range(40)) * 3))
    for index, sample in enumerate(samples):
        assert sample.id == f"cat/{index % 40:03}.png"
        assert sample.pixels.equal(again[index % 40].pixels)
