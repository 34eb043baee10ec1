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


def test_the_class_is_the_top_folder_unless_asked_otherwise(tmp_path: Path) -> None:
    draw(tmp_path, "birds/owl/a.png", "birds/owl/young/b.png", "cats/owl/c.png", "cats/d.png")
    assert opened(tmp_path).class_names == ("birds", "cats")
    leaf = opened(tmp_path, classes="leaf")
    assert leaf.class_names == ("cats", "owl", "young")
    assert dict(zip(ids(leaf), labels(leaf), strict=True)) == {
        "birds/owl/a.png": 1,
        "birds/owl/young/b.png": 2,
        "cats/d.png": 0,
        "cats/owl/c.png": 1,
    }
    path = opened(tmp_path, classes="path")
    assert path.class_names == ("birds/owl", "birds/owl/young", "cats", "cats/owl")
    assert labels(path) == [0, 1, 2, 3]
    assert opened(tmp_path, classes="leaf", class_names=("young", "owl", "cats")).class_names == ("young", "owl", "cats")
    assert "pets/owl: the folder is not in class_names" in message(tmp_path, classes="leaf", class_names=("young", "cats"))


def test_splits_are_no_classes(tmp_path: Path) -> None:
    draw(tmp_path, "train/cat/a.png", "val/cat/b.png", "val/dog/c.png")
    assert message(tmp_path) == "pets: holds the splits train, val, which are no classes; choose one: path: pets/val"
    assert opened(tmp_path, classes="top").class_names == ("train", "val")
    assert labels(opened(tmp_path, classes="leaf")) == [0, 0, 1]
    draw(tmp_path, "val/loose.png")
    assert "holds the splits train, val" in message(tmp_path)
    draw(tmp_path, "bus/d.png")
    assert opened(tmp_path).class_names == ("bus", "train", "val")


def test_a_class_that_is_called_like_a_split(tmp_path: Path) -> None:
    draw(tmp_path, "train/a.png")
    assert opened(tmp_path).class_names == ("train",)


def test_one_folder_around_all_classes(tmp_path: Path) -> None:
    draw(tmp_path, "photos/cat/a.png", "photos/dog/b.png")
    assert message(tmp_path) == (
        "pets: has a single class folder 'photos', whose images lie in 2 folders; set path: pets/photos, or classes: top if it is one class"
    )
    assert opened(tmp_path, classes="top").class_names == ("photos",)
    assert opened(tmp_path, class_names=("photos",)).class_names == ("photos",)


def test_metadata_decides_where_it_has_labels(tmp_path: Path) -> None:
    draw(tmp_path, "x/a.png", "y/b.png", "c.png")
    (tmp_path / "pets/metadata.csv").write_text("file_name,caption\nx/a.png,1\n")
    assert opened(tmp_path).class_names == ("x", "y")
    (tmp_path / "pets/metadata.csv").write_text("file_name,label\nc.png,dog\nx/a.png,cat\n")
    dataset = opened(tmp_path, resize=3)
    assert (ids(dataset), labels(dataset), dataset.class_names) == (["c.png", "x/a.png"], [1, 0], ("cat", "dog"))
    assert (dataset.where, dataset[0].pixels.shape) == ("pets/metadata.csv", (3, 3, 3))
    (tmp_path / "pets/metadata.csv").write_text("image,label\nc.png,dog\n")
    assert opened(tmp_path).class_names == ("x", "y")


def test_metadata_without_labels(tmp_path: Path) -> None:
    draw(tmp_path, "c.png")
    (tmp_path / "pets/metadata.csv").write_text("file_name,caption\nc.png,a cat\n")
    assert opened(tmp_path).labels() is None
    (tmp_path / "pets/metadata.csv").write_text("file_name,class\nc.png,cat\n")
    assert message(tmp_path) == (
        "pets/metadata.csv: has no column 'label', but 'class'; "
        "use kind: manifest with path_column: file_name and label_column: class (for class folders: classes: top)"
    )


def test_metadata_with_another_column_of_labels_beside_folders(tmp_path: Path) -> None:
    """Neither the folders alone, which would leave out the images beside them, nor the column without being asked."""
    draw(tmp_path, "x/a.png", "y/b.png", "c.png")
    (tmp_path / "pets/metadata.csv").write_text("file_name,Class\nc.png,dog\nx/a.png,cat\n")
    assert "has no column 'label', but 'Class'; use kind: manifest with " in message(tmp_path)
    assert opened(tmp_path, classes="top").class_names == ("x", "y")


SYNSETS = ("n01440764", "n01443537", "n02012849", "n03126707")
WORDS = ("tench, Tinca tinca", "goldfish, Carassius auratus", "crane", "crane, derrick")


def write_words(path: Path) -> None:
    path.write_text("".join(f"{synset} {words}\n" for synset, words in zip(SYNSETS, WORDS, strict=True)))


