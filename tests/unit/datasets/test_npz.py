"""A .npz file as a data set: layouts, scales, labels, laziness, and every way it can be wrong."""

from __future__ import annotations

import io
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from robaudit.errors import SampleError
from tests.golden import Golden
from tests.unit.datasets import reading

IMAGES = np.arange(4 * 3 * 5 * 6, dtype=np.uint8).reshape(4, 3, 5, 6)
LABELS = np.array([3, 0, 2, 1])


opened = partial(reading.opened, kind="npz", path="data.npz")
message = partial(reading.refusal, kind="npz", path="data.npz")


def npy_header(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def test_pixels_labels_and_ids(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    dataset = opened(tmp_path)
    assert reading.ids(dataset) == ["0", "1", "2", "3"]
    assert reading.labels(dataset) == LABELS.tolist()
    for index in (3, 0, 2, 1):  # any order
        sample = dataset[index]
        assert (sample.id, sample.label, sample.pixels.dtype) == (
            str(index),
            LABELS[index],
            torch.float64,
        )
        torch.testing.assert_close(
            sample.pixels, torch.from_numpy(IMAGES[index]).double() / 255, rtol=0, atol=0
        )


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("dtype", ["U", "S"])
def test_labels_as_text(dtype: str, shape: tuple[int, ...], tmp_path: Path, golden: Golden) -> None:
    texts = np.array(["owl", "cat", " Cat ", ""]).astype(dtype).reshape(shape)
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=texts)
    dataset = opened(tmp_path, class_names=("dog", "cat", "owl"))
    assert reading.labels(dataset) == [2, 1, 1, -1]
    assert dataset[0].label == 2
    golden(message(tmp_path, class_names=("dog", "cat")))
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=np.array(["b", "a", "b", "c"]))
    assert reading.labels(
        opened(tmp_path, class_names=("x", "y", "z"), class_ids=("c", "b", "a"))
    ) == [1, 2, 1, 0]
    named = opened(tmp_path)
    assert (reading.labels(named), named.class_names) == ([1, 0, 1, 2], ("a", "b", "c"))
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=np.array(["10", "2", "0", "1"]))
    assert reading.labels(opened(tmp_path)) == [10, 2, 0, 1]


@settings(max_examples=15, deadline=None)
@given(
    images=hnp.arrays(
        np.uint8,
        st.tuples(st.integers(1, 5), st.sampled_from([1, 3]), st.integers(4, 6), st.integers(4, 6)),
    ),
    layout=st.sampled_from(["nchw", "nhwc"]),
    compressed=st.booleans(),
    fortran=st.booleans(),
    dtype=st.sampled_from(["u1", "<f4", ">f4", "<f8", "<f2"]),
    explicit=st.booleans(),
)
def test_every_layout_gives_the_same_pixels(
    tmp_path_factory: pytest.TempPathFactory,
    images: NDArray[np.uint8],
    layout: str,
    compressed: bool,
    fortran: bool,
    dtype: str,
    explicit: bool,
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    stored = (
        images.astype(dtype).transpose(0, 2, 3, 1) if layout == "nhwc" else images.astype(dtype)
    )
    stored = np.asfortranarray(stored) if fortran else np.ascontiguousarray(stored)
    (np.savez_compressed if compressed else np.savez)(folder / "data.npz", images=stored)
    dataset = opened(folder, labels_key=None, scale=255, layout=layout if explicit else None)
    read = torch.stack([dataset[i].pixels for i in range(len(dataset))])
    torch.testing.assert_close(read, torch.from_numpy(images).double() / 255, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dtype", "scale", "largest"),
    [
        ("u1", None, 200 / 255),
        ("u1", 200, 1.0),
        ("f8", None, 200.0),
        ("u2", 400, 0.5),
        ("i8", 100, 2.0),
    ],
)
def test_scale(tmp_path: Path, dtype: str, scale: float | None, largest: float) -> None:
    np.savez(tmp_path / "data.npz", images=np.full((1, 1, 4, 4), 200, dtype))
    assert opened(tmp_path, labels_key=None, scale=scale)[0].pixels.max().item() == pytest.approx(
        largest
    )


def test_labels_may_be_a_column_or_absent(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "data.npz", images=IMAGES, labels=LABELS.astype(np.uint8).reshape(4, 1), y=LABELS
    )
    assert opened(tmp_path)[0].label == 3
    assert opened(tmp_path, labels_key=None)[0].label is None
    assert opened(tmp_path, labels_key=None).labels() is None
    assert opened(tmp_path, labels_key="y")[1].label == 0


def test_nan_pixels_are_one_sample_s_problem(tmp_path: Path, golden: Golden) -> None:
    images = np.zeros((2, 1, 4, 4), np.float32)
    images[1, 0, 0, 0] = np.nan
    np.savez(tmp_path / "data.npz", images=images)
    dataset = opened(tmp_path, labels_key=None)
    assert dataset[0].pixels.sum() == 0
    with pytest.raises(SampleError) as caught:
        dataset[1]
    golden(caught.value)


@pytest.mark.parametrize("dtype", [np.int64, np.complex64])
def test_pixels_without_a_scale(tmp_path: Path, dtype: Any, golden: Golden) -> None:
    np.savez(tmp_path / "data.npz", images=IMAGES.astype(dtype))
    with pytest.raises(SampleError) as caught:
        opened(tmp_path, labels_key=None)[0]
    golden(caught.value)


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ({}, {}),
        ({"image": IMAGES}, {}),
        ({"images": IMAGES, "targets": LABELS}, {}),
        ({"images": IMAGES.reshape(4, -1)}, {}),
        ({"images": IMAGES.astype(object)}, {}),
        ({"images": IMAGES}, {"layout": "nhw"}),
        ({"images": IMAGES[..., :3]}, {}),
        ({"images": IMAGES, "labels": LABELS[:3]}, {}),
        ({"images": IMAGES, "labels": LABELS + 0.5}, {}),
        ({"images": IMAGES, "labels": LABELS - 2}, {}),
        ({"images": IMAGES, "labels": LABELS}, {"class_names": ("a", "b", "a", "c")}),
    ],
)
def test_wrong_arrays(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], golden: Golden
) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    if len(arrays) == 1:
        options = {"labels_key": None, **options}
    said = message(tmp_path, **options)
    golden(said)
    assert not said.endswith(";")


def test_truncated_file(tmp_path: Path, golden: Golden) -> None:
    np.savez_compressed(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    content = (tmp_path / "data.npz").read_bytes()
    (tmp_path / "data.npz").write_bytes(content[: len(content) * 9 // 10])
    golden(message(tmp_path))


def test_an_array_that_does_not_fit_into_memory(tmp_path: Path, golden: Golden) -> None:
    """A bomb, or simply too much: refused before anything is expanded."""
    shape = (10**8, 1000, 1000)
    with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", npy_header(shape) + b"\0" * 100)
        archive.filelist[0].file_size = len(npy_header(shape)) + 10**14
    golden(message(tmp_path, labels_key=None))
