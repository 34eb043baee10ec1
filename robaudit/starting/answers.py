"""What does a first spec need to know, and what do people's short answers mean?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.errors import SpecError, did_you_mean
from robaudit.files import expanded
from robaudit.spec_fields import as_number
from robaudit.spec_presets import NORMALISATIONS

_EMBEDDED = "digits"


@dataclass(frozen=True, slots=True)
class Answers:
    """What the spec is made from.

    Attributes:
        model: the ``model`` section.
        dataset: the ``dataset`` section.
        sigma: noise levels as the user wrote them.
        samples: noisy copies of an image.
        least: the mean robustness that a gate asks for; None: no gate.
    """

    model: Mapping[str, Any]
    dataset: Mapping[str, Any]
    sigma: tuple[str, ...]
    samples: int
    least: float | None


def model_section(path: str, architecture: str | None, normalise: str) -> dict[str, Any]:
    """The ``model`` section.

    Raises:
        SpecError: the normalisation is neither a name nor numbers.
    """
    mean, std = normalisation(normalise)
    found: dict[str, Any] = {"path": path}
    if architecture:
        found["architecture"] = architecture
    if mean:
        found["mean"], found["std"] = list(mean), list(std)
    return found


def normalisation(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std from a name (``imagenet``) or from numbers (``0.5/0.25`` or ``0.4,0.5,0.6/0.2,0.2,0.2``).

    Raises:
        SpecError: it is neither.
    """
    key = re.sub(r"[\s_-]", "", text).lower()
    if key in NORMALISATIONS:
        return NORMALISATIONS[key]
    mean, slash, std = text.partition("/")
    if not slash:
        known = did_you_mean(key, NORMALISATIONS)
        raise SpecError(f"--normalise {text}", "is neither a name nor mean/std", f"{known}; or numbers as 0.4,0.5,0.6/0.2,0.2,0.2")
    means, stds = _numbers(mean, text), _numbers(std, text)
    if len(means) != len(stds) or min(stds) <= 0:
        raise SpecError(f"--normalise {text}", "is no mean and std", "as many numbers in both, and each std above 0")
    return means, stds


def _numbers(listed: str, text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(piece) for piece in listed.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise SpecError(f"--normalise {text}", f"{listed!r} is no list of numbers", "for example 0.4,0.5,0.6/0.2,0.2,0.2")
    return found


def dataset_section(text: str, base: Path, *, resize: int | None, crop: int | None, channels: int | None, limit: int) -> dict[str, Any]:
    """The ``dataset`` section: by what the path is, or ``digits``, or ``torchvision:NAME`` with the images under ``data/``.

    Args:
        text: the answer.
        base: the folder of the spec, where relative paths start.
        resize, crop, channels: of image files.
        limit: how many images: the first of arrays, a random subset of folders (whose first are of one class).

    Raises:
        SpecError: there is no such file, or its kind is unknown.
    """
    files = {key: value for key, value in (("resize", resize), ("crop", crop), ("channels", channels)) if value is not None}
    if channels not in (None, 1, 3):
        raise SpecError(f"--channels {channels}", "is neither 1 (grey) nor 3 (colour)", "give one of them")
    name, colon, of = text.partition(":")
    if text == _EMBEDDED and not (base / text).exists():
        _refuse(files, text)
        return {"kind": "digits", "limit": limit}
    if colon and name == "torchvision":
        if not of:
            raise SpecError(f"--data {text}", "names no data set", "for example torchvision:CIFAR10")
        return {"kind": "torchvision", "name": of, "root": "data", **files, "limit": limit}
    text = str(expanded(text))
    path = base / text
    if path.is_dir():
        return {"kind": "images", "path": text, **files, "sample": {"size": limit}}
    kinds = {".npz": "npz", ".csv": "manifest"}
    if not path.exists():
        raise SpecError(f"--data {text}", "there is no such file or folder", "or say digits, or torchvision:CIFAR10")
    if path.suffix.lower() not in kinds:
        raise SpecError(f"--data {text}", "is of no known kind", "a .npz file, a folder of class folders, or a .csv manifest (path,label)")
    kind = kinds[path.suffix.lower()]
    if kind == "npz":
        _refuse(files, text)
        return {"kind": kind, "path": text, "limit": limit}
    return {"kind": kind, "path": text, **files, "sample": {"size": limit}}


def _refuse(files: Mapping[str, int], text: str) -> None:
    if files:
        raise SpecError(f"--{next(iter(files))}", f"means nothing to {text}", "it is for image files; leave it out")


def levels(text: str) -> tuple[str, ...]:
    """Noise levels, as 0.02, 8/255.

    Raises:
        SpecError: one is no positive number, or stands twice.
    """
    found = tuple(piece for piece in re.split(r"[\s,]+", text.strip()) if piece)
    values = set()
    for piece in found or ("",):
        try:
            value = float(str(as_number(piece)))
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise SpecError(f"--sigma {text}", f"{piece!r} is not a positive number", "for example 0.02,0.05 or 8/255")
        if value in values:
            raise SpecError(f"--sigma {text}", f"{piece} stands twice", "list each level once")
        values.add(value)
    return found
