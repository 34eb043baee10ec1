"""Find the shots of still scenes, and read them one at a time, prepared as the model's input."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from robaudit.datasets.dataset import existing_path, name_text
from robaudit.datasets.decode import file_values, image_values, layout_of
from robaudit.datasets.image_folder import is_image
from robaudit.datasets.listing import visible_folders
from robaudit.errors import DataError, SampleError
from robaudit.spec.model import ImageOptions
from robaudit.text import first_line, printable

Values = NDArray[Any]
"""The numbers of a shot as they are stored, (channels, height, width)."""
FEWEST = 2
"""The fewest shots of a scene."""
_ARRAYS = (".npy", ".npz")
_NAMES = ("shots", "frames", "images")  # of the stack in a .npz file with several arrays
_SMALLEST = 8  # pixels of a side
# Photos of phones and cameras that Pillow cannot read, or not as they were taken.
_NOT_READ = frozenset((".heic", ".heif", ".avif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw"))
_WHITE = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}


@dataclass(frozen=True)
class Scene:
    """The shots of one still scene, in the order in which they were taken.

    Attributes:
        name: of its folder or file.
        shots: the names of the shots, for messages.
        load: reads the numbers of a shot by its place, and the number of white.
    """

    name: str
    shots: Sequence[str]
    load: Callable[[int], tuple[Values, float]]

    def read(self, place: int) -> tuple[Values, float]:
        """The numbers of a shot (channels, height, width), and the number of white.

        Raises:
            SampleError: it cannot be read, or its numbers are not those of an image.
        """
        values, white = self.load(place)
        where = self.shots[place]
        if min(values.shape[1:]) < _SMALLEST:
            _, height, width = values.shape
            what = f"has {height} x {width} pixels"
            raise SampleError(where, what, f"give at least {_SMALLEST} x {_SMALLEST}")
        if values.dtype.kind == "f":
            _refuse_outside(values, white, where)
        return values, white


def _refuse_outside(values: Values, white: float, where: str) -> None:
    """Refuse floats that are no pixels.

    Raises:
        SampleError: a number is outside [0, 1], or is none.
    """
    least = float(values.min()) / white
    most = float(values.max()) / white
    if not (np.isfinite(least) and np.isfinite(most)):
        raise SampleError(where, "has numbers that are NaN or infinite", "repair or leave it out")
    if least < 0 or most > 1:
        what = f"has numbers from {least:.4g} to {most:.4g}"
        raise SampleError(where, what, "divide them by the number of white: pixels are in [0, 1]")


def find_scenes(path: Path, options: ImageOptions) -> list[Scene]:
    """The scenes in a folder of shots, in a folder of such folders, or in a file of a stack.

    Args:
        path: the folder, or a .npy or .npz file of shots (n, c, h, w), (n, h, w, c) or (n, h, w).
        options: how the shots are prepared; ``channels`` None keeps grey grey and colour colour.

    Returns:
        The scenes by name, each with two shots or more.

    Raises:
        DataError: there are no shots, or a single one, or a file is damaged.
    """
    remedy = "give a folder of shots, or a .npy or .npz stack"
    if path.suffix.lower() in _ARRAYS and not path.is_dir():
        return [_stack(existing_path(str(path), Path(), "file", remedy), options)]
    return _scenes_in(existing_path(str(path), Path(), "folder", remedy), options)


def _scenes_in(folder: Path, options: ImageOptions) -> list[Scene]:
    """The scene whose shots are in a folder; or those of its subfolders and stacks."""
    here = _shots_in(folder)
    below = [folder / name for name in sorted(visible_folders(folder), key=_natural)]
    nested = [subfolder for subfolder in below if _shots_in(subfolder)]
    if here and nested:
        raise DataError(
            str(folder),
            f"holds shots, and folders of shots such as {nested[0].name!r}",
            "give each scene a folder of its own",
        )
    if not here and not nested:
        raise _no_shots(folder)
    scenes: list[Scene] = []
    for place in nested or [folder]:
        scenes += _scenes_of_files(place, _shots_in(place), options)
    return scenes


def _no_shots(folder: Path) -> DataError:
    """The error of a folder without shots; it names a photo that cannot be read."""
    photos = [name for name in _files_in(folder) if Path(name).suffix.lower() in _NOT_READ]
    if photos:
        what = f"holds no shots but photos such as {photos[0]!r}, which cannot be read"
        return DataError(str(folder), what, "convert them to TIFF or PNG, all in the same way")
    return DataError(
        str(folder),
        "holds no shots",
        "give a folder of PNG, TIFF or JPEG files, or of .npy or .npz stacks",
    )


def _files_in(folder: Path) -> list[str]:
    """Names of the files in a folder that are not hidden, in natural order."""
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(
            str(folder), f"cannot be listed ({error.strerror})", "give a folder that you may read"
        ) from None
    return sorted((entry.name for entry in entries if entry.is_file()), key=_natural)


def _shots_in(folder: Path) -> list[str]:
    """Names of the files in a folder that are shots or stacks of them, in natural order."""
    return [
        name for name in _files_in(folder) if is_image(name) or Path(name).suffix.lower() in _ARRAYS
    ]


def _scenes_of_files(folder: Path, names: Sequence[str], options: ImageOptions) -> list[Scene]:
    """The scene of these files, or a scene for each stack among them."""
    stacks = [name for name in names if _is_stack(folder / name)]
    if stacks and len(stacks) < len(names):
        other = next(name for name in names if name not in stacks)
        raise DataError(
            str(folder),
            f"holds the stack {stacks[0]!r} and the single shot {other!r}",
            "give each scene a folder of its own",
        )
    if stacks:
        return [_stack(folder / name, options) for name in stacks]
    _refuse_twice(folder, names)
    if len(names) < FEWEST:
        raise _single(folder)
    shots = [str(folder / name) for name in names]
    return [Scene(_name(folder.absolute().name) or "shots", shots, partial(_load, shots, options))]


def _refuse_twice(folder: Path, names: Sequence[str]) -> None:
    """Refuse a shot in two formats: its noise would be taken for that of two shots.

    Raises:
        DataError: two files differ only in their suffix.
    """
    seen: dict[str, str] = {}
    for name in names:
        stem = Path(name).stem.lower()
        if stem in seen:
            what = f"holds {seen[stem]!r} and {name!r}, which look like the same shot"
            raise DataError(str(folder), what, "give each shot once, all in one format")
        seen[stem] = name


def _single(path: Path) -> DataError:
    """The error of a scene of one shot."""
    remedy = "noise shows in the difference of two: add one"
    return DataError(str(path), "holds a single shot", remedy)


def _load(shots: Sequence[str], options: ImageOptions, place: int) -> tuple[Values, float]:
    """One file of a scene."""
    path = Path(shots[place])
    if path.suffix.lower() in _ARRAYS:
        return _prepared(_array(path), str(path), options)
    folder = path.resolve().parent
    return file_values(path.name, str(path), folder, folder, options)


def _natural(name: str) -> list[tuple[int, str]]:
    """A key by which shot2 comes before shot10: neighbours in time are neighbours in the list."""
    pieces = re.split(r"(\d+)", name)
    return [(int(piece) if piece.isdecimal() else -1, piece) for piece in pieces]


def _stack(path: Path, options: ImageOptions) -> Scene:
    """The scene in a file of several shots."""
    array = _array(path)
    remedy = "shots are (n, c, h, w), (n, h, w, c) or (n, h, w)"
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise DataError(str(path), f"has the shape {array.shape}", remedy)
    if len(array) < FEWEST:
        raise _single(path)
    if array.ndim == 3 and layout_of(array.shape) is not None:
        what = f"has the shape {array.shape}, which may be a single shot in colour"
        raise DataError(str(path), what, "give grey shots as (n, 1, h, w)")
    names = [f"{path}, shot {number}" for number in range(1, len(array) + 1)]

    def load(place: int) -> tuple[Values, float]:
        return _prepared(array[place], names[place], options)

    return Scene(_name(path.stem), names, load)


def _name(name: str) -> str:
    """The name of a file or folder on one line."""
    return printable(name_text(name))


def _is_stack(path: Path) -> bool:
    """Whether a file has several shots: four axes, or three of which none is the channels'."""
    if path.suffix.lower() not in _ARRAYS:
        return False
    shape = _array(path).shape
    return len(shape) == 4 or (len(shape) == 3 and layout_of(shape) is None)


