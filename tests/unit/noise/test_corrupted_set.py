"""Corrupted copies from sets like CIFAR-10-C and ImageNet-C: the right copy for each sample, and
one clear line for everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from robaudit.errors import DataError, RobauditError, SampleError, SpecError
from robaudit.noise.corrupted_set import CorruptedSet
from tests.golden import Golden
from tests.unit.noise.corrupting import photographs

SAMPLES = 7
SIDE = 12
Copies = NDArray[np.uint8]


def copies(name: str = "fog", channels: int = 3) -> Copies:
    """(5 N, height, width, channels) of random pixels."""
    seed = sum(name.encode())
    return np.random.default_rng(seed).integers(
        0, 256, (5 * SAMPLES, SIDE, SIDE, channels), dtype=np.uint8
    )


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """A set like CIFAR-10-C."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for name in ("fog", "jpeg_compression"):
        np.save(folder / f"{name}.npy", copies(name))
    np.save(folder / "labels.npy", np.tile(np.arange(SAMPLES, dtype=np.uint8) % 3, 5))
    return folder


IDS = ["n01/a.png", "n01/b.png", "n02/c.png"]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A set like ImageNet-C, with images that lose nothing when stored: PNG, one of them named
    .JPEG."""
    folder = tmp_path / "ImageNet-C"
    for name in ("fog", "snow"):
        for severity in range(1, 6):
            for number, sample in enumerate(IDS):
                path = folder / name / str(severity) / sample
                path.parent.mkdir(parents=True, exist_ok=True)
                image = Image.fromarray(copies(name)[(severity - 1) * SAMPLES + number])
                image.save(path.with_suffix(".JPEG") if number == 1 else path, "PNG")
    return folder


def kind(folder: Path, name: str = "fog") -> CorruptedSet:
    return CorruptedSet(name=name, path=folder)


def noisy(
    form: CorruptedSet,
    ids: list[str],
    severity: float,
    channels: int = 3,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    x = photographs(len(ids), (channels, SIDE, SIDE), dtype=dtype)
    before = x.clone()
    z = torch.zeros(len(ids), 0)
    found = form.noisy(x, z, severity, ids=ids)
    assert torch.equal(x, before)
    assert found.shape == x.shape
    assert found.dtype == dtype
    return found


def pixels(images: Copies, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255).to(dtype)


@pytest.mark.parametrize("severity", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_from_arrays(arrays: Path, severity: int, dtype: torch.dtype) -> None:
    rows = [4, 0, 6, 4]
    found = noisy(kind(arrays), [str(row) for row in rows], severity, dtype=dtype)
    assert torch.equal(
        found, pixels(copies("fog")[[(severity - 1) * SAMPLES + row for row in rows]], dtype)
    )


@pytest.mark.parametrize("severity", [1, 4])
def test_copies_from_folders(folders: Path, severity: int) -> None:
    """Whatever the suffix: the second image is stored as .JPEG."""
    found = noisy(kind(folders, "snow"), [IDS[2], IDS[0], IDS[1]], severity)
    assert torch.equal(
        found, pixels(copies("snow")[[(severity - 1) * SAMPLES + number for number in (2, 0, 1)]])
    )


def test_all_the_same_by_batch(arrays: Path, folders: Path) -> None:
    for form, ids in ((kind(arrays), ["0", "1", "2"]), (kind(folders), IDS)):
        whole = noisy(form, ids, 3)
        assert torch.equal(torch.cat([noisy(form, [name], 3) for name in ids]), whole)
        one = form.noisy(photographs(1, (3, SIDE, SIDE)), torch.zeros(4, 0), 3, ids=ids[:1])
        assert torch.equal(one, whole[:1].repeat(4, 1, 1, 1))


@pytest.mark.parametrize("flat", [True, False])
def test_grey_images(tmp_path: Path, flat: bool) -> None:
    images = copies(channels=1)
    np.save(tmp_path / "fog.npy", images[..., 0] if flat else images)
    kind(tmp_path).check((1, SIDE, SIDE), [1.0])
    assert torch.equal(
        noisy(kind(tmp_path), ["3"], 2, channels=1), pixels(images[SAMPLES + 3 : SAMPLES + 4])
    )


def test_the_arrays_are_watched(arrays: Path, folders: Path) -> None:
    assert kind(arrays).files == (arrays / "fog.npy", arrays / "labels.npy")
    assert kind(folders).files == ()
    (arrays / "labels.npy").unlink()
    assert kind(arrays).files == (arrays / "fog.npy",)


# Labels


def test_labels_that_agree(arrays: Path, folders: Path) -> None:
    kind(arrays).check_labels(zip(["0", "5", "6"], [0, 2, 0], strict=True))
    kind(arrays).check_labels(zip(["0", "5", "6"], [None, 2, -1], strict=True))
    kind(folders).check_labels(zip(IDS, [0, 0, 1], strict=True))
    np.save(arrays / "labels.npy", np.arange(SAMPLES) % 3)  # once for all severities
    kind(arrays).check_labels(
        zip([str(i) for i in range(SAMPLES)], [i % 3 for i in range(SAMPLES)], strict=True)
    )


def test_labels_that_differ_are_reported(arrays: Path, golden: Golden) -> None:
    with pytest.raises(DataError) as caught:
        kind(arrays).check_labels(zip(["0", "1", "2"], [0, 0, 0], strict=True))
    golden(caught.value)


# Mistakes


def one_line(call: Callable[[], object], error: type[RobauditError]) -> str:
    with pytest.raises(error) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["jpeg", "frog", "zzz"])
def test_no_such_corruption(arrays: Path, name: str, golden: Golden) -> None:
    text = one_line(lambda: kind(arrays, name).check((3, SIDE, SIDE), [1.0]), SpecError)
    golden(text)


def test_a_number_of_rows_that_five_severities_cannot_have(arrays: Path, golden: Golden) -> None:
    np.save(arrays / "fog.npy", copies()[:-1])
    golden(one_line(lambda: noisy(kind(arrays), ["0"], 1), DataError))


@pytest.mark.parametrize(
    "array", [copies().astype(np.float32), copies()[0, 0]], ids=["float", "one row"]
)
def test_arrays_of_another_kind(arrays: Path, array: NDArray[np.generic], golden: Golden) -> None:
    np.save(arrays / "fog.npy", array)
    golden(one_line(lambda: noisy(kind(arrays), ["0"], 1), DataError))


def test_an_object_array_is_not_unpickled(arrays: Path, golden: Golden) -> None:
    np.save(arrays / "fog.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    golden(one_line(lambda: kind(arrays).check((3, SIDE, SIDE), [1.0]), SpecError))


@pytest.mark.parametrize(
    "name",
    [
        "-1",
        "١",
        str(SAMPLES),
    ],
)
def test_ids_that_are_no_rows(arrays: Path, name: str, golden: Golden) -> None:
    golden(one_line(lambda: noisy(kind(arrays), [name], 1), SampleError))


def test_images_of_another_size(arrays: Path, folders: Path, golden: Golden) -> None:
    text = one_line(lambda: kind(arrays).check((3, 28, 28), [1.0]), DataError)
    golden(text)
    golden(one_line(lambda: kind(arrays).check((1, SIDE, SIDE), [1.0]), DataError))
    x = photographs(1, (3, 28, 28))
    text = one_line(lambda: kind(folders).noisy(x, torch.zeros(1, 0), 1, ids=IDS[:1]), SampleError)
    golden(text)
    golden(one_line(lambda: kind(folders).check((2, SIDE, SIDE), [1.0]), SpecError))


def test_a_missing_image(folders: Path, golden: Golden) -> None:
    golden(one_line(lambda: noisy(kind(folders), ["n01/z.png"], 1), SampleError))
    golden(one_line(lambda: noisy(kind(folders), ["17"], 1), SampleError))


@pytest.mark.parametrize("name", ["../../secret.png", "/etc/passwd", "", "."])
def test_ids_that_lead_out_of_the_set(folders: Path, name: str, golden: Golden) -> None:
    golden(one_line(lambda: noisy(kind(folders), [name], 1), SampleError))


def test_a_damaged_image(folders: Path, golden: Golden) -> None:
    (folders / "fog" / "1" / IDS[0]).write_bytes(b"no image")
    golden(one_line(lambda: noisy(kind(folders), IDS[:1], 1), SampleError))
    whole = (folders / "fog" / "2" / IDS[0]).read_bytes()
    (folders / "fog" / "2" / IDS[0]).write_bytes(whole[: len(whole) // 2])
    golden(one_line(lambda: noisy(kind(folders), IDS[:1], 2), SampleError))
