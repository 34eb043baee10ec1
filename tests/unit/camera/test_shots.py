"""Shots are found, ordered and read in every usual form, and mistakes are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from robaudit.camera.shots import find_scenes
from robaudit.errors import DataError, RobauditError, SampleError
from robaudit.spec.model import ImageOptions
from tests.golden import Golden

AS_THEY_ARE = ImageOptions(kind="images").of_photos()
RANDOM = np.random.default_rng(0)
GREY = RANDOM.integers(20, 230, (4, 12, 20), dtype=np.uint8)
COLOUR = RANDOM.integers(20, 230, (4, 12, 20, 3), dtype=np.uint8)
DEEP = GREY.astype(np.uint16) * 257


def saved(path: Path, array: NDArray[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, shots=array)
    else:
        Image.fromarray(array).save(path)
    return path


def folder_of(folder: Path, shots: dict[str, NDArray[Any]]) -> Path:
    for name, shot in shots.items():
        saved(folder / name, shot)
    return folder


def read(path: Path, options: ImageOptions = AS_THEY_ARE) -> list[NDArray[Any]]:
    """All shots of the only scene, divided by white."""
    (scene,) = find_scenes(path, options)
    shots = [scene.read(place) for place in range(len(scene.shots))]
    return [values / white for values, white in shots]


def names(path: Path) -> list[list[str]]:
    return [[Path(shot).name for shot in scene.shots] for scene in find_scenes(path, AS_THEY_ARE)]


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (COLOUR, COLOUR / 255),
        (np.moveaxis(COLOUR, -1, 1), COLOUR / 255),
        (np.asfortranarray(COLOUR), COLOUR / 255),
        (GREY, GREY[..., None] / 255),
        (GREY[..., None], GREY[..., None] / 255),
        (GREY[:, None], GREY[..., None] / 255),
        (DEEP, GREY[..., None] / 255),
        (DEEP.astype(">u2"), GREY[..., None] / 255),
        (GREY / 255, GREY[..., None] / 255),
        ((GREY / 255).astype(">f4"), GREY[..., None] / 255),
        ((COLOUR / 255).astype(np.float16), COLOUR / 255),
    ],
)
def test_stacks_of_every_layout_and_type(
    suffix: str, array: NDArray[Any], expected: NDArray[Any], tmp_path: Path
) -> None:
    shots = read(saved(tmp_path / f"shots{suffix}", array))
    # Of 11 bits, the last one is 2^-11 at most, and is rounded.
    error = 2**-12 if array.dtype == np.float16 else 1e-7
    assert np.allclose(shots, np.moveaxis(expected, -1, 1), rtol=0, atol=error)


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".npy"])
@pytest.mark.parametrize("array", [GREY, COLOUR, DEEP])
def test_a_file_for_each_shot(suffix: str, array: NDArray[Any], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {f"{number}{suffix}": array[number] for number in range(4)})
    white = 65535 if array.dtype == np.uint16 else 255
    expected = array[..., None] if array.ndim == 3 else array
    assert np.allclose(read(folder), np.moveaxis(expected, -1, 1) / white)


def test_transparency_is_left_out(tmp_path: Path) -> None:
    opaque = np.full((4, 12, 20, 1), 255, dtype=np.uint8)
    rgba = np.concatenate([COLOUR, opaque], axis=3)
    folder = folder_of(tmp_path, {f"{number}.png": rgba[number] for number in range(4)})
    assert np.allclose(read(folder), np.moveaxis(COLOUR, -1, 1) / 255)


def test_shots_are_upright(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    for number in range(2):
        Image.fromarray(COLOUR[number]).save(tmp_path / f"{number}.png", exif=turned)
    assert read(tmp_path)[0].shape == (3, 20, 12)


def test_shots_are_prepared_as_the_spec_says(tmp_path: Path) -> None:
    options = ImageOptions(kind="images", resize=10, crop=8, channels=1)
    folder = folder_of(tmp_path / "files", {f"{place}.png": COLOUR[place] for place in range(2)})
    stack = saved(tmp_path / "stack.npy", COLOUR[:2])
    assert read(folder, options)[0].shape == (1, 8, 8)
    assert np.array_equal(read(folder, options), read(stack, options))


def test_neighbours_in_time_are_neighbours(tmp_path: Path) -> None:
    shots = [f"shot{number}.png" for number in (1, 2, 9, 10, 11, 100)]
    folder_of(tmp_path, dict.fromkeys(reversed(shots), GREY[0]))
    assert names(tmp_path) == [shots]


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    folder_of(tmp_path, {"a.png": GREY[0], "b.PNG": GREY[1]})
    (tmp_path / "._a.png").write_bytes(b"of a Mac")
    (tmp_path / "notes.txt").write_text("ISO 800")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(DataError, match="folders of shots such as 'loop'"):
        find_scenes(tmp_path, AS_THEY_ARE)
    (tmp_path / "loop").unlink()
    assert names(tmp_path) == [["a.png", "b.PNG"]]


def test_scenes_in_natural_order(tmp_path: Path) -> None:
    for scene in ("iso100", "iso1600", "iso200"):
        folder_of(tmp_path / scene, {"a.png": GREY[0], "b.png": GREY[1]})
    saved(tmp_path / "stacks" / "dark.npy", GREY)
    saved(tmp_path / "stacks" / "bright.npy", GREY)
    found = find_scenes(tmp_path, AS_THEY_ARE)
    assert [scene.name for scene in found] == ["iso100", "iso200", "iso1600", "bright", "dark"]


def test_a_name_is_one_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a\n\x1b[31mb", {"a.png": GREY[0], "b.png": GREY[1]})
    (scene,) = find_scenes(folder, AS_THEY_ARE)
    assert scene.name == r"a\n\x1b[31mb"


def test_the_present_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "desk", {"a.png": GREY[0], "b.png": GREY[1]})
    monkeypatch.chdir(folder)
    (scene,) = find_scenes(Path(), AS_THEY_ARE)
    assert scene.name == "desk"


def with_value(value: float) -> NDArray[Any]:
    array: NDArray[Any] = GREY / 255
    array[2, 3, 3] = value
    return array


WRONG_ARRAYS = {
    "objects": np.array([GREY[0], None], dtype=object),
    "int64": GREY.astype(np.int64),
    "boolean": GREY > 100,
    "complex": GREY.astype(complex),
    "text": np.array(["a", "b"]),
    "none": GREY[:0],
    "no-rows": GREY[:, :0],
    "number": np.array(3),
    "one-grey": GREY[0],
    "one": GREY[:1],
    "three-grey-or-one-colour": GREY[:3],
    "one-colour": COLOUR[0],
    "five-axes": COLOUR[None],
    "four-channels": np.concatenate([COLOUR, COLOUR[..., :1]], axis=3),
    "seven-rows": GREY[:, :7],
    "nan": with_value(np.nan),
    "infinite": with_value(np.inf),
    "negative": with_value(-0.5),
    "undivided": GREY.astype(np.float32),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_wrong_arrays(name: str, tmp_path: Path, golden: Golden) -> None:
    path = saved(tmp_path / "shots.npy", WRONG_ARRAYS[name])
    with golden.raises(RobauditError):
        read(path)


def test_wrong_npz_files(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "shots.npz"
    np.savez(path)
    with golden.raises(DataError):
        read(path)
    np.savez(path, x=GREY, y=GREY)
    with golden.raises(DataError):
        read(path)
    np.savez(path, images=GREY, labels=np.arange(4))
    assert len(read(path)) == 4
    path.write_bytes(b"PK, and no more")
    with golden.raises(DataError):
        read(path)


def test_damaged_arrays(tmp_path: Path, golden: Golden) -> None:
    path = saved(tmp_path / "shots.npy", GREY)
    whole = path.read_bytes()
    for content in (b"", b"junk", whole[:-100]):
        path.write_bytes(content)
        with golden.raises(DataError):
            read(path)


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def dangling(folder: Path) -> Path:
    folder.symlink_to(folder)
    return folder


def raw(folder: Path) -> Path:
    folder.mkdir()
    (folder / "IMG_1.HEIC").write_bytes(b"photo")
    (folder / "IMG_1.json").write_text("{}")
    return folder


def beside(folder: Path) -> Path:
    folder_of(folder / "old", {"a.png": GREY[0]})
    return folder_of(folder, {"a.png": GREY[0], "b.png": GREY[1]})


def single(folder: Path) -> Path:
    folder_of(folder / "dark", {"a.png": GREY[0], "b.png": GREY[1]})
    folder_of(folder / "bright", {"a.png": GREY[0]})
    return folder


WRONG_FOLDERS: dict[str, Callable[[Path], Path]] = {
    "missing": lambda folder: folder,
    "missing-stack": lambda folder: folder.with_suffix(".npy"),
    "file": lambda folder: saved(folder / "a.png", GREY[0]),
    "empty": empty,
    "loop": dangling,
    "raw": raw,
    "beside": beside,
    "single": single,
    "stack-and-shot": lambda folder: folder_of(folder, {"a.npy": GREY, "b.png": GREY[0]}),
    "twice": lambda folder: folder_of(folder, {"1.png": GREY[0], "1.tiff": GREY[0]}),
}


@pytest.mark.parametrize("name", WRONG_FOLDERS)
def test_wrong_folders(name: str, tmp_path: Path, golden: Golden) -> None:
    path = WRONG_FOLDERS[name](tmp_path / "desk")
    with golden.raises(DataError):
        find_scenes(path, AS_THEY_ARE)


def test_a_broken_file_among_good_ones(tmp_path: Path, golden: Golden) -> None:
    folder = folder_of(tmp_path, {f"{number}.png": COLOUR[number] for number in range(4)})
    whole = (folder / "1.png").read_bytes()
    for content in (b"", b"no image", whole[: len(whole) // 2]):
        (folder / "1.png").write_bytes(content)
        with golden.raises(SampleError):
            read(folder)


def test_arrays_that_cannot_be_resized(tmp_path: Path, golden: Golden) -> None:
    options = ImageOptions(kind="images", resize=10, crop=8)
    path = saved(tmp_path / "shots.npy", COLOUR / 255)
    with golden.raises(SampleError):
        read(path, options)
