"""A file of noises, which a spec may name instead of writing them out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from robaudit.errors import SpecError
from robaudit.files import expanded
from robaudit.spec.document import read_document
from robaudit.spec.model import NoiseSpec
from robaudit.spec.origin import Location

_KEY = "noise"
_SUFFIXES = (".yaml", ".yml")
_EXAMPLE = "it has the key noise alone, for example noise: [{sigma: 0.05}]"
# The option that names a folder. Another text may be a word, and a folder beside it only its
# namesake.
_FOLDER_OPTION = "path"


def is_noise_file(noise: object) -> TypeGuard[str]:
    """Whether the value under the key ``noise`` names a file: text that ends in .yaml or .yml."""
    return isinstance(noise, str) and noise.endswith(_SUFFIXES)


def read_noises(path: Path, base: Path) -> tuple[Any, dict[Location, int]]:
    """The noises of a file, as a spec in the folder ``base`` writes them.

    An option that names a file beside the noise file becomes a path relative to ``base``, and so
    does a folder under the option ``path``.

    Returns:
        The value under the key ``noise``, and the lines of its parts.

    Raises:
        SpecError: the file is missing, is not YAML, or has something else than noises.
    """
    if not path.exists():
        raise SpecError(str(path), "no such file", "name an existing file of noises")
    document, lines = read_document(path, content=_EXAMPLE)
    for key in document:
        if key != _KEY:
            line = lines.get((str(key),), 1)
            raise SpecError(f"{path}:{line}", f"has the key {key!r}, and is a noise file", _EXAMPLE)
    noises = document.get(_KEY)
    # Text would name a further file.
    if not isinstance(noises, list | dict):
        raise SpecError(str(path), "has no noises", _EXAMPLE)
    folder = path.resolve().parent
    if folder == base:
        return noises, lines
    if isinstance(noises, list):
        return [_moved(entry, folder, base) for entry in noises], lines
    return _moved(noises, folder, base), lines


def _moved(entry: object, folder: Path, base: Path) -> object:
    """A noise whose files are relative to ``folder``, with paths relative to ``base``."""
    if not isinstance(entry, Mapping):
        return entry  # refused later, with the others that are malformed
    moved = dict(entry)
    for key, value in entry.items():
        is_option = key not in NoiseSpec.model_fields
        if is_option and isinstance(value, str) and _is_file(folder, str(key), value):
            moved[key] = os.path.relpath(folder / expanded(value), base)
    return moved


def _is_file(folder: Path, key: str, value: str) -> bool:
    """Whether an option names a file relative to the folder."""
    if expanded(value).is_absolute():
        return False
    place = folder / value
    try:
        return place.is_file() or (key == _FOLDER_OPTION and place.is_dir())
    except (OSError, ValueError):  # ValueError: text with a NUL in it
        return False
