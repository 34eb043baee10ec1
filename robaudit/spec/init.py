"""Write a first spec from a few short answers, as commented YAML."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from robaudit.errors import SpecError, did_you_mean
from robaudit.files import expanded
from robaudit.spec.fields import as_number
from robaudit.spec.model import dataset_kind, recognised
from robaudit.spec.presets import NORMALISATIONS
from robaudit.spec.pretrained.base import Pretrained
from robaudit.spec.pretrained.fill import for_dataset

_EMBEDDED = "digits"
_MOST_NAMES = 20  # most class names written out


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers that a spec is written from.

    Attributes:
        model: the ``model`` section.
        dataset: the ``dataset`` section.
        sigma: noise levels as the user wrote them.
        samples: noisy copies of each image.
        least: the mean robustness that a gate requires; None: no gate.
        source: the model's files that supply the rest of the section; empty: none.
        names: the class names, if there are too many to write out.
    """

    model: Mapping[str, Any]
    dataset: Mapping[str, Any]
    sigma: tuple[str, ...]
    samples: int
    least: float | None
    source: str = ""
    names: tuple[str, ...] = ()


def model_section(path: str, keys: Mapping[str, Any], normalise: str, known: Pretrained | None = None) -> dict[str, Any]:
    """The ``model`` section.

    Args:
        path: of the model, or ''.
        keys: further keys (architecture, weights).
        normalise: a name or numbers.
        known: the contents of the model's own files, whose mean and std are used if ``normalise`` gives none.

    Raises:
        SpecError: the normalisation is neither a name nor numbers.
    """
    mean, std = normalisation(normalise)
    if known is not None and not mean:
        mean, std = known.mean, known.std
    section: dict[str, Any] = ({"path": path} if path else {}) | dict(keys)
    if mean:
        section["mean"], section["std"] = list(mean), list(std)
    return section


