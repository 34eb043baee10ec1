"""Class names from a file: one per line (also ``n01440764 tench, Tinca tinca``), or JSON: a list,
or a mapping in either direction."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationInfo

from robaudit.files import expanded
from robaudit.spec.fields import unquoted
from robaudit.text import distinct

BASE_DIR = "base_dir"
"""Key in the validation context: the folder of relative paths."""
_SYNSET_WORDS = re.compile(r"(n\d{8})[\s,]+(\S.*)")
"""A line of ImageNet's class lists: a synset and its synonyms."""
_LARGEST = 2**24


def read_class_names(value: object, info: ValidationInfo) -> object:
    """The distinct names in a file, by class index, if the value is a path; a mapping's names in
    order; any other value unchanged.

    Raises:
        ValueError: there is no such file, it has no names, or a mapping lacks an index.
    """
    if isinstance(value, Mapping):
        return _by_index(value)
    if not isinstance(value, str):
        return value
    path, text = _read(value, info)
    names = _from_json(text) if path.suffix.lower() == ".json" else _lines(text)
    if not names or not all(names):
        raise ValueError(
            f"must be a file with a name on each line (line {names.index('') + 1} is empty)"
            if names
            else "is an empty file"
        )
    pairs = [_SYNSET_WORDS.fullmatch(name) for name in names]
    return (
        _first_synonyms([pair[2] for pair in pairs if pair], [pair[1] for pair in pairs if pair])
        if all(pairs)
        else distinct(names)
    )


def read_class_ids(value: object, info: ValidationInfo) -> object:
    """The first word of each line of a file (``n01440764 tench, Tinca tinca``), if the value is a
    path; any other value unchanged.

    Raises:
        ValueError: there is no such file, or it has an empty line.
    """
    if not isinstance(value, str):
        return value
    words = [re.split(r"[\s,]", line, maxsplit=1)[0] for line in _lines(_read(value, info)[1])]
    if not all(words):
        raise ValueError("must be a file that begins each line with an id")
    return tuple(words)


def read_ids(value: object, info: ValidationInfo) -> object:
    """Sample ids as text, from a list or from a file with one per line.

    Raises:
        ValueError: there is no such file, or an id appears twice.
    """
    if isinstance(value, str):
        value = [line for line in _lines(_read(value, info, "ids")[1]) if line]
    if not isinstance(value, list | tuple):
        return value
    ids = tuple(
        str(entry) if isinstance(entry, int) and not isinstance(entry, bool) else entry
        for entry in value
    )
    if twice := [name for name, times in Counter(ids).items() if times > 1]:
        raise ValueError(f"lists {twice[0]!r} twice")
    return ids


def _read(value: str, info: ValidationInfo, what: str = "names") -> tuple[Path, str]:
    path = (info.context or {}).get(BASE_DIR, Path()) / expanded(value)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise ValueError(f"must be a list of {what}, or a file of them")
        return path, path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("must be a file of UTF-8 text") from None
    except OSError as error:
        raise ValueError(
            f"must be a list of {what}, or a file of them ({error.strerror or error}: {path})"
        ) from None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _first_synonyms(names: Sequence[str], synsets: Sequence[str]) -> tuple[str, ...]:
    """The first synonym of each class; all synonyms if that is not unique; with the synset if they
    are not unique either.

    ImageNet has two classes whose only name is crane.
    """
    first = [name.split(",", 1)[0].strip() for name in names]
    times = Counter(first)
    return distinct(
        [short if times[short] == 1 else name for short, name in zip(first, names, strict=True)],
        synsets,
    )


def _from_json(text: str) -> list[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({error})") from None
    return _by_index(document)


def _by_index(names: object) -> list[str]:
    """The names in the order of the classes, from names by index (as Transformers has them) or
    indices by name (``class_to_idx``)."""
    if isinstance(names, Mapping):
        by_name = all(type(index) is int for index in names.values())
        by_index = {
            str(index): name
            for index, name in ((v, k) if by_name else (k, v) for k, v in names.items())
        }
        names = [by_index.get(str(index)) for index in range(len(names))]
    listed = names if isinstance(names, list) else []
    odd = [name for name in listed if isinstance(name, bool | int | float)]
    if odd:
        raise ValueError(f"has the name {odd[0]!r}, which {unquoted(odd[0])}")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            "must be a list of names, {index: name} or {name: index}, with all indices from 0"
        )
    return names
