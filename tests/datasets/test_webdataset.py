"""WebDataset tars as a data set: keys, labels, and tars that are damaged or hostile."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from webdataset import tariterators

from robaudit.errors import DataError, SampleError
from tests.datasets.forms import COUNT, LABELS, PIXELS, encoded, opened, write_tar


def open_tar(folder: Path, path: str = "a.tar", **options: Any) -> Any:
    return opened(folder, kind="webdataset", path=path, **options)


def message(folder: Path, path: str = "a.tar", **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        open_tar(folder, path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_plain(path: Path, *members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda _: None) -> None:
    """A tar by Python's own writer, in which anything can be wrong."""
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            change(info)
            tar.addfile(info, io.BytesIO(content))


def test_the_library_sees_the_same(tmp_path: Path) -> None:
    with write_tar(tmp_path / "a.tar").open("rb") as file:
        files = [{"__url__": "a.tar", **member} for member in tariterators.tar_file_iterator(file)]
        theirs = list(tariterators.group_by_keys(files))
    ours = open_tar(tmp_path)
    assert len(ours) == len(theirs)
    for index, sample in enumerate(theirs):
        assert (ours[index].id, ours[index].label) == (sample["__key__"], int(sample["cls"]))
        pixels = np.asarray(Image.open(io.BytesIO(sample["png"])), float)
        assert np.array_equal(ours[index].pixels.numpy().transpose(1, 2, 0) * 255, pixels)


def test_names_of_samples(tmp_path: Path) -> None:
    image = encoded(0)
    write_plain(
        tmp_path / "a.tar",
        ("./x/a.b.png", image),
        ("./x/a.cls", b"1"),
        ("x.y/b.PNG", image),
        ("README", b"no sample"),
        ("x.y/._b.png", b"nor this"),
        ("ä" * 60 + "/" + "ö" * 60 + ".png", image),
    )
    dataset = open_tar(tmp_path)
    assert [dataset.sample_id(index) for index in range(3)] == ["x/a", "x.y/b", "ä" * 60 + "/" + "ö" * 60]
    assert dataset.labels().tolist() == [1, -1, -1]
    assert dataset[2].label is None


@pytest.mark.parametrize(
    ("sample", "options", "label", "names"),
    [
        ({"cls": 2}, {}, 2, None),
        ({"cls": b"fox\n"}, {}, 0, ("fox",)),
        ({"cls": b"fox\n"}, {"class_names": ("cat", "fox")}, 1, ("cat", "fox")),
        ({"json": {"label": 3}}, {}, 3, None),
        ({"json": {"label": "fox"}}, {}, 0, ("fox",)),
        ({"json": {"breed": 3}}, {"label_key": "json", "label_field": "breed"}, 3, None),
        ({"json": {"breed": 3}}, {}, -1, None),
        ({"meta.json": {"label": 3}}, {"label_key": "meta.json"}, 3, None),
        ({"cls": 1, "target.cls": 3}, {"label_key": "target.cls"}, 3, None),
        ({"cls": 1, "json": {"label": 3}}, {}, 1, None),
        ({"cls": 1, "json": {"label": 3}}, {"label_key": "JSON"}, 3, None),
        ({"txt": "a caption"}, {}, -1, None),
    ],
)
def test_labels(tmp_path: Path, sample: dict[str, Any], options: dict[str, Any], label: int, names: Any) -> None:
    write_tar(tmp_path / "a.tar", [{"__key__": "s", "png": encoded(0), **sample}])
    dataset = open_tar(tmp_path, **options)
    found = dataset.labels()
    assert (-1 if found is None else found.tolist()[0]) == label
    assert dataset[0].label == (None if label < 0 else label)
    assert dataset.class_names == names


@pytest.mark.parametrize(
    ("sample", "options", "says"),
    [
        ({"seg.png": encoded(1)}, {}, "a.tar, sample s: has 2 images (png, seg.png); choose one: image_key: png"),
        ({"cls": 1}, {"image_key": "jpg"}, "a.tar: has no images (files: .cls .png); set image_key to the extension of the images"),
        ({"cls": 1}, {"label_key": "json"}, "a.tar: has no label in a .json file (files: .cls .png); correct label_key or label_field"),
        ({"cls": b"-1"}, {}, "a.tar:1: the label '-1' is not a class index; "),
        ({"cls": b"\xff"}, {}, "a.tar, sample s: its .cls file is not UTF-8 text; "),
        ({"cls": b"1" * 2**21}, {}, "a.tar, sample s: its .cls file has 2097152 bytes; "),
        ({"json": b"{"}, {}, "a.tar, sample s: its .json file is not valid JSON; "),
        ({"json": {"label": [1]}}, {}, "a.tar, sample s: the label [1] in its .json file is no class index or name; set label_field"),
    ],
)
def test_bad_samples(tmp_path: Path, sample: dict[str, Any], options: dict[str, Any], says: str) -> None:
    members = {"png": encoded(0), **sample}
    write_tar(tmp_path / "a.tar", [{"__key__": "s", **members}])
    assert says in message(tmp_path, **options)


def test_both_images_can_be_chosen(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [{"__key__": "s", "png": encoded(0), "seg.png": encoded(1)}])
    assert np.array_equal(open_tar(tmp_path, image_key="seg.png")[0].pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[1].astype(float))