def _array(path: Path) -> Values:
    """The array of a .npy file, mapped into memory, or of a .npz file; never unpickled."""
    try:
        if path.suffix.lower() == ".npy":
            mapped: Values = np.lib.format.open_memmap(path, mode="r")
            return mapped
        # NumPy takes anything else for a pickle, and says so.
        if not zipfile.is_zipfile(path):
            raise DataError(str(path), "is not an .npz file", "save it again with numpy.savez")
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in _NAMES if name in file.files] or file.files
            if len(names) != 1:
                listed = ", ".join(map(repr, file.files))
                what = f"has the arrays {listed}" if listed else "has no array"
                raise DataError(str(path), what, f"name that of the shots {_NAMES[0]!r}")
            stack: Values = file[names[0]]
            return stack
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001  damaged files raise nearly anything
        what = f"cannot be read, or is damaged ({first_line(error)})"
        raise DataError(str(path), what, "save it again with numpy.save, as numbers") from None


def _prepared(array: Values, where: str, options: ImageOptions) -> tuple[Values, float]:
    """An array as a shot (channels, height, width), resized and cropped, and the number of white.

    Raises:
        SampleError: it is not an image of 8 or 16 bits or of floats, or cannot be resized.
    """
    layout = layout_of(array.shape) if array.ndim == 3 else None
    if array.ndim == 3 and layout is None:
        what = f"cannot tell the channels in the shape {array.shape}"
        remedy = "a shot is (h, w), (c, h, w) or (h, w, c), with 1 or 3 channels"
        raise SampleError(where, what, remedy)
    if array.ndim not in (2, 3):
        raise SampleError(where, f"has the shape {array.shape}", "a shot is (h, w) or (h, w, c)")
    last = np.moveaxis(array, 0, -1) if layout == "nchw" else array
    white = _WHITE.get(array.dtype.newbyteorder("="), 1.0)
    if white == 1.0 and array.dtype.kind != "f":
        remedy = "save uint8, uint16, or floats in [0, 1]"
        raise SampleError(where, f"has numbers of type {array.dtype}", remedy)
    grey = last[..., 0] if last.ndim == 3 and last.shape[-1] == 1 else last
    changes_size = options.resize is not None or options.crop is not None
    if not changes_size:
        first = grey[None] if grey.ndim == 2 else np.moveaxis(grey, -1, 0)
        channels = max(len(first), options.channels or 1)
        if options.channels == 1 and len(first) > 1:
            raise SampleError(where, "has colour, and the model takes grey", "save grey shots")
        native = first.astype(first.dtype.newbyteorder("="))
        return np.array(np.broadcast_to(native, (channels, *first.shape[1:]))), white
    # Pillow resizes what it can hold: 8 bits, and 16 bits of grey.
    if array.dtype != np.uint8 and not (white > 1.0 and grey.ndim == 2):
        what = f"is an array of {array.dtype}, which cannot be resized as the spec says"
        raise SampleError(where, what, "save it as an image of 8 bits")
    image = Image.fromarray(np.ascontiguousarray(grey.astype(grey.dtype.newbyteorder("="))))
    return image_values(image, where, options)
