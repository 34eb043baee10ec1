"""Published corrupted copies of the run's own images: arrays like CIFAR-10-C's, or folders like
ImageNet-C's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import AfterValidator, Field
from torch import Tensor

from robaudit.errors import DataError, SampleError, SpecError, did_you_mean
from robaudit.levels import LevelName
from robaudit.noise.arrays import mapped
from robaudit.noise.noise import File, Noise, Shape

_SEVERITIES = 5
# A data set may have been saved in another format than the copies of its images.
_SUFFIXES = (".JPEG", ".jpeg", ".jpg", ".JPG", ".png", ".PNG", ".webp", ".bmp")
# Pillow's other decoders are left out: the files may be a stranger's.
_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "WEBP")
_SAME_SHAPE = "give the data set resize and crop as the copies had them"


def _visible(name: str) -> str:
    """The name; ValueError: it begins with a dot. ``..`` would lead out of the folder."""
    if name.startswith("."):
        raise ValueError("must be the name of a corruption, without a leading dot")
    return name


class CorruptedSet(Noise):
    """The image's corrupted copy, found by its sample id; ``name`` is the corruption and ``path``
    the folder of the set.

    Two layouts are understood. Arrays: ``path/NAME.npy`` holds uint8 images (5 N, height, width,
    channels), severity s of sample i in row (s - 1) N + i, and ids are row numbers (data sets of
    kind npz and torchvision have such ids). Folders: ``path/NAME/SEVERITY/ID``, where ids are paths
    like ``n01440764/ILSVRC2012_val_00000293.JPEG`` (kind images); the suffix may differ.

    The copies must have the size of the network's images: nothing is resized or cropped.

    Source: Hendrycks & Dietterich 2019; CIFAR-10-C and ImageNet-C are published by its authors.
    """

    level_name: ClassVar[LevelName] = LevelName.SEVERITY
    least: ClassVar[float] = 1
    most: ClassVar[float] = _SEVERITIES
    whole: ClassVar[bool] = True
    quantises: ClassVar[bool] = True
    summary: ClassVar[str] = (
        "a corrupted copy of x from a published set, such as CIFAR-10-C or ImageNet-C"
    )
    prefer: ClassVar[str] = (
        "the benchmark's own files: results that can be compared with published ones"
    )
    source: ClassVar[str] = "Hendrycks & Dietterich 2019, ImageNet-C and CIFAR-10-C"

    name: Annotated[str, AfterValidator(_visible)] = Field(
        pattern=r"^[\w.-]+$", description="the corruption: a file NAME.npy or a folder"
    )
    path: File = Field(description="folder of the set, relative to the spec file")

    @property
    def random(self) -> bool:
        """False: there is one copy at each severity."""
        return False

    @property
    def files(self) -> tuple[Path, ...]:
        """The arrays; none for a set in folders."""
        if not self._array.is_file():
            return ()
        return (self._array, self._labels) if self._labels.is_file() else (self._array,)

    @property
    def _array(self) -> Path:
        """The file of the copies, in a set of arrays."""
        return self.path / f"{self.name}.npy"

    @property
    def _labels(self) -> Path:
        """The file of the labels, which a set of arrays may have."""
        return self.path / "labels.npy"

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Check that the set has this corruption at these severities, in the size of the images.

        Raises:
            SpecError: there is no such folder, corruption or severity, or the array cannot be read.
            DataError: its rows are not a multiple of five, or its images have another shape.
        """
        copies = self._copies()
        if isinstance(copies, np.ndarray):
            _require_shape(str(self._array), copies, shape)
            return
        if shape[0] not in (1, 3):
            raise SpecError(
                "path",
                f"image files have 1 or 3 channels, and the data set has {shape[0]}",
                "give a set of arrays",
            )
        for level in levels:
            if not (copies / f"{level:g}").is_dir():
                entries = sorted(entry.name for entry in copies.iterdir())
                # A folder that is no set may have thousands.
                first_entries = ", ".join(entries[:10])
                raise SpecError(
                    "severity",
                    f"{str(copies)!r} has no folder {level:g}",
                    f"it has {first_entries or 'nothing'}",
                )

    def check_labels(self, labels: Iterable[tuple[str, int | None]]) -> None:
        """Compare the set's labels with the data set's, if the set has ``labels.npy``.

        Args:
            labels: sample ids and their labels; None or a negative number: unknown.

        Raises:
            DataError: they differ: the copies are of other images or in another order.
            SpecError: the labels cannot be read.
            SampleError: an id is not a row number.
        """
        copies = self._copies()
        if not (isinstance(copies, np.ndarray) and self._labels.is_file()):
            return
        labels_of_set = mapped(self._labels, "path")
        samples = copies.shape[1]
        # CIFAR-10-C repeats the labels for each severity; other sets have them once.
        has_labels_of_samples = labels_of_set.shape in ((samples,), (_SEVERITIES * samples,))
        if not has_labels_of_samples or labels_of_set.dtype.kind not in "iu":
            what = (
                f"is {_described(labels_of_set)}, and {self._array.name} has "
                f"{_SEVERITIES * samples} images"
            )
            raise DataError(str(self._labels), what, "give one label for each image")
        known = [(name, label) for name, label in labels if label is not None and label >= 0]
        differences = []
        for sample_id, label in known:
            row = _row(str(self._array), sample_id, samples)
            label_of_set = int(labels_of_set[row])
            if label_of_set != label:
                differences.append((sample_id, label, label_of_set))
        if differences:
            sample_id, label, label_of_set = differences[0]
            first = f"the first is {sample_id!r}, {label_of_set} there and {label} in the data set"
            raise DataError(
                str(self._labels),
                f"differs from the data set in {len(differences)} of {len(known)} labels; {first}",
                "the copies must be of the same images in the same order",
            )

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """Empty: the copies are fixed."""
        return (0,)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """The corrupted copies of the images with these ids.

        Raises:
            SampleError: a copy is missing, cannot be decoded, or has another shape.
            SpecError: the set has been removed.
        """
        copies = self._copies()
        shape = (x.shape[1], x.shape[2], x.shape[3])
        if isinstance(copies, np.ndarray):
            _require_shape(str(self._array), copies, shape)
            samples = copies.shape[1]
            rows = [_row(str(self._array), sample_id, samples) for sample_id in ids]
            # Only these rows are read from the disk.
            images = np.moveaxis(copies[int(level) - 1, rows], -1, 1)
        else:
            folder = copies / f"{level:g}"
            images = np.stack([_image(folder, sample_id, shape) for sample_id in ids])
        # Divided in float64, so that a byte is the same number in either precision of x.
        pixels = torch.from_numpy(images).to(torch.float64).div_(255).to(x)
        # The copy of one image serves all its draws.
        return pixels if len(pixels) == len(z) else pixels.repeat(len(z), 1, 1, 1)

    def _copies(self) -> NDArray[np.uint8] | Path:
        """All copies (severities, samples, height, width, channels), mapped into memory; or their
        folder, severity/id."""
        if not self.path.is_dir():
            raise SpecError(
                "path", f"no such folder: {str(self.path)!r}", "paths are relative to the spec file"
            )
        if self._array.is_file():
            images = mapped(self._array, "path")
            if images.ndim == 3:  # grey images without a dimension of channels
                images = images[..., None]
            if images.ndim != 4 or images.dtype != np.uint8 or 0 in images.shape:
                raise DataError(
                    str(self._array),
                    f"is {_described(images)}",
                    "it must be uint8 (rows, height, width, channels)",
                )
            if len(images) % _SEVERITIES:
                remedy = f"it must have as many for each of {_SEVERITIES} severities"
                raise DataError(str(self._array), f"has {len(images)} rows", remedy)
            return images.reshape(_SEVERITIES, -1, *images.shape[1:])
        if (self.path / self.name).is_dir():
            return self.path / self.name
        raise SpecError(
            "name",
            f"{str(self.path)!r} has no corruption {self.name!r}",
            did_you_mean(self.name, self._corruptions()) or "it has none at all",
        )

    def _corruptions(self) -> set[str]:
        """Names of the corruptions that the set has, as arrays or as folders."""
        names = set()
        for entry in self.path.iterdir():
            if entry.name.startswith(".") or entry == self._labels:
                continue
            if entry.suffix == ".npy":
                names.add(entry.stem)
            if entry.is_dir():
                names.add(entry.name)
        return names