def test_a_sample_without_an_image_is_skipped_like_a_bad_one(tmp_path: Path) -> None:
    samples: list[dict[str, Any]] = [
        {"__key__": "s0", "cls": 1},
        {"__key__": "s1", "png": encoded(0), "cls": 1},
        {"__key__": "s2", "png": b""},
    ]
    write_tar(tmp_path / "a.tar", samples)
    dataset = open_tar(tmp_path)
    for index in (0, 2):
        with pytest.raises(SampleError, match=r"^a.tar, sample s\d: has no image, or an empty one; "):
            dataset[index]
    assert dataset[1].label == 1


def test_shards(tmp_path: Path) -> None:
    for name in ("b/2", "a/1", "a/3"):
        write_tar(tmp_path / f"tars/{name}.tar")
    dataset = open_tar(tmp_path, "tars")
    assert [dataset.sample_id(index) for index in (0, COUNT, 2 * COUNT)] == ["1.tar/s000", "3.tar/s000", "2.tar/s000"]
    assert open_tar(tmp_path, "tars/a/*.tar").labels().tolist() == 2 * LABELS
    assert len(open_tar(tmp_path, "tars/a/{1..1}.tar")) == COUNT
    assert "tars/a/2.tar: no such file in " in message(tmp_path, "tars/a/{1..3}.tar")
    assert "tars/{3..1}.tar: {3..1} is not a range of files; for example {000..049}" in message(tmp_path, "tars/{3..1}.tar")


def test_the_same_sample_twice(tmp_path: Path) -> None:
    write_plain(tmp_path / "a.tar", ("s.png", encoded(0)), ("t.png", encoded(1)), ("s.cls", b"1"))
    assert "a.tar: has files of the sample 's' in two places; the files of a sample follow each other" in message(tmp_path)


def linked(info: tarfile.TarInfo) -> None:
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


def hard(info: tarfile.TarInfo) -> None:
    info.type, info.linkname, info.size = tarfile.LNKTYPE, "other.png", 0


def device(info: tarfile.TarInfo) -> None:
    info.type, info.size = tarfile.CHRTYPE, 0


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("s.png", linked, "a.tar: its member 's.png' is a link; a tar of samples holds plain files only"),
        ("s.png", hard, "a.tar: its member 's.png' is a link; "),
        ("s.png", device, "a.tar: its member 's.png' is no regular file; "),
        ("/etc/s.png", lambda _: None, "a.tar: its member '/etc/s.png' leads out of the tar; give it a relative name without .."),
        ("a/../../s.png", lambda _: None, "a.tar: its member 'a/../../s.png' leads out of the tar; "),
    ],
)
def test_hostile_members(tmp_path: Path, name: str, change: Callable[[tarfile.TarInfo], None], says: str) -> None:
    write_plain(tmp_path / "a.tar", (name, encoded(0)), change=change)
    assert says in message(tmp_path)


def test_a_sparse_file(tmp_path: Path) -> None:
    def sparse(info: tarfile.TarInfo) -> None:
        info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,4", "GNU.sparse.size": str(10**12)}

    write_plain(tmp_path / "a.tar", ("s.png", encoded(0)), change=sparse)
    assert "a.tar: its member 's.png' is a sparse file; " in message(tmp_path)


def test_control_characters_in_names(tmp_path: Path) -> None:
    write_plain(tmp_path / "a.tar", ("\x1b[2J/../s.png", encoded(0)))
    assert "\\x1b[2J" in message(tmp_path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda _: b"", "is not a tar, or is damaged (empty file); copy or write the tar again"),
        (lambda _: b"x" * 3000, "is not a tar, or is damaged ("),
        (gzip.compress, "is compressed, so its files cannot be read one at a time; decompress it"),
        (lambda content: content[: 512 * 2 + 100], "is not a tar, or is damaged ("),
        (lambda content: content[:3600], "a.tar: is truncated (in 's000.png'); copy or write the tar again"),
        (lambda content: content[:2048] + b"x" * 512 + content[2560:], "a.tar: is "),
    ],
)
def test_damaged_tars(tmp_path: Path, damage: Callable[[bytes], bytes], says: str) -> None:
    (tmp_path / "a.tar").write_bytes(damage(write_tar(tmp_path / "a.tar").read_bytes()))
    assert says in message(tmp_path)


def test_every_flipped_header_is_noticed_or_harmless(tmp_path: Path) -> None:
    """No damage of a header loses samples without a word."""
    whole = write_tar(tmp_path / "a.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        headers = [member.offset for member in tar]
    for offset in headers:
        damaged = bytearray(whole)
        damaged[offset + 126] ^= 1  # a digit of the size: the checksum no longer fits
        (tmp_path / "a.tar").write_bytes(damaged)
        assert "a.tar: is " in message(tmp_path)


def test_a_tar_that_shrinks_afterwards(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar")
    dataset = open_tar(tmp_path)
    (tmp_path / "a.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:3000])
    with pytest.raises(SampleError, match=rf"^a.tar, sample s{COUNT - 1:03}: "):
        dataset[COUNT - 1]


def test_memory_of_many_samples(tmp_path: Path) -> None:
    count = 4000
    write_plain(tmp_path / "a.tar", *(part for i in range(count) for part in ((f"{i:08}.png", b"x"), (f"{i:08}.cls", b"1"))))
    open_tar(tmp_path)
    tracemalloc.start()
    try:
        dataset = open_tar(tmp_path)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset) == count
    assert held / count < 60
    assert peak / count < 120