def test_synset_folders(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{synset}/a.JPEG" for synset in SYNSETS[1:]))
    assert opened(tmp_path).class_names == SYNSETS[1:]
    write_words(tmp_path / "LOC_synset_mapping.txt")
    dataset = opened(tmp_path)
    assert dataset.class_names == ("tench", "goldfish", "crane", "crane, derrick")
    assert labels(dataset) == [1, 2, 3]
    named = opened(tmp_path, class_names=("a", "b", "c", "d"))
    assert (named.class_names, labels(named)) == (("a", "b", "c", "d"), [1, 2, 3])
    assert labels(opened(tmp_path, class_names=(*SYNSETS[2:], SYNSETS[1]))) == [2, 0, 1]
    assert "pets/n01443537: the folder is not in class_names" in message(tmp_path, class_names=("a", "b"))
    (tmp_path / "LOC_synset_mapping.txt").unlink()
    said = message(tmp_path, class_names=("tench", "goldfish", "crane", "crane, derrick"))
    assert "; put LOC_synset_mapping.txt or synset_words.txt beside the folder, which name ImageNet's synsets" in said


def imagenet(folder: Path) -> list[str]:
    names = [f"ILSVRC2012_val_{number:08}.JPEG" for number in (1, 2, 4)]
    draw(folder, *names)
    return names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "LOC_val_solution.csv",
            "ImageId,PredictionString\n{}_00000004,n01440764 1 2 3 4 \n{}_00000002,n03126707 1 2 3 4 n03126707 5 6 7 8\n"
            "{}_00000001,n01443537 1 2 3 4 \n",
        ),
        ("imagenet_2012_validation_synset_labels.txt", "n01443537\nn03126707\nn01443537\nn01440764\n"),
        ("val.txt", "val/{}_00000001.JPEG n01443537\nval/{}_00000002.JPEG n03126707\nval/{}_00000004.JPEG n01440764\n"),
        ("ILSVRC2012_validation_ground_truth.txt", "2\n3\n2\n1\n"),
    ],
)
def test_imagenet_validation_images(tmp_path: Path, name: str, text: str) -> None:
    names = imagenet(tmp_path)
    (tmp_path / name).write_text(text.replace("{}", "ILSVRC2012_val"))
    (tmp_path / "map_clsloc.txt").write_text("n01440764 1 tench\nn01443537 2 goldfish\nn03126707 3 crane\n")
    dataset = opened(tmp_path)
    assert ids(dataset) == names
    assert (labels(dataset), dataset.class_names) == ([1, 2, 0], ("n01440764", "n01443537", "n03126707"))
    write_words(tmp_path / "synset_words.txt")
    dataset = opened(tmp_path)
    assert (labels(dataset), dataset.class_names) == ([1, 3, 0], ("tench", "goldfish", "crane", "crane, derrick"))
    (tmp_path / name).rename(tmp_path / "elsewhere")
    assert labels(opened(tmp_path, labels="elsewhere")) == [1, 3, 0] if name != "ILSVRC2012_validation_ground_truth.txt" else True


def test_a_list_of_indices(tmp_path: Path) -> None:
    names = imagenet(tmp_path)
    (tmp_path / "val.txt").write_text("".join(f"{name} {65 + place}\n" for place, name in enumerate(names)))
    dataset = opened(tmp_path)
    assert (labels(dataset), dataset.class_names) == ([65, 66, 67], None)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "val.txt",
            "ILSVRC2012_val_00000001.JPEG 1\n",
            "pets/ILSVRC2012_val_00000002.JPEG: has no label in val.txt; set labels to the file",
        ),
        ("val.txt", "what is this\n", "val.txt:1: is not a label of an image; known are LOC_val_solution.csv, "),
        ("val.txt", "", "val.txt: has no labels; "),
        (
            "imagenet_2012_validation_synset_labels.txt",
            "n01443537\n",
            "pets/ILSVRC2012_val_00000002.JPEG: has no number from 1 to 1 at its end",
        ),
        ("ILSVRC2012_validation_ground_truth.txt", "2\n", "numbers the classes in the order of the development kit"),
    ],
)
def test_wrong_lists(tmp_path: Path, name: str, text: str, says: str) -> None:
    imagenet(tmp_path)
    (tmp_path / name).write_text(text)
    assert says in message(tmp_path)


def test_a_named_file_of_labels(tmp_path: Path) -> None:
    names = imagenet(tmp_path)
    (tmp_path / "truth.csv").write_text("file_name,label\n" + "".join(f"pets/{name},dog\n" for name in names))
    assert opened(tmp_path, labels="truth.csv").class_names == ("dog",)
    assert "nowhere.csv: no such file" in message(tmp_path, labels="nowhere.csv")