def normalisation(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std from a name (``imagenet``) or from numbers (``0.5/0.25`` or ``0.4,0.5,0.6/0.2,0.2,0.2``).

    Raises:
        SpecError: the text is neither.
    """
    key = re.sub(r"[\s_-]", "", text).lower()
    if key in NORMALISATIONS:
        return NORMALISATIONS[key]
    mean, slash, std = text.partition("/")
    if not slash:
        known = did_you_mean(key, NORMALISATIONS)
        raise SpecError(
            f"--normalise {text}", "is neither a name nor mean/std", f"{known}; or give numbers such as 0.4,0.5,0.6/0.2,0.2,0.2"
        )
    means, stds = _numbers(mean, text), _numbers(std, text)
    if len(means) != len(stds) or min(stds) <= 0:
        raise SpecError(f"--normalise {text}", "is not a valid mean and std", "give equally many numbers in both, each std above 0")
    return means, stds


def _numbers(listed: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(piece) for piece in listed.split(","))
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):
        raise SpecError(f"--normalise {text}", f"{listed!r} is not a list of numbers", "for example 0.4,0.5,0.6/0.2,0.2,0.2")
    return numbers


def dataset_section(text: str, base: Path, *, resize: int | None, crop: int | None, channels: int | None, limit: int) -> dict[str, Any]:
    """The ``dataset`` section for a path (by its kind), for ``digits``, or for ``torchvision:NAME`` with its files in ``data/``.

    Args:
        text: the answer.
        base: the folder of the spec, to which paths are relative.
        resize, crop, channels: for image files.
        limit: how many images: the first ones of an array; a random subset of folders, whose first images are all of one class.

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
            raise SpecError(f"--data {text}", "does not name a data set", "for example torchvision:CIFAR10")
        return {"kind": "torchvision", "name": of, "root": "data", **files, "limit": limit}
    text = str(expanded(text))
    found = recognised(text, base)
    if not (base / text).exists() and not has_magic(text):
        raise SpecError(f"--data {text}", "no such file or folder", "give an existing one, digits or torchvision:CIFAR10")
    if found is None:
        forms = "a .npz, .csv, .jsonl, .parquet or .tar file, a folder of images, or one that the library datasets has written"
        raise SpecError(f"--data {text}", "is not a supported kind of data", f"give {forms}; all forms: docs/model-and-data.md")
    if found["kind"] == "npz":
        _refuse(files, text)
        return {**found, **_without_labels(base / text), "limit": limit}
    return {**found, **files, "sample": {"size": limit}}


def _without_labels(path: Path) -> dict[str, object]:
    """``labels_key: null`` for a file with a single array: labels are not needed for robustness."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"labels_key": None} if len(archive.namelist()) == 1 else {}
    except (OSError, zipfile.BadZipFile):  # opening the data set will report the error
        return {}


def class_names(text: str, base: Path) -> str | list[str]:
    """The value of ``class_names``: a file, relative to the folder of the spec, or the names between commas.

    Raises:
        SpecError: the file does not exist.
    """
    if (base / expanded(text)).is_file():
        return str(expanded(text))
    names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise SpecError(f"--class-names {text}", "no such file", "give a file with a name on each line, or the names between commas")
    return names


def with_images(section: dict[str, Any], known: Pretrained) -> dict[str, Any]:
    """The ``dataset`` section, with the size of images and the class names from the model's own files for keys that it lacks.

    Names beyond 20 are left out of the text: the spec takes them from the model when it is read.
    """
    more = for_dataset(dataset_kind(section["kind"]), section.keys(), known)
    more.pop("class_ids", None)
    names = more.pop("class_names", ())
    if 0 < len(names) <= _MOST_NAMES:
        more["class_names"] = list(names)
    last: dict[str, Any] = {key: section[key] for key in section if key in ("limit", "sample")}
    return {key: value for key, value in section.items() if key not in last} | more | last


def _refuse(files: Mapping[str, int], text: str) -> None:
    if files:
        raise SpecError(f"--{next(iter(files))}", f"does not apply to {text}", "it is for image files; leave it out")


def levels(text: str) -> tuple[str, ...]:
    """Noise levels from a list such as ``0.02, 8/255``.

    Raises:
        SpecError: one is not a positive number, or appears twice.
    """
    written = tuple(piece for piece in re.split(r"[\s,]+", text.strip()) if piece)
    values = set()
    for piece in written or ("",):
        try:
            value = float(str(as_number(piece)))
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise SpecError(f"--sigma {text}", f"{piece!r} is not a positive number", "for example 0.02,0.05 or 8/255")
        if value in values:
            raise SpecError(f"--sigma {text}", f"{piece} appears twice", "list each level once")
        values.add(value)
    return written


def spec_text(answers: Answers) -> str:
    """The YAML text: commented sections, with values in YAML's JSON subset so that no text can break out of its quotes."""
    lines = ["# What robaudit audits; for all keys see docs/spec.md or robaudit list schema", "model:"]
    lines += [f"  # the following is from {answers.source}"] if answers.source else []
    lines += [f"  {key}: {_value(value)}" for key, value in answers.model.items()]
    if "mean" not in answers.model and not answers.source:
        lines.append("  # mean: [0.485, 0.456, 0.406]   # as in training, if the images were normalised; applied after the noise")
        lines.append("  # std: [0.229, 0.224, 0.225]")
    lines += ["dataset:", *(f"  {key}: {_value(value)}" for key, value in answers.dataset.items())]
    if answers.names:
        shown = ", ".join(map(_value, answers.names[:3]))
        lines.append(f"  # class_names: the model's {len(answers.names):,} ({shown}, ...)")
    lines += ["noise:", f"  sigma: [{', '.join(answers.sigma)}]   # standard deviation on pixels in [0, 1]"]
    lines += ["estimators:", f"  - mc: {{samples: {answers.samples}}}   # noisy copies of each image"]
    if answers.least is not None:
        gates = [f"mean(sigma={sigma}) >= {answers.least!r}" for sigma in answers.sigma]
        lines += ["gates:   # what robaudit gate requires of a run", *(f"  - {_value(gate)}" for gate in gates)]
    else:
        lines += ["# gates:   # what robaudit gate requires of a run", f'#   - "mean(sigma={answers.sigma[0]}) >= 0.9"']
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
