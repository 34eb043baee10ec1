"""The description of a trained model in its own files, and careful reading of their JSON."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robaudit.errors import ModelError

_MOST_BYTES = 2**25  # 21,000 class names take two million
_HUGE = 10**9  # beyond this, a number is no side, factor, mean or std


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The description of a trained model in its files.

    Attributes:
        source: the file or enum, for messages.
        architecture: timm:NAME, transformers:CLASS or torchvision:NAME.
        options: keyword arguments of the architecture.
        mean, std: of the pixels in [0, 1], per channel; a rescale factor is folded into them. Empty: none.
        images: the keys of `ImageOptions` that prepare an image file for the model.
        class_names: by class index; None if the files have none.
        class_ids: other names of the classes (synsets).
        notes: further lines for the user.
        unclear: why mean, std and images are empty although the model needs them; an error unless the spec has them.
    """

    source: str
    architecture: str
    options: Mapping[str, Any] = field(default_factory=dict)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    images: Mapping[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    class_ids: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    unclear: ModelError | None = None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        ModelError: it cannot be read, is too large, or holds something else.
    """
    where = str(path)
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
            raise ModelError(where, "is not a regular file of at most 32 MB", "restore the model's own file")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(where, f"cannot be read: {error.strerror or error}", "give a file that you may read") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(where, "is not valid JSON", "restore the model's own file") from error
    if not isinstance(found, dict):
        raise ModelError(where, "does not hold a JSON object", "restore the model's own file")
    return found


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a JSON object, each checked for its type.

    Attributes:
        values: the object.
        where: its file, for messages.
    """

    values: Mapping[str, Any]
    where: str

    def text(self, key: str) -> str | None:
        """A text."""
        found: str | None = self._get(key, None, str, "text")
        return found

    def flag(self, key: str, default: bool) -> bool:
        """True or false; null is false."""
        return bool(self._get(key, default, bool, "true or false"))

    def number(self, key: str, default: float | None) -> float | None:
        """A number above 0, and neither tiny nor huge."""
        found = self._get(key, default, (int, float), "a number above 0")
        if found is not None and (isinstance(found, bool) or not 1 / _HUGE < found < _HUGE):
            raise self.wrong(key, "a number above 0")
        return None if found is None else float(found)

    def whole(self, key: str, default: int | None = None) -> int | None:
        """A whole number above 0."""
        found = self._get(key, default, int, "a whole number above 0")
        if found is not None and (isinstance(found, bool) or not 0 < found < _HUGE):
            raise self.wrong(key, "a whole number above 0")
        return found

    def numbers(self, key: str, default: Sequence[float], *, positive: bool = False) -> tuple[float, ...]:
        """A number, or a list of numbers."""
        found = self.values.get(key)
        listed = default if found is None else found if isinstance(found, list | tuple) else [found]
        fine = all(isinstance(one, int | float) and not isinstance(one, bool) and -_HUGE < one < _HUGE for one in listed)
        if not fine or not listed or (positive and min(listed) <= 0):
            raise self.wrong(key, "a list of numbers" + (" above 0" if positive else ""))
        return tuple(float(one) for one in listed)

    def wholes(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers above 0."""
        found = self.values.get(key)
        if found is None:
            return None
        if not (
            isinstance(found, list | tuple) and all(isinstance(one, int) and not isinstance(one, bool) and 0 < one < _HUGE for one in found)
        ):
            raise self.wrong(key, "a list of whole numbers above 0")
        return tuple(found)

    def part(self, key: str) -> dict[str, Any]:
        """An object; an empty one if it is missing."""
        return self._get(key, {}, dict, "an object") or {}

    def wrong(self, key: str, wanted: str) -> ModelError:
        """The error for an invalid entry."""
        return ModelError(self.where, f"its {key!r} is not {wanted}", "restore the model's own file, or correct it")

    def _get(self, key: str, default: Any, kind: type | tuple[type, ...], wanted: str) -> Any:
        found = self.values.get(key, default)
        if found is not None and not isinstance(found, kind):
            raise self.wrong(key, wanted)
        return found
