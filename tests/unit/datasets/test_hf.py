"""Data sets of Hugging Face ``datasets`` on disk: splits, features, and what is wrong with a
folder."""

from __future__ import annotations

import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from robaudit.datasets.select import Selected
from robaudit.errors import DataError, SampleError
from tests.golden import Golden
from tests.unit.datasets.forms import (
    COUNT,
    LABELS,
    PIXELS,
    encoded,
    hub,
    write_all,
    write_files,
    write_parquet,
    write_tar,
)
from tests.unit.datasets.reading import opened, refusal


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


open_hf = partial(opened, kind="hf", path="pets")
message = partial(refusal, kind="hf", path="pets")


def test_nothing_is_asked_of_the_network_or_written_beside_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the library report which of its readers is used."""
    specs = write_all(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("the network was used")

    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for form in ("hf, a split", "hf, parquet", "webdataset, shards", "json lines, metadata"):
        assert opened(tmp_path, **specs[form])[2].label == LABELS[2]
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_filtered_and_shuffled_data_sets(tmp_path: Path) -> None:
    chosen = hub().shuffle(seed=1).select(range(2, 9))
    chosen.save_to_disk(tmp_path / "pets", num_shards=3)
    dataset = open_hf(tmp_path)
    places = [int(note) for note in chosen["note"][:]]
    labels = dataset.labels()
    assert labels is not None
    assert labels.tolist() == [LABELS[place] for place in places]
    for index, place in enumerate(places):
        assert np.array_equal(
            dataset[index].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[place].astype(float)
        )


@pytest.mark.parametrize(
    ("files", "sets"),
    [
        (
            (
                "data/test-00000-of-00002.parquet",
                "data/test-00001-of-00002.parquet",
                "data/train-00000-of-00001-0123abcd.parquet",
            ),
            "data/test*.parquet, data/train*.parquet",
        ),
        (
            ("fold_a/data-00000-of-00001.parquet", "fold_b/data-00000-of-00001.parquet"),
            "fold_a/data*.parquet, fold_b/data*.parquet",
        ),
    ],
)
def test_several_data_sets_in_a_folder(
    tmp_path: Path, files: tuple[str, ...], sets: str, golden: Golden
) -> None:
    """Such as splits: the user names one by its path."""
    for number, file in enumerate(files):
        (tmp_path / "pets" / file).parent.mkdir(parents=True, exist_ok=True)
        hub().select(range(3 + number)).to_parquet(tmp_path / "pets" / file)
    first = sets.partition(",")[0]
    golden(message(tmp_path))
    assert len(opened(tmp_path, kind="hf", path=f"pets/{first}")) == 3 + (
        4 if "test" in first else 0
    )
    golden(refusal(tmp_path, kind="hf", path="no-*.parquet"))


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    (folder / "elsewhere").mkdir(parents=True)
    hub().to_parquet(folder / "a.parquet")
    (folder / "more").symlink_to(folder / "elsewhere")
    (folder / "list.jsonl").write_text("{}")
    dataset = open_hf(tmp_path)
    assert isinstance(dataset, Selected)
    assert dataset.warnings == (
        "pets: not read: 1 linked folder (more), 1 file of other forms (list.jsonl); "
        "copy linked folders, and give one form of files a folder of its own",
    )


def test_class_names_that_are_numbers_sorted_as_text(tmp_path: Path) -> None:
    """As the library sorts the folders of its imagefolder."""
    for names in (("0", "1", "10", "2"), ("0", "1", "2")):
        hub(names=names).to_parquet(tmp_path / "pets.parquet")
        dataset = opened(tmp_path, kind="hf", path="pets.parquet")
        assert isinstance(dataset, Selected)
        says = (
            "pets.parquet: class 2 is called '10': the numbers are sorted as text; "
            "class_names sets another order"
        )
        assert dataset.notes == ((says,) if "10" in names else ())


def test_columns(tmp_path: Path, golden: Golden) -> None:
    fine = datasets.ClassLabel(names=["a", "b", "c"])
    whole = (
        hub()
        .rename_column("label", "fine")
        .add_column("coarse", [0] * COUNT)
        .cast_column("coarse", datasets.ClassLabel(names=["x"]))
    )
    whole.cast_column("fine", fine).save_to_disk(tmp_path / "pets")
    golden(message(tmp_path))
    assert open_hf(tmp_path, label_column="fine").class_names == ("a", "b", "c")
    assert open_hf(tmp_path, label_column="note", id_column="note").sample_id(4) == "4"
    golden(message(tmp_path, image_column="picture"))


def test_images_that_are_files(tmp_path: Path, golden: Golden) -> None:
    files = [str(tmp_path / "images" / name) for name in write_files(tmp_path / "images")]
    images = pa.array(
        [{"bytes": None, "path": file} for file in files],
        pa.struct({"bytes": pa.binary(), "path": pa.string()}),
    )
    about = json.dumps(
        {
            "info": {
                "features": {
                    "image": {"_type": "Image"},
                    "label": {"_type": "Value", "dtype": "int64"},
                }
            }
        }
    )
    (tmp_path / "pets").mkdir()
    table = pa.table({"image": images, "label": LABELS}).replace_schema_metadata(
        {"huggingface": about}
    )
    parquet.write_table(table, tmp_path / "pets/a.parquet")
    with pytest.raises(SampleError) as caught:
        open_hf(tmp_path)[2]
    golden(caught.value)
    assert np.array_equal(
        open_hf(tmp_path, root=".")[2].pixels.numpy().transpose(1, 2, 0) * 255,
        PIXELS[2].astype(float),
    )


def test_a_name_of_the_hub(tmp_path: Path, golden: Golden) -> None:
    golden(message(tmp_path))
    (tmp_path / "pet").mkdir()
    golden(message(tmp_path))


def test_damaged_folders(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "pets").mkdir()
    golden(message(tmp_path))
    hub().save_to_disk(tmp_path / "pets")
    arrow = next((tmp_path / "pets").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:100])
    golden(message(tmp_path))


def test_offsets_beyond_the_file(tmp_path: Path, golden: Golden) -> None:
    """Arrow maps what a file says without checking it; reading it would be the end of the
    process."""
    hub().save_to_disk(tmp_path / "pets")
    arrow = next((tmp_path / "pets").glob("*.arrow"))
    content = arrow.read_bytes()
    place = content.index(
        np.cumsum([len(encoded(index)) for index in range(COUNT)]).astype("<i4").tobytes()
    )
    arrow.write_bytes(content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :])
    golden(message(tmp_path))


def test_files_that_lead_out_of_the_folder(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/0.tar").symlink_to(write_tar(tmp_path / "a.tar"))
    with pytest.raises(DataError) as caught:
        opened(tmp_path, kind="hf", path="shards")
    golden(caught.value)
    assert len(opened(tmp_path, kind="hf", path="shards", root=".")) == COUNT


def test_ids(tmp_path: Path, golden: Golden) -> None:
    """They stay what they are when rows are added: keys of tars, paths, or a column; else the
    place."""
    forms = write_all(tmp_path)
    assert opened(tmp_path, **forms["webdataset"]).sample_id(3) == "s003"
    assert opened(tmp_path, **forms["webdataset, shards"]).sample_id(7) == "val-001.tar/s007"
    assert opened(tmp_path, **forms["json lines, metadata"]).sample_id(3) == "003.png"
    assert opened(tmp_path, **forms["parquet"]).sample_id(3) == "3"
    write_parquet(tmp_path / "keys.parquet", key=[f"key {i}" for i in range(COUNT)])
    assert opened(tmp_path, kind="hf", path="keys.parquet", id_column="key").sample_id(3) == "key 3"
    write_parquet(tmp_path / "twice.parquet", key=["a"] * COUNT)
    with pytest.raises(DataError) as caught:
        opened(tmp_path, kind="hf", path="twice.parquet", id_column="key")
    golden(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.parquet", b"PAR1junk"), ("a.tar", b"junk" * 500), ("a.jsonl", b"root:x:0:0:secret\n")],
)
def test_damaged_files(
    tmp_path: Path, name: str, content: bytes, capfd: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        opened(tmp_path, kind="hf", path=name)
    golden(caught.value)
    assert "secret" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "label",
    [
        [1.5] * COUNT,
        [-2] * COUNT,
        [[1]] * COUNT,
    ],
)
def test_labels_that_are_none(tmp_path: Path, label: list[Any], golden: Golden) -> None:
    write_parquet(tmp_path / "a.parquet", label=label)
    with pytest.raises(DataError) as caught:
        opened(tmp_path, kind="hf", path="a.parquet")
    golden(caught.value)
    assert opened(tmp_path, kind="hf", path="a.parquet", label_column=None).labels() is None
