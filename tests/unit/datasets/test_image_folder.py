"""A folder of class folders as a data set."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from robaudit.datasets import open_dataset
from robaudit.datasets.select import Selected
from robaudit.errors import SampleError
from robaudit.spec.read import load_spec
from tests.golden import Golden
from tests.unit.datasets import reading
from tests.unit.datasets.reading import ids, labels

opened = partial(reading.opened, kind="images", path="pets")
message = partial(reading.refusal, kind="images", path="pets")


def draw(folder: Path, *names: str, size: tuple[int, int] = (4, 4)) -> None:
    for name in names:
        path = folder / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (sum(map(ord, name)) % 256, 0, 0)).save(path)


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


def test_linked_class_folders(tmp_path: Path, golden: Golden) -> None:
    """A link that leads out of the folder is followed where the spec allows it."""
    draw(tmp_path, "cat/a.png")
    draw(tmp_path / "elsewhere", "b.png")
    (tmp_path / "pets" / "dog").symlink_to(tmp_path / "elsewhere" / "pets")
    (tmp_path / "pets" / "cat" / "c.png").symlink_to(tmp_path / "pets" / "cat" / "a.png")
    dataset = opened(tmp_path)
    assert ids(dataset) == ["cat/a.png", "cat/c.png", "dog/b.png"]
    assert dataset[1].pixels.equal(dataset[0].pixels)
    with pytest.raises(SampleError) as caught:
        dataset[2]
    golden(caught.value)
    assert opened(tmp_path, root=".")[2].label == 1


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png")
    try:
        no_utf8 = os.fsencode(tmp_path / "pets/cat") + b"/\xff.png"
        os.rename(os.fsencode(tmp_path / "pets/cat/a.png"), no_utf8)  # noqa: PTH104  bytes
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    sample = opened(tmp_path)[0]
    assert sample.id == "cat/\\xff.png"
    sample.id.encode()


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    draw(tmp_path, "cat/a.png", "cat/b.jpg", "dog/c.png", "outside.png")
    (tmp_path / "pets/cat/b.jpg").rename(tmp_path / "pets/cat/b.jfif")
    for name in (
        "cat/d.avif",
        "cat/e.AVIF",
        "dog/f.heic",
        "dog/notes.txt",
        "dog/Thumbs.db",
        "labels.md",
        "dog/.g.avif",
    ):
        (tmp_path / "pets" / name).write_bytes(b"")
    draw(tmp_path / "elsewhere", "h.png")
    (tmp_path / "pets/dog/more").symlink_to(tmp_path / "elsewhere/pets")
    dataset = opened(tmp_path)
    assert ids(dataset) == ["cat/a.png", "cat/b.jfif", "dog/c.png"]
    assert dataset[1].pixels.shape == (3, 4, 4)
    assert isinstance(dataset, Selected)
    assert dataset.warnings == (
        "pets: not read: 1 linked folder (dog/more), 3 files of other formats (.avif, .heic), 1 "
        "image outside the class folders "
        "(outside.png); copy linked folders, and save images as PNG or JPEG in class folders",
    )


def test_folders_without_images_are_no_classes(tmp_path: Path, golden: Golden) -> None:
    """They would shift the labels of all classes after them."""
    draw(tmp_path, "cat/a.png", "dog/b.png", "__MACOSX/._a.png")
    golden(message(tmp_path))
    (tmp_path / "pets/__MACOSX").rename(tmp_path / "pets/cow")
    golden(message(tmp_path))
    dataset = opened(tmp_path, class_names=("cat", "cow", "dog"))
    assert labels(dataset) == [0, 2]
    assert isinstance(dataset, Selected)
    assert "not read: 1 class folder without images (cow)" in dataset.warnings[0]


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{number}/a.png" for number in range(12)))
    dataset = opened(tmp_path)
    assert dataset.class_names == tuple(map(str, range(12)))
    assert ids(dataset)[10] == "10/a.png"
    assert labels(dataset) == list(range(12))
    assert isinstance(dataset, Selected)
    (line,) = dataset.notes
    assert line.startswith(
        "pets: the class folders are sorted as numbers (0, 1, 2, ...), not as text (0, 1, 10, "
        "...) as in torchvision's"
    )
    draw(tmp_path, "x/a.png")
    assert opened(tmp_path).class_names == tuple(sorted(map(str, [*range(12), "x"])))


def test_missing_folder(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "pet").mkdir()
    golden(message(tmp_path))
    (tmp_path / "pets").write_text("")
    golden(message(tmp_path))


def test_empty_folder(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "pets").mkdir()
    golden(message(tmp_path))
    (tmp_path / "pets" / "cat").mkdir()
    golden(message(tmp_path))
    (tmp_path / "pets" / "cat" / "a.heic").touch()
    golden(message(tmp_path))


def test_a_class_folder_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    draw(tmp_path, "cat/a.png", "dog/a.png")
    scandir = os.scandir

    def guarded(path: Any) -> Any:
        if Path(path).name == "dog":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    golden(message(tmp_path))


def test_splits_are_no_classes(tmp_path: Path, golden: Golden) -> None:
    draw(tmp_path, "train/cat/a.png", "val/cat/b.png", "val/dog/c.png")
    golden(message(tmp_path))
    draw(tmp_path, "val/d.png")
    golden(message(tmp_path))
    assert opened(tmp_path, class_names=("train", "val")).class_names == ("train", "val")
    draw(tmp_path, "bus/d.png")
    assert opened(tmp_path).class_names == ("bus", "train", "val")


def test_one_folder_around_all_classes(tmp_path: Path, golden: Golden) -> None:
    draw(tmp_path, "photos/cat/a.png", "photos/dog/b.png")
    golden(message(tmp_path))
    assert opened(tmp_path, class_names=("photos",)).class_names == ("photos",)


def test_images_without_class_folders_have_no_labels(tmp_path: Path, golden: Golden) -> None:
    draw(tmp_path, "c.png", "a.png")
    dataset = opened(tmp_path)
    assert (ids(dataset), dataset[0].label, dataset.class_names) == (["a.png", "c.png"], None, None)
    (tmp_path / "pets/metadata.csv").write_text("file_name,label\nc.png,cat\n")
    golden(message(tmp_path))


SYNSETS = ("n01440764", "n01443537", "n02012849", "n03126707")
WORDS = ("tench, Tinca tinca", "goldfish, Carassius auratus", "crane", "crane, derrick")


def test_synset_folders(tmp_path: Path, golden: Golden) -> None:
    draw(tmp_path, *(f"{synset}/a.JPEG" for synset in SYNSETS[1:]))
    assert opened(tmp_path).class_names == SYNSETS[1:]
    assert labels(opened(tmp_path, class_names=("a", "b", "c"))) == [0, 1, 2], (
        "as many names as synsets: in the synsets' order"
    )
    assert labels(opened(tmp_path, class_names=(*SYNSETS[2:], SYNSETS[1]))) == [2, 0, 1]
    lines = [f"{synset} {words}\n" for synset, words in zip(SYNSETS, WORDS, strict=True)]
    (tmp_path / "words.txt").write_text("".join(lines))
    text = (
        "model: {path: net.pt}\ndataset: {kind: images, path: pets, class_names: words.txt, "
        "class_ids: words.txt}\nnoise: {sigma: 0.1}\n"
    )
    dataset = open_dataset(
        load_spec(tmp_path / "spec.yaml", text=text).dataset, base_dir=tmp_path, trust=False
    )
    assert dataset.class_names == ("tench", "goldfish", "crane", "crane, derrick")
    assert labels(dataset) == [1, 2, 3]
    said = message(tmp_path, class_names=("tench", "goldfish", "crane", "crane, derrick"))
    golden(said)
