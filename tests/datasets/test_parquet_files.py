"""Parquet files as a data set: columns, labels, pieces of row groups, and every way they can be wrong."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from robaudit.datasets import parquet_files
from robaudit.errors import DataError, SampleError
from tests.datasets.forms import COUNT, LABELS, NAMES, PIXELS, encoded, hub, opened, write_files, write_parquet


def open_parquet(folder: Path, path: str = "a.parquet", **options: Any) -> Any:
    return opened(folder, kind="parquet", path=path, **options)


def message(folder: Path, path: str = "a.parquet", **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        open_parquet(folder, path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def labels_of(folder: Path, label: Any, **options: Any) -> Any:
    write_parquet(folder / "a.parquet", label=label)
    dataset = open_parquet(folder, **options)
    return dataset.labels().tolist(), dataset.class_names


def test_labels_of_any_type(tmp_path: Path) -> None:
    texts = [NAMES[label] for label in LABELS]
    for column in (LABELS, np.array(LABELS, np.uint8), np.array(LABELS, np.float64), [str(label) for label in LABELS]):
        assert labels_of(tmp_path, column) == (LABELS, None)
    for column in (texts, pa.array(texts).dictionary_encode(), pa.array(texts, pa.large_string()), [f" {text}" for text in texts]):
        assert labels_of(tmp_path, column) == (LABELS, NAMES)
    assert labels_of(tmp_path, texts, class_names=("fox", "dog", "cat", "hen")) == (
        [2 - label for label in LABELS],
        ("fox", "dog", "cat", "hen"),
    )
    assert labels_of(tmp_path, [label > 0 for label in LABELS])[0] == [int(label > 0) for label in LABELS]


def test_no_label(tmp_path: Path) -> None:
    some = [None if index == 1 else label for index, label in enumerate(LABELS)]
    expected = [-1 if label is None else label for label in some]
    assert labels_of(tmp_path, some)[0] == expected
    assert labels_of(tmp_path, [np.nan if label is None else float(label) for label in some])[0] == expected
    assert labels_of(tmp_path, [-1 if label is None else label for label in some])[0] == expected
    assert labels_of(tmp_path, [None if label is None else NAMES[label] for label in some])[0] == expected
    assert open_parquet(tmp_path)[1].label is None
    write_parquet(tmp_path / "a.parquet", other=[[1]] * COUNT)
    dataset = open_parquet(tmp_path)
    assert dataset.labels() is None
    assert dataset[0].label is None


def test_classes_by_name(tmp_path: Path) -> None:
    """Indices with names follow the names that the user gives, where they are the same ones."""
    hub().to_parquet(tmp_path / "a.parquet")
    turned = open_parquet(tmp_path, class_names=("dog", "hen", "fox", "cat"))
    assert turned.labels().tolist() == [[3, 0, 2][label] for label in LABELS]
    renamed = open_parquet(tmp_path, class_names=("Katze", "Hund", "Fuchs"))
    assert (renamed.labels().tolist(), renamed.class_names) == (LABELS, ("Katze", "Hund", "Fuchs"))
    assert open_parquet(tmp_path, class_names=("Katze", "dog", "fox")).labels().tolist() == LABELS
    assert "its class 'cat' is not in class_names; " in message(tmp_path, class_names=("dog", "Katze", "fox"))
    assert "its class 'cat' is not in class_names; " in message(tmp_path, class_names=("a", "b", "c", "d"))
    assert "a.parquet: its class 'cat' is not in class_names; did you mean 'cats'?" in message(tmp_path, class_names=("cats", "fox", "dog"))


def test_columns_by_other_names(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "thumb": [encoded(0)] * COUNT,
        "breed": LABELS,
        "key": [f"k{i}" for i in range(COUNT)],
        "target": [1] * COUNT,
    }
    write_parquet(tmp_path / "a.parquet", **columns)
    dataset = open_parquet(tmp_path, image_column="image", label_column="breed", id_column="key")
    assert (dataset.sample_id(3), dataset[3].id, dataset.labels().tolist()) == ("k3", "k3", LABELS)
    assert open_parquet(tmp_path, image_column="image").labels().tolist() == [1] * COUNT
    assert "a.parquet: has 2 columns of images: 'image' and 'thumb'; choose one: image_column: image" in message(tmp_path)
    assert "has no column 'bread' (columns: image, thumb, breed, key, target); label_column: did you mean 'breed'?" in message(
        tmp_path, image_column="image", label_column="bread"
    )
    assert "the column 'breed' does not hold encoded images; " in message(tmp_path, image_column="breed")
    write_parquet(tmp_path / "a.parquet", key=["x"] * COUNT)
    assert "a.parquet: the id 'x' of the column 'key' appears twice; ids must differ" in message(tmp_path, id_column="key")
    write_parquet(tmp_path / "a.parquet", key=["x", None] * (COUNT // 2))
    assert "the column 'key' has no id in row 1; " in message(tmp_path, id_column="key")


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ([0.5] * COUNT, "a.parquet: the column 'label' has values that are not class indices; class indices are 0, 1, 2, ..."),
        ([0, -2] * (COUNT // 2), "a.parquet: the column 'label' has the label -2 (row 1); class indices start at 0"),
        (["1", "cat"] * (COUNT // 2), "a.parquet: mixes labels that are names ('cat', line 2) and numbers ('1', line 1); "),
    ],
)
def test_bad_labels(tmp_path: Path, label: list[Any], says: str) -> None:
    write_parquet(tmp_path / "a.parquet", label=label)
    assert says in message(tmp_path)


def test_labels_that_are_no_classes(tmp_path: Path) -> None:
    """A column that is called label but holds lists (several labels of an image) is no reason to audit without labels unasked."""
    write_parquet(tmp_path / "a.parquet", label=[[0, 1]] * COUNT)
    said = "a.parquet: the column 'label' does not hold class indices or names; set label_column to one that does (null: no labels)"
    assert message(tmp_path) == said
    assert open_parquet(tmp_path, label_column=None).labels() is None
    write_parquet(tmp_path / "a.parquet", label=LABELS)
    assert open_parquet(tmp_path, label_column=None).labels() is None
    assert open_parquet(tmp_path).labels().tolist() == LABELS


def test_files_written_by_pandas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"jpg": [encoded(index) for index in range(COUNT)], "class": pd.Categorical([NAMES[label] for label in LABELS])})
    frame[3:].to_parquet(tmp_path / "a.parquet")
    dataset = open_parquet(tmp_path)
    assert dataset.labels().tolist() == LABELS[3:]
    assert np.array_equal(dataset[0].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[3].astype(float))


def test_a_dot_in_the_name_of_a_column(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"image.bytes": [encoded(1)], "image.path": ["a"], "class.id": [2]}), tmp_path / "a.parquet")
    dataset = open_parquet(tmp_path, label_column="class.id")
    assert dataset[0].label == 2
    assert np.array_equal(dataset[0].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[1].astype(float))


def test_paths_in_place_of_bytes(tmp_path: Path) -> None:
    files = write_files(tmp_path / "images")
    values: list[dict[str, Any]] = [{"bytes": None, "path": f"images/{file}"} for file in files]
    values[1], values[2], values[3] = (
        {"bytes": None, "path": "https://somewhere/a.png"},
        {"bytes": None, "path": None},
        {"bytes": b"", "path": ""},
    )
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    parquet.write_table(pa.table({"image": pa.array(values, kind)}), tmp_path / "a.parquet")
    dataset = open_parquet(tmp_path)
    assert np.array_equal(dataset[5].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[5].astype(float))
    for index, says in (
        (1, "its image is at 'https://somewhere/a.png'; nothing is downloaded"),
        (2, "has no image"),
        (3, "is an empty file"),
    ):
        with pytest.raises(SampleError, match=says):
            dataset[index]


def test_several_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_parquet(tmp_path / f"data/{name}.parquet", label=[ord(name) % 2] * COUNT)
    assert open_parquet(tmp_path, "data").labels().tolist() == [1] * COUNT + [0] * COUNT
    assert open_parquet(tmp_path, "data/[b-z].parquet").labels().tolist() == [0] * COUNT
    write_parquet(tmp_path / "data/c.parquet", breed=LABELS)
    assert "c.parquet: has other columns or classes than a.parquet; " in message(tmp_path, "data")
    write_parquet(tmp_path / "data/c.parquet", label=["x"] * COUNT)
    assert "data: its files have labels of several types (" in message(tmp_path, "data") or "other columns" in message(tmp_path, "data")
    assert message(tmp_path, "data/*.pq") == "data/*.pq: matches no file; paths are relative to the spec file"
    (tmp_path / "empty").mkdir()
    assert "empty: has no .parquet files; " in message(tmp_path, "empty")


def test_splits_are_not_mixed(tmp_path: Path) -> None:
    for name in ("train-00000-of-00001", "test-00000-of-00001"):
        write_parquet(tmp_path / f"data/{name}.parquet")
    assert "data: has files of 2 splits (test, train); choose one: kind: hf with split, or a pattern such as test-*.parquet" in message(
        tmp_path, "data"
    )
    assert len(open_parquet(tmp_path, "data/*.parquet")) == 2 * COUNT


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "a.parquet: is not a Parquet file that can be read (Parquet file size is 0 bytes); write it again"),
        (b"PAR1" + b"junk" * 30, "a.parquet: is not a Parquet file that can be read ("),
    ],
)
def test_no_parquet(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    assert says in message(tmp_path)


def test_truncated_and_empty_files(tmp_path: Path) -> None:
    content = write_parquet(tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-40])
    assert "a.parquet: is not a Parquet file that can be read (" in message(tmp_path)
    parquet.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "a.parquet")
    assert message(tmp_path) == "a.parquet: has no samples; give a data set with at least one"
    parquet.write_table(pa.table({"path": ["a.png"], "label": [1]}), tmp_path / "a.parquet")
    assert "a.parquet: has no column of encoded images (columns: path, label); images are the bytes of image files; " in message(tmp_path)


def test_a_damaged_piece_costs_its_samples_only(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", group=3)
    place = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[place : place + 60] = b"\xff" * 60
    path.write_bytes(content)
    dataset = open_parquet(tmp_path)
    for index in range(COUNT):
        if 3 <= index < 6:
            with pytest.raises(SampleError, match=rf"^a.parquet, sample {index}: cannot be read \("):
                dataset[index]
        else:
            assert dataset[index].label == LABELS[index]


def test_each_piece_is_read_once_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "PIECE", 700)
    write_parquet(tmp_path / "a.parquet", group=COUNT)
    dataset = open_parquet(tmp_path)
    read = []
    begin = parquet_files._Reader._begin

    def counted(self: Any) -> None:
        read.append(1)
        begin(self)

    monkeypatch.setattr(parquet_files._Reader, "_begin", counted)
    for index in range(COUNT):
        dataset[index]
        dataset[max(0, index - 1)]  # a thread that is a little behind
    assert len(read) == 1
    dataset[0]
    assert len(read) == 2


def test_a_large_row_group_is_not_held_in_memory(tmp_path: Path) -> None:
    """60 MB of images in one row group; its pages, which are decompressed whole, are small."""
    noise = np.random.default_rng(0).integers(0, 256, (600, 100_000), dtype=np.uint8)
    values = [encoded(0) + row.tobytes() for row in noise]  # bytes after the end of a PNG are ignored
    parquet.write_table(pa.table({"image": values}), tmp_path / "a.parquet", row_group_size=2**20, write_batch_size=10)
    del values
    before = pa.total_allocated_bytes()
    dataset = open_parquet(tmp_path, resize=4)
    most = 0
    for index in range(0, 600, 2):
        assert dataset[index].pixels.shape == (3, 5, 4)
        most = max(most, pa.total_allocated_bytes() - before)
    assert 1e5 < most < 3.5 * parquet_files.PIECE


def test_memory_of_many_rows(tmp_path: Path) -> None:
    count = 200_000
    table = pa.table({"image": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [encoded(0)]), "label": np.arange(count) % 1000})
    parquet.write_table(table.cast(pa.schema([("image", pa.binary()), ("label", pa.int16())])), tmp_path / "a.parquet", row_group_size=1000)
    open_parquet(tmp_path)
    tracemalloc.start()
    try:
        dataset = open_parquet(tmp_path)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(dataset) == count
    assert held / count < 4
