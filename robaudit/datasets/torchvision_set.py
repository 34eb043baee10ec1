"""A data set of torchvision.datasets, as a data set of an audit."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from robaudit.datasets.arrays import ArrayDataset
from robaudit.datasets.base import Labels, Sample, reason
from robaudit.datasets.files import name_text
from robaudit.errors import DataError, SampleError, did_you_mean
from robaudit.files import expanded
from robaudit.spec.model import ImageOptions

_ONE_BY_ONE = threading.RLock()
_OURS = {"root": "root", "download": "download", "transform": "resize, crop and channels", "transforms": "resize, crop and channels"}


class TorchvisionSpec(ImageOptions):
    """A data set of torchvision.datasets by its name."""

    kind: Literal["torchvision"] = "torchvision"
    name: str = Field(description="class name in torchvision.datasets, for example CIFAR10")
    root: str
    split: str | None = Field("test", description="test or train (or what the data set's own split option takes)")
    download: bool = False
    options: dict[str, Any] = Field(default_factory=dict, description="further keyword arguments of the data set")
    channels: Literal[1, 3] | None = None  # type: ignore[assignment]

    def open(self, base_dir: Path, *, trust: bool) -> TorchvisionDataset:
        """Construct it; with ``download``, torchvision fetches what is missing.

        Raises:
            DataError: there is no such data set, its files are missing or damaged, or an option is unknown.
        """
        return TorchvisionDataset(self, base_dir)


class TorchvisionDataset(ArrayDataset):
    """A data set by its class name in torchvision.datasets; a sample's id is its index.

    ``split`` becomes ``split=`` if the class takes it (SVHN, ImageNet) and ``train=`` if it takes that (MNIST, CIFAR10);
    the default is left out if it takes neither. EMNIST takes both: ``split: letters`` with ``options: {train: false}``.

    Several threads may read class folders at once; other data sets may have state between reads, so one thread reads them at a time.
    """

    def __init__(self, spec: TorchvisionSpec, base_dir: Path) -> None:
        from PIL import EpsImagePlugin

        where, self._spec = f"torchvision {spec.name}", spec
        EpsImagePlugin.gs_binary = False  # it opens any file that Pillow knows; no external program (Ghostscript) is started for one
        items = _build(spec, where, base_dir)
        super().__init__(where, items, _known_labels(items), class_names=_names(getattr(items, "classes", None)))

    def _turn(self) -> contextlib.AbstractContextManager[object]:
        """A lock for reading, unless reads are thread-safe."""
        from torchvision.datasets import DatasetFolder

        return contextlib.nullcontext() if isinstance(self._images, DatasetFolder) else _ONE_BY_ONE

    def __getitem__(self, index: int) -> Sample:
        """Read one sample; the target -1 is no label.

        Raises:
            SampleError: it is unreadable, not an image, or its target is not a class index.
        """
        from PIL import Image
        from torch import Tensor

        from robaudit.datasets.decode import as_label, as_pixels, image_pixels

        sample_id = self.sample_id(index)
        where = f"{self.where}, sample {sample_id}"
        try:
            with self._turn():
                image, target = self._images[int(sample_id)]
        except Exception as error:  # noqa: BLE001  every data set and every decoder raises its own
            raise SampleError(where, f"cannot be read ({reason(error)})", "repair or leave out this sample") from None
        if isinstance(image, Image.Image):
            pixels = image_pixels(image, where, self._spec)
        elif isinstance(image, Tensor | np.ndarray) and self._spec.resize is None and self._spec.crop is None:
            pixels = as_pixels(image, where)
        else:
            raise SampleError(where, f"is {type(image).__name__}, not an image", "resize and crop are for data sets of images")
        return Sample(sample_id, pixels, as_label(target, where))


_UNPICKLED = ("LSUN", "LSUNClass")


def _build(spec: TorchvisionSpec, where: str, base_dir: Path) -> Any:
    """Construct the data set, with its prints redirected to stderr."""
    from torchvision import datasets

    classes = {name: getattr(datasets, name) for name in datasets.__all__ if isinstance(getattr(datasets, name), type)}
    if spec.name not in classes:
        raise DataError(f"torchvision {spec.name}", "is not in torchvision.datasets", did_you_mean(spec.name, classes))
    if spec.name in _UNPICKLED:
        what = "unpickles a cache file of the working folder, which may hold code"
        raise DataError(
            f"torchvision {spec.name}", what, "write its images to class folders (kind images), or load it yourself (kind python)"
        )
    root = base_dir / expanded(spec.root)
    arguments = _arguments(spec, where, _parameters(classes[spec.name]), root)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            built = classes[spec.name](**arguments)
            len(built)
    except Exception as error:  # noqa: BLE001  every data set raises its own
        message = reason(error).rstrip(".")
        if not spec.download and ("download" in message.lower() or "not found" in message.lower() or isinstance(error, OSError)):
            what = f"no {spec.name} in {spec.root!r} (missing or damaged)"
            if "download" in _parameters(classes[spec.name]):
                raise DataError(where, what, "set download: true, or correct root") from None
            raise DataError(where, f"{what}: {message}", "put the files there, or correct root") from None
        failed = "the download or opening it failed" if spec.download else "opening it failed"
        raise DataError(where, f"{failed}: {message}", "check name, root, split and options") from None
    return built


def _arguments(spec: TorchvisionSpec, where: str, parameters: set[str], root: Path) -> dict[str, Any]:
    """Our keys as keyword arguments of the class."""
    for option in spec.options:
        if option in _OURS:
            raise DataError(where, f"options has {option!r}", f"use {_OURS[option]} next to name instead")
        if option not in parameters:
            raise DataError(where, f"it takes no option {option!r}", did_you_mean(option, parameters - set(_OURS)))
    arguments: dict[str, Any] = {"root": root} if "root" in parameters else {}
    if "download" in parameters:
        arguments["download"] = spec.download
    elif spec.download:
        raise DataError(where, "it cannot be downloaded by torchvision", "put the files into root and set download: false")
    if spec.split is not None and "split" in parameters:
        arguments["split"] = spec.split
    elif spec.split is not None and "train" in parameters:
        if spec.split not in ("train", "test"):
            raise DataError(where, f"has no split {spec.split!r}", "it has train and test")
        arguments["train"] = spec.split == "train"
    elif spec.split is not None and "split" in spec.model_fields_set:
        raise DataError(where, f"has no splits, but split is {spec.split!r}", "leave out split; see options")
    return {**arguments, **spec.options}


def _parameters(kind: type) -> set[str]:
    """The keyword arguments of a class, including those passed on to its bases."""
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names - {"self"}


def _names(classes: object) -> tuple[str, ...] | None:
    """Class names as text; the first if a class has several (ImageNet)."""
    if not isinstance(classes, Iterable) or isinstance(classes, str):
        return None
    names = tuple(name_text(str(name[0] if isinstance(name, tuple | list) and name else name)) for name in classes)
    return names or None


def _known_labels(items: Any) -> Labels | None:
    """The targets as an array, if the data set has such a list and does not transform it."""
    targets = getattr(items, "targets", getattr(items, "labels", None))
    if targets is None or getattr(items, "target_transform", None) is not None:
        return None
    try:
        labels = np.asarray(targets)
    except (ValueError, TypeError):
        return None
    fits = labels.shape == (len(items),) and labels.dtype.kind in "iu"
    return labels.astype(np.int64) if fits else None
