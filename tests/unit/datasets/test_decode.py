"""Image files as pixels: modes, depths, transparency, resizing, and damaged files."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torchvision.transforms import functional

from robaudit.datasets.decode import file_pixels, image_pixels, is_turned
from robaudit.datasets.in_memory import open_in_memory
from robaudit.errors import SampleError
from robaudit.spec.model import ImageOptions
from tests.golden import Golden

RNG = np.random.default_rng(3)
COLOUR = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
GREY16 = RNG.integers(0, 65536, (6, 5), dtype=np.uint16)
EXPECTED = torch.from_numpy(COLOUR).permute(2, 0, 1).double() / 255


def read(path: Path, **options: Any) -> torch.Tensor:
    return file_pixels(
        path.name,
        path.name,
        path.parent,
        Path(os.path.realpath(path.parent)),
        ImageOptions(kind="images", **options),
    )


def message(path: Path, **options: Any) -> str:
    with pytest.raises(SampleError) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.png", "a.tiff", "a.webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(tmp_path: Path, name: str, orientation: int) -> None:
    """As the library ``datasets`` shows them, and from memory as from files."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(COLOUR).save(path := tmp_path / name, exif=exif, lossless=True)
    with Image.open(path) as image:
        shown = np.asarray(ImageOps.exif_transpose(image))
    expected = torch.from_numpy(shown.copy()).permute(2, 0, 1).double() / 255
    torch.testing.assert_close(read(path), expected, rtol=0, atol=0)
    with Image.open(path) as image:
        torch.testing.assert_close(open_in_memory([image])[0].pixels, expected, rtol=0, atol=0)


def test_formats_of_phones_are_named(tmp_path: Path, golden: Golden) -> None:
    for brand in (b"heic", b"mif1", b"avif"):
        path = tmp_path / "a.jpg"
        path.write_bytes(b"\0\0\0\x18ftyp" + brand + bytes(20))
        golden(message(path))


@pytest.mark.parametrize("orientation", [1, 6])
def test_photos_that_are_turned_are_known_by_their_headers(
    tmp_path: Path, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(COLOUR).save(path := tmp_path / "a.jpg", exif=exif)
    where = (path.name, path.name, tmp_path, Path(os.path.realpath(tmp_path)))
    assert is_turned(*where) == (orientation == 6)
    path.write_bytes(b"damaged")
    assert not is_turned(*where)


def test_sixteen_bits_are_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(GREY16).save(path := tmp_path / "a.png", exif=exif)
    expected = torch.from_numpy(GREY16[::-1, ::-1].astype(np.float64) / 65535)[None]
    torch.testing.assert_close(read(path, channels=1), expected, rtol=0, atol=1e-6)


def test_damaged_metadata_leave_the_image_usable(tmp_path: Path) -> None:
    Image.fromarray(COLOUR).save(path := tmp_path / "a.png", exif=b"Exif\0\0II*\0\xff\xff")
    torch.testing.assert_close(read(path), EXPECTED, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["a.png", "a.tiff", "a.pgm"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_grey(tmp_path: Path, name: str, channels: int) -> None:
    path = tmp_path / name
    if name == "a.pgm":
        path.write_bytes(b"P5 5 6 65535\n" + GREY16.astype(">u2").tobytes())
    else:
        Image.fromarray(GREY16).save(path)
    expected = torch.from_numpy(GREY16.astype(np.float64) / 65535).repeat(channels, 1, 1)
    torch.testing.assert_close(read(path, channels=channels), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_pixels_of_unknown_scale(tmp_path: Path, dtype: Any, golden: Golden) -> None:
    Image.fromarray(GREY16.astype(dtype)).save(path := tmp_path / "a.tiff")
    golden(message(path))


def test_transparency_is_flattened_onto_white(tmp_path: Path) -> None:
    alpha = np.array([[0, 255]], np.uint8)
    colour = np.array([[[10, 20, 30], [10, 20, 30]]], np.uint8)
    Image.fromarray(np.dstack([colour, alpha])).save(path := tmp_path / "a.png")
    assert (read(path) * 255).round().int()[:, 0].T.tolist() == [[255, 255, 255], [10, 20, 30]]
    Image.fromarray(np.dstack([colour[..., 0], alpha])).save(path)
    assert (read(path, channels=1) * 255).round().int()[0, 0].tolist() == [255, 10]


@pytest.mark.parametrize("mode", ["1", "P", "CMYK", "YCbCr", "LA"])
def test_other_modes(mode: str) -> None:
    assert image_pixels(Image.new(mode, (4, 3)), "a", ImageOptions(kind="images")).shape == (
        3,
        3,
        4,
    )


@settings(max_examples=15, deadline=None)
@given(
    width=st.integers(5, 40),
    height=st.integers(5, 40),
    resize=st.one_of(st.integers(6, 30), st.tuples(st.integers(6, 30), st.integers(6, 30))),
    crop=st.one_of(st.none(), st.integers(1, 6), st.tuples(st.integers(1, 6), st.integers(1, 6))),
)
def test_resize_and_crop_equal_torchvision_s(
    width: int, height: int, resize: Any, crop: Any
) -> None:
    image = Image.fromarray(
        np.random.default_rng(width * 100 + height).integers(
            0, 256, (height, width, 3), dtype=np.uint8
        )
    )
    expected = functional.resize(image, resize)
    if crop is not None:
        expected = functional.center_crop(expected, crop)
    pixels = image_pixels(image, "a", ImageOptions(kind="images", resize=resize, crop=crop))
    torch.testing.assert_close(
        pixels, functional.pil_to_tensor(expected).double() / 255, rtol=0, atol=0
    )


def test_smaller_than_the_crop(tmp_path: Path, golden: Golden) -> None:
    Image.fromarray(COLOUR).save(path := tmp_path / "a.png")
    golden(message(path, crop=(6, 7)))


def test_images_too_large_to_audit(tmp_path: Path, golden: Golden) -> None:
    Image.new("L", (4096, 4097)).save(path := tmp_path / "a.png")
    golden(message(path))
    golden(message(path, resize=4100))
    assert read(path, resize=[8, 8], channels=1).shape == (1, 8, 8)


def png_claiming(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 30_000])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(
    tmp_path: Path, side: int, golden: Golden
) -> None:
    (tmp_path / "a.png").write_bytes(png_claiming(side))
    golden(message(tmp_path / "a.png"))


def test_what_is_no_regular_file_or_empty_or_endless(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "folder.png").mkdir()
    golden(message(tmp_path / "folder.png"))
    os.mkfifo(tmp_path / "pipe.png")
    golden(message(tmp_path / "pipe.png"))
    (tmp_path / "a.png").touch()
    golden(message(tmp_path / "a.png"))
    os.truncate(tmp_path / "a.png", 2**29 + 1)
    golden(message(tmp_path / "a.png"))


@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff"])
def test_truncated(tmp_path: Path, suffix: str, golden: Golden) -> None:
    noise = RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path := tmp_path / f"a.{suffix}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    golden(message(path))


def test_a_sliver_is_not_blown_up(tmp_path: Path, golden: Golden) -> None:
    Image.new("L", (100_000, 1)).save(path := tmp_path / "a.png")
    golden(message(path, resize=224))