def _require_shape(where: str, copies: NDArray[np.uint8], shape: Shape) -> None:
    """Raise DataError unless the images of an array have this shape (channels, height, width)."""
    height, width, channels = copies.shape[2:]
    shape_of_copies = (channels, height, width)
    if shape_of_copies != shape:
        what = (
            f"its images have {_joined(shape_of_copies)} values (channels, height, width), and the "
            f"data set's have {_joined(shape)}"
        )
        raise DataError(where, what, _SAME_SHAPE)


def _joined(sides: Shape) -> str:
    """A shape in words, as in 3 x 32 x 32."""
    return " x ".join(map(str, sides))


def _row(where: str, sample_id: str, samples: int) -> int:
    """The row of a sample among those of one severity; SampleError: there is none."""
    # Decimal digits of other scripts would be numbers, too.
    if not (sample_id.isascii() and sample_id.isdecimal()):
        raise SampleError(
            where,
            f"the sample id {sample_id!r} is not a row number",
            "use a data set of kind npz or torchvision",
        )
    row = int(sample_id)
    if row >= samples:
        what = f"has {samples} images at each severity, and none for the sample {sample_id}"
        raise SampleError(where, what, "use the data set that the copies were made of")
    return row


def _image(folder: Path, sample_id: str, shape: Shape) -> NDArray[np.uint8]:
    """The image (channels, height, width) with this id, or with another suffix, in the folder of a
    severity; SampleError: there is none."""
    relative = PurePosixPath(sample_id)
    # An id must not lead out of the folder.
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise SampleError(
            str(folder),
            f"the sample id {sample_id!r} is not a path like class/file",
            "use a data set of kind images",
        )
    paths = [folder / relative]
    paths += [folder / relative.with_suffix(suffix) for suffix in _SUFFIXES]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        remedy = "complete the set"
        if len(relative.parts) == 1:
            remedy = "ids must be paths like class/file: use a data set of kind images"
        raise SampleError(str(folder), f"has no image {sample_id!r}", remedy)
    try:
        with Image.open(path, formats=_FORMATS) as image:
            # Before any pixels are decoded: a small file may hold a huge image.
            if (image.height, image.width) != shape[1:]:
                what = (
                    f"has {image.height} x {image.width} pixels, and the image of the data "
                    f"set {shape[1]} x {shape[2]}"
                )
                raise SampleError(str(path), what, _SAME_SHAPE)
            mode = "L" if shape[0] == 1 else "RGB"
            pixels: NDArray[np.uint8] = np.asarray(image.convert(mode))
    except SampleError:
        raise
    # Pillow's decoders raise nearly anything on damaged files.
    except Exception as error:  # noqa: BLE001
        raise SampleError(
            str(path), f"cannot be read as an image ({type(error).__name__})", "repair the set"
        ) from None
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def _described(array: NDArray[Any]) -> str:
    """The type and shape of an array, for messages."""
    return f"{array.dtype} of shape {tuple(array.shape)}"
