"""Data sets of Hugging Face ``datasets`` on disk: splits, features, and what is wrong with a folder."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from robaudit.errors import DataError
from tests.datasets.forms import COUNT, LABELS, PIXELS, encoded, hub, opened, write_files, write_parquet


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def open_hf(folder: Path, **options: Any) -> Any:
    return opened(folder, kind="hf", path="pets", **options)


def message(folder: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        open_hf(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_library_sees_the_same(tmp_path: Path) -> None:
    hub().save_to_disk(tmp_path / "pets")
    theirs, ours = datasets.load_from_disk(str(tmp_path / "pets")), open_hf(tmp_path)
    for index in range(COUNT):
        assert np.array_equal(ours[index].pixels.numpy().transpose(1, 2, 0) * 255, np.asarray(theirs[index]["image"], float))
    assert ours.labels().tolist() == theirs["label"][:]


def test_nothing_is_downloaded_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.DatasetDict({"test": hub()}).save_to_disk(tmp_path / "pets")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert open_hf(tmp_path)[2].label == LABELS[2]
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_filtered_and_shuffled_data_sets(tmp_path: Path) -> None:
    chosen = hub().shuffle(seed=1).select(range(2, 9))
    chosen.save_to_disk(tmp_path / "pets", num_shards=3)
    dataset = open_hf(tmp_path)
    places = [int(note) for note in chosen["note"][:]]
    assert dataset.labels().tolist() == [LABELS[place] for place in places]
    for index, place in enumerate(places):
        assert np.array_equal(dataset[index].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[place].astype(float))


def test_splits(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": hub(), "validation": hub()}).save_to_disk(tmp_path / "pets")
    assert message(tmp_path) == "pets: has 2 splits; choose one: split: train or validation"
    assert message(tmp_path, split="valid") == "pets: has no split 'valid'; did you mean 'validation'?"
    assert open_hf(tmp_path, split="train").where == "pets, split train"


def test_one_split_knows_its_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet")
    datasets.Dataset.from_parquet(str(path), split="test", cache_dir=str(tmp_path / "cache")).save_to_disk(tmp_path / "pets")
    assert open_hf(tmp_path, split="test").labels().tolist() == LABELS
    assert message(tmp_path, split="train") == "pets: has no split 'train'; it is one split, test: leave out split"


def test_layouts_of_the_hub(tmp_path: Path) -> None:
    for name in ("data/train-00000-of-00001-0123456789abcdef.parquet", "data/test-00000-of-00001.parquet", "README.md"):
        write_parquet(tmp_path / "pets" / name)
    assert message(tmp_path) == "pets: has 2 splits; choose one: split: test or train"
    assert len(open_hf(tmp_path, split="train")) == COUNT
    for config in ("large", "small"):
        write_parquet(tmp_path / f"configs/{config}/test/0000.parquet")
    with pytest.raises(DataError, match=r"^configs: has the split test in 2 folders \(large, small\); set path: configs/large$"):
        opened(tmp_path, kind="hf", path="configs", split="test")
    assert len(opened(tmp_path, kind="hf", path="configs/small", split="test")) == COUNT


def test_columns(tmp_path: Path) -> None:
    fine = datasets.ClassLabel(names=["a", "b", "c"])
    whole = hub().rename_column("label", "fine").add_column("coarse", [0] * COUNT).cast_column("coarse", datasets.ClassLabel(names=["x"]))
    whole.cast_column("fine", fine).save_to_disk(tmp_path / "pets")
    assert message(tmp_path) == "pets: has 2 columns of classes: 'fine' and 'coarse'; choose one: label_column: fine"
    assert open_hf(tmp_path, label_column="fine").class_names == ("a", "b", "c")
    assert open_hf(tmp_path, label_column="note", id_column="note").sample_id(4) == "4"
    assert "pets: has no column 'picture' (columns: image, note, fine, coarse); image_column: " in message(tmp_path, image_column="picture")


def test_without_labels(tmp_path: Path) -> None:
    hub().remove_columns(["label", "note"]).save_to_disk(tmp_path / "pets")
    dataset = open_hf(tmp_path)
    assert dataset.labels() is None
    assert dataset[0].label is None


def test_images_that_were_files(tmp_path: Path) -> None:
    files = [str(tmp_path / "images" / name) for name in write_files(tmp_path / "images")]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict({"image": files, "label": LABELS}, features=features).save_to_disk(tmp_path / "pets")
    assert np.array_equal(open_hf(tmp_path)[2].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[2].astype(float))


def test_a_name_of_the_hub(tmp_path: Path) -> None:
    says = "nothing is downloaded; save a data set of the Hub first: datasets.load_dataset('pets').save_to_disk('pets')"
    assert message(tmp_path) == f"pets: no such folder in {str(tmp_path)!r}; {says}"
    (tmp_path / "pet").mkdir()
    assert message(tmp_path) == f"pets: no such folder in {str(tmp_path)!r}; did you mean 'pet'?"


def test_damaged_folders(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    assert message(tmp_path) == "pets: has no .parquet files; name the folder that holds them, or the files by a pattern with *"
    (tmp_path / "pets/dataset_dict.json").write_text("{}")
    assert "pets/dataset_dict.json: cannot be read ('splits'); save the data set again" in message(tmp_path)
    (tmp_path / "pets/dataset_dict.json").write_text(json.dumps({"splits": ["../secret"]}))
    assert "pets/dataset_dict.json: cannot be read (no names of splits)" in message(tmp_path)
    (tmp_path / "pets/dataset_dict.json").write_text(json.dumps({"splits": ["test"]}))
    assert "pets, split test: cannot be opened (" in message(tmp_path)
    (tmp_path / "pets/dataset_dict.json").unlink()
    hub().save_to_disk(tmp_path / "pets")
    arrow = next((tmp_path / "pets").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:100])
    assert "pets: cannot be opened (" in message(tmp_path)


def test_offsets_beyond_the_file(tmp_path: Path) -> None:
    """Arrow maps what a file says without checking it; reading it would be the end of the process."""
    hub().save_to_disk(tmp_path / "pets")
    arrow = next((tmp_path / "pets").glob("*.arrow"))
    content = arrow.read_bytes()
    offsets = np.cumsum([0, *(len(encoded(index)) for index in range(COUNT))]).astype("<i4")
    place = content.index(offsets[1:4].tobytes())
    arrow.write_bytes(content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :])
    assert "pets: is damaged (" in message(tmp_path)


def test_labels_beyond_the_classes(tmp_path: Path) -> None:
    whole = hub()
    features = whole.features
    features["label"] = datasets.ClassLabel(names=["cat", "dog"])
    datasets.Dataset(whole.data.table, info=datasets.DatasetInfo(features=features)).save_to_disk(tmp_path / "pets")
    row = LABELS.index(2)
    assert message(tmp_path) == f"pets: the column 'label' has the label 2 (row {row}), but 2 classes; repair it"
