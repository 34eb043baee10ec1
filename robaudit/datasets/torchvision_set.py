"""A data set of torchvision.datasets, as a data set of an audit."""

from __future__ import annotations

import contextlib
import inspect
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from robaudit.datasets.dataset import Labels, name_text
from robaudit.datasets.image_set import ImageSet, sample_parts
from robaudit.errors import DataError, did_you_mean
from robaudit.files import expanded
from robaudit.spec.model import ImageOptions
from robaudit.text import first_line

# Keyword arguments of data sets that the spec has as keys of its own, or that change the pixels.
_OWN_KEYS = ("root", "download", "transform", "transforms")
_UNPICKLED = ("LSUN", "LSUNClass")  # torchvision unpickles their cache from the working folder


class TorchvisionSpec(ImageOptions):
    """A data set of torchvision.datasets by its name."""

    kind: Literal["torchvision"] = "torchvision"
    name: str = Field(description="class name in torchvision.datasets, for example CIFAR10")
    root: str
    split: str | None = Field(
        "test", description="test or train (or what the data set's own split option takes)"
    )
    download: bool = False
    options: dict[str, Any] = Field(
        default_factory=dict, description="further keyword arguments of the data set"
    )
    channels: Literal[1, 3] | None = None  # type: ignore[assignment]

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Construct the data set; with ``download``, torchvision fetches what is missing. Ids are
        indices.

        ``split`` becomes ``split=`` if the class takes it (SVHN, ImageNet) and ``train=`` if it
        takes that (MNIST, CIFAR10); the default is left out if it takes neither. EMNIST takes both:
        ``split: letters`` with ``options: {train: false}``.

        Raises:
            DataError: there is no such data set, its files are missing or damaged, or an option is
                unknown.
        """
        from PIL import EpsImagePlugin
        from torchvision.datasets import DatasetFolder

        from robaudit.datasets.decode import object_pixels
        from robaudit.datasets.in_memory import one_mode, pixels_in_one_mode

        # torchvision opens any file that Pillow knows; never start an external program
        # (Ghostscript).
        EpsImagePlugin.gs_binary = False
        items = _build(self, f"torchvision {self.name}", base_dir)
        names = getattr(items, "classes", None)
        if isinstance(names, list | tuple):
            # ImageNet's classes are tuples of synonyms.
            firsts = (
                name[0] if isinstance(name, tuple | list) and name else name for name in names
            )
            names = tuple(name_text(str(name)) for name in firsts)
        decode = partial(object_pixels, options=self, layout="nchw")
        if self.channels is None:
            channels = one_mode(items, lambda item: sample_parts(item, self.name)[0])
            options = self.model_copy(update={"channels": channels})
            decode = partial(pixels_in_one_mode, options=options, layout="nchw")
        return ImageSet(
            f"torchvision {self.name}",
            items,
            decode,
            labels=_known_labels(items),
            class_names=names or None,
            parts=sample_parts,
            # A DatasetFolder opens one file for each sample. Others may share an open file.
            parallel=isinstance(items, DatasetFolder),
        )


def _build(spec: TorchvisionSpec, where: str, base_dir: Path) -> Any:
    """Construct the data set; what it prints goes to stderr, as stdout is for results."""
    from torchvision import datasets

    exports = {name: getattr(datasets, name) for name in datasets.__all__}
    classes = {name: export for name, export in exports.items() if isinstance(export, type)}
    if spec.name not in classes:
        raise DataError(where, "is not in torchvision.datasets", did_you_mean(spec.name, classes))
    if spec.name in _UNPICKLED:
        what = "unpickles a cache file of the working folder, which may hold code"
        raise DataError(
            where,
            what,
            "write its images to class folders (kind images), or load it yourself (kind python)",
        )
    arguments = _arguments(spec, where, _parameters(classes[spec.name]), base_dir)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            built = classes[spec.name](**arguments)
            len(built)
    except Exception as error:  # noqa: BLE001  every data set raises its own
        remedy = "correct name, root, split or options"
        if not spec.download:
            remedy = f"set download: true, or {remedy}"
        raise DataError(
            where, f"cannot be opened in {spec.root!r} ({first_line(error)})", remedy
        ) from None
    return built


def _arguments(
    spec: TorchvisionSpec, where: str, parameters: set[str], base_dir: Path
) -> dict[str, Any]:
    """The spec's keys as keyword arguments of the class."""
    for option in spec.options:
        if option in _OWN_KEYS:
            raise DataError(
                where,
                f"options cannot have {option!r}",
                "root, download, resize and crop are keys next to name",
            )
    if spec.download and "download" not in parameters:
        raise DataError(
            where,
            "it cannot be downloaded by torchvision",
            "put the files into root and set download: false",
        )
    keywords: dict[str, Any] = {"root": base_dir / expanded(spec.root), "download": spec.download}
    if spec.split is not None and "split" in parameters:
        keywords["split"] = spec.split
    elif spec.split in ("train", "test") and "train" in parameters:
        keywords["train"] = spec.split == "train"
    elif spec.split is not None and "split" in spec.model_fields_set:
        remedy = "it has train and test" if "train" in parameters else "leave out split"
        raise DataError(where, f"has no split {spec.split!r}", remedy)
    arguments = {name: value for name, value in keywords.items() if name in parameters}
    arguments.update(spec.options)
    return arguments


def _parameters(kind: type) -> set[str]:
    """The keyword arguments of a class, including those passed on to its bases."""
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        # Without **kwargs, nothing is passed on.
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names - {"self"}


def _known_labels(items: Any) -> Labels | None:
    """The targets (n,) of a data set that has them as a list of integers; otherwise None."""
    targets = getattr(items, "targets", getattr(items, "labels", None))
    if targets is None or getattr(items, "target_transform", None) is not None:
        return None
    # Targets of detection and of regression have other shapes and types; their samples are read.
    try:
        labels = np.asarray(targets)
    except (ValueError, TypeError):
        return None
    is_index = labels.shape == (len(items),) and labels.dtype.kind in "iu"
    return labels.astype(np.int64) if is_index else None
