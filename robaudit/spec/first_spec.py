"""Write a first spec from a few options, as commented YAML."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from robaudit.errors import SpecError, did_you_mean
from robaudit.files import expanded
from robaudit.levels import NoiseLevel
from robaudit.spec.fields import level
from robaudit.spec.gate_grammar import number_text
from robaudit.spec.model import recognised
from robaudit.spec.presets import NORMALISATIONS

MOST_IMAGES = 500
"""The images of a first audit, unless the machine is too slow or the user gives a number."""
MOST_DRAWS = 1000
"""The noisy copies of each image, likewise."""


@dataclass(frozen=True, slots=True)
class Given:
    """Which numbers of a first audit the user gives; the others are chosen by the machine's speed.

    Attributes:
        images: the number of images.
        draws: the number of draws.
    """

    images: bool
    draws: bool


_EMBEDDED = "digits"  # the data set of the package itself
_TITLE = "# What robaudit audits; for all keys see docs/spec.md or robaudit list schema"
_NORMALISE = (
    "  # mean: [0.485, 0.456, 0.406]   # as in training, if the images were normalised; applied "
    "after the noise",
    "  # std: [0.229, 0.224, 0.225]",
)
_NO_GATES = ("# gates:   # what robaudit gate requires of a run", '#   - "mean >= 0.9"')


def normalisation(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std by name, such as ``imagenet``.

    Raises:
        SpecError: the name is unknown.
    """
    key = re.sub(r"[\s_-]", "", text).lower()  # Fashion-MNIST is fashionmnist
    if key not in NORMALISATIONS:
        remedy = (
            f"{did_you_mean(key, NORMALISATIONS)}; numbers: --set model.mean=[0.5] --set "
            "model.std=[0.25]"
        )
        raise SpecError(f"--normalise {text}", "is not known", remedy)
    return NORMALISATIONS[key]


def from_here(text: str, base: Path) -> str:
    """A path relative to the current folder, as a spec in the folder ``base`` writes it."""
    path = expanded(text)
    is_base = path.is_absolute() or base == Path.cwd()
    return str(path) if is_base else os.path.relpath(path, base)


def dataset_section(text: str, base: Path, limit: int) -> dict[str, Any]:
    """The ``dataset`` section for a path (by its kind), for ``digits``, or for ``torchvision:NAME``
    with its files in ``data/``.

    Args:
        text: the option.
        base: the spec's folder; paths of the option are relative to the current one.
        limit: number of images: the first ones of an array, or a random subset of folders, whose
            first images all belong to one class.

    Raises:
        SpecError: there is no such file, or its kind is unknown.
    """
    family, colon, name = text.partition(":")
    # A folder of this name is the user's own data.
    if text == _EMBEDDED and not Path(text).exists():
        return {"kind": "digits", "limit": limit}
    if colon and family == "torchvision":
        if not name:
            raise SpecError(
                f"--data {text}", "does not name a data set", "for example torchvision:CIFAR10"
            )
        return {"kind": "torchvision", "name": name, "root": "data", "limit": limit}
    written = from_here(text, base)
    section = recognised(written, base)
    if not (base / written).exists() and not has_magic(text):
        raise SpecError(
            f"--data {text}",
            "no such file or folder",
            "give an existing one, digits or torchvision:CIFAR10",
        )
    if section is None:
        forms = (
            "a .npz, .csv, .jsonl, .parquet or .tar file, a folder of images, or one that "
            "the library datasets wrote"
        )
        raise SpecError(
            f"--data {text}",
            "is not a supported kind of data",
            f"give {forms}; all forms: docs/model-and-data.md",
        )
    # The first images of a folder all belong to one class; those of an array rarely do.
    if section["kind"] == "npz":
        return {**section, **_without_labels(base / written), "limit": limit}
    return {**section, "sample": {"size": limit}}


def _without_labels(path: Path) -> dict[str, object]:
    """``labels_key: null`` for a file with a single array: labels are not needed for robustness."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"labels_key": None} if len(archive.namelist()) == 1 else {}
    except (OSError, zipfile.BadZipFile):
        return {}  # opening the data set will report the error


def levels(text: str) -> list[float | str]:
    """Noise levels from a list such as ``0.02, 8/255``; fractions stay as written.

    Raises:
        SpecError: a level is not a positive number.
    """
    numbers: list[float | str] = []
    for piece in re.split(r"[\s,]+", text.strip()):
        value = level("--sigma", piece)
        numbers.append(piece if "/" in piece else value)
    return numbers


def mean_gates(levels: Iterable[NoiseLevel], least: float) -> list[str]:
    """A gate on the mean at each noise level: at least ``least``."""
    gates = []
    for at in levels:
        number = f"{at.argument}={number_text(at.number)}"
        # A sigma alone means Gaussian noise.
        chosen = number if at.usual else f"noise={at.noise}, {number}"
        gates.append(f"mean({chosen}) >= {least!r}")
    return gates


def spec_text(document: Mapping[str, Any], source: str = "", about_draws: str = "") -> str:
    """The YAML text of a spec, with comments.

    Values are in YAML's JSON subset, so that no text can break out of its quotes.

    Args:
        document: the sections.
        source: the model's own files that supply the rest of its section and of the data set's;
            empty: none.
        about_draws: a comment on the number of draws; empty: none.
    """
    lines = [_TITLE]
    for name, section in document.items():
        if isinstance(section, str):  # a file of noises
            lines.append(f"{name}: {_value(section)}")
            continue
        lines.append(f"{name}:")
        if name == "estimators" and about_draws:
            lines.append(f"  # {about_draws}")
        if isinstance(section, Mapping):
            lines += [f"  {key}: {_value(value)}" for key, value in section.items()]
        else:
            lines += [f"  - {_value(value)}" for value in section]
        if name == "model" and source:
            lines.append(
                f"  # the rest, the size of images and the class names are from {_value(source)}"
            )
        elif name == "model" and "mean" not in section:
            lines += _NORMALISE
    if "gates" not in document:
        lines += _NO_GATES
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value as JSON, with unprintable characters as escapes that YAML understands."""
    # A noise file may have a date, which is text where it is an option.
    text = json.dumps(value, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
