"""Class names, class ids and sample ids from files.

A file has one name per line (also ``n01440764 tench, Tinca tinca``), or it is JSON: a list, or a
mapping in either direction.
"""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo

from robaudit.files import expanded
from robaudit.spec.fields import unquoted
from robaudit.text import distinct, first_synonyms

IMAGENET = "imagenet"
"""The class names of ImageNet, by its name instead of a file."""
BASE_DIR = "base_dir"
"""Key in the validation context: the folder of relative paths."""
_SYNSET_WORDS = re.compile(r"(n\d{8})[\s,]+(\S.*)")
"""A line of ImageNet's class lists: a synset and its synonyms."""
_LARGEST = 2**24  # bytes of a file: 16 MiB hold a million ids; weights by mistake are refused


def imagenet_names() -> dict[str, tuple[str, ...]]:
    """Names and synsets of ImageNet's 1000 classes, from timm's own lists, as keys of a spec;
    without timm the names alone, from torchvision."""
    try:
        from timm.data.imagenet_info import ImageNetInfo
    except ImportError:
        from torchvision.models import ResNet50_Weights

        return {"class_names": distinct(ResNet50_Weights.IMAGENET1K_V1.meta["categories"])}
    info: Any = ImageNetInfo()
    ids = tuple(info.label_names())
    return {
        "class_names": distinct([info.label_name_to_description(synset) for synset in ids], ids),
        "class_ids": ids,
    }


def read_class_names(value: object, info: ValidationInfo) -> object:
    """Class names by class index.

    If the value is a path, they are the distinct names in the file; if it is a mapping, its names
    in order. Any other value is returned unchanged.

    Raises:
        ValueError: there is no such file, it has no names, or a mapping lacks an index.
    """
    if isinstance(value, Mapping):
        return _by_index(value)
    if not isinstance(value, str):
        return value
    path, text = _read(value, info)
    names = _from_json(text) if path.suffix.lower() == ".json" else _lines(text)
    if not names:
        raise ValueError("is an empty file")
    if not all(names):
        raise ValueError(
            f"must be a file with a name on each line (line {names.index('') + 1} is empty)"
        )
    matches = [_SYNSET_WORDS.fullmatch(name) for name in names]
    # A single line of another form makes it a plain list of names.
    if not all(matches):
        return distinct(names)
    synsets = [match[1] for match in matches if match]
    return first_synonyms([match[2] for match in matches if match], synsets)


def read_class_ids(value: object, info: ValidationInfo) -> object:
    """The first word of each line of a file (``n01440764 tench, Tinca tinca``), if the value is a
    path; any other value unchanged.

    Raises:
        ValueError: there is no such file, or it has an empty line.
    """
    if not isinstance(value, str):
        return value
    _, text = _read(value, info)
    # The separator between the id and the names may be a space or a comma.
    words = [re.split(r"[\s,]", line, maxsplit=1)[0] for line in _lines(text)]
    if not all(words):
        raise ValueError("must be a file that begins each line with an id")
    return tuple(words)


def read_ids(value: object, info: ValidationInfo) -> object:
    """Sample ids as text, from a list or from a file with one per line.

    Raises:
        ValueError: there is no such file, or an id appears twice.
    """
    if isinstance(value, str):
        _, text = _read(value, info, "ids")
        value = [line for line in _lines(text) if line]
    if not isinstance(value, list | tuple):
        return value
    # YAML reads an id such as 17 as a number, and also yes and no as truth values, which the type
    # check refuses.
    ids = tuple(
        str(entry) if isinstance(entry, int) and not isinstance(entry, bool) else entry
        for entry in value
    )
    repeated = [name for name, times in Counter(ids).items() if times > 1]
    if repeated:
        raise ValueError(f"lists {repeated[0]!r} twice")
    return ids


def _read(value: str, info: ValidationInfo, what: str = "names") -> tuple[Path, str]:
    """The path and the text of a file.

    Args:
        value: the path as written.
        info: the validation, with the folder of relative paths.
        what: the content, for messages.

    Raises:
        ValueError: there is no such file, or it is not a text file of a reasonable size.
    """
    path = (info.context or {}).get(BASE_DIR, Path()) / expanded(value)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise ValueError(f"must be a list of {what}, or a file of them")
        return path, path.read_text(encoding="utf-8-sig")  # Windows editors begin with a BOM
    except UnicodeDecodeError:
        raise ValueError("must be a file of UTF-8 text") from None
    except OSError as error:
        raise ValueError(
            f"must be a list of {what}, or a file of them ({error.strerror or error}: {path})"
        ) from None


def _lines(text: str) -> list[str]:
    """The stripped lines of a text, without empty ones at its ends."""
    return [line.strip() for line in text.strip().splitlines()]


def _from_json(text: str) -> list[str]:
    """The names in a JSON text, in the order of the classes."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({error})") from None
    return _by_index(document)


def _by_index(names: object) -> list[str]:
    """The names in the order of the classes.

    They are listed, or given by index (as Transformers has them), or as indices by name
    (torchvision's ``class_to_idx``).
    """
    if isinstance(names, Mapping):
        pairs = list(names.items())
        if all(type(index) is int for index in names.values()):
            pairs = [(index, name) for name, index in pairs]
        by_index = {str(index): name for index, name in pairs}  # JSON's keys are text
        names = [by_index.get(str(index)) for index in range(len(names))]
    if isinstance(names, list):
        numbers = [name for name in names if isinstance(name, bool | int | float)]
        if numbers:
            raise ValueError(f"has the name {numbers[0]!r}, which {unquoted(numbers[0])}")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            "must be a list of names, {index: name} or {name: index}, with all indices from 0"
        )
    return names
