"""The values of arguments as a spec holds them, and checks that name the argument."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from robaudit.errors import SpecError
from robaudit.spec.fields import as_number


def plain(value: Any) -> Any:
    """Arrays and tensors as lists of numbers, and tuples as well; a float of 32 bits as the shortest number that it stands for (0.1)."""
    if hasattr(value, "detach"):  # a tensor; NumPy has no bfloat16
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() and value.element_size() < 4 else value).numpy()
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") == "f" and dtype is not None and dtype.itemsize < 8:
        return [plain(one) for one in value] if value.ndim else float(str(value))
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def number(argument: str, given: object) -> float:
    """The number that an argument is; "8/255" is understood.

    Raises:
        SpecError: it is none.
    """
    found = plain(given)
    with contextlib.suppress(ValueError):
        found = float(str(as_number(found))) if isinstance(found, str) else found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise SpecError(argument, f"{given!r} is not a number", "for example 0.5")
    return float(found)


def level(argument: str, given: object) -> float:
    """The noise level that an argument is.

    Raises:
        SpecError: it is none.
    """
    try:
        found = number(argument, given)
    except SpecError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise SpecError(argument, f"{given!r} is not a positive number", "give a noise level such as 0.05 or '8/255'")
    return found


def whole(argument: str, given: object) -> int:
    """The whole number that an argument is.

    Raises:
        SpecError: it is none.
    """
    found = plain(given)
    if isinstance(found, bool) or not isinstance(found, int):
        raise SpecError(argument, f"{given!r} is not a whole number", "for example 10")
    return found


def texts(argument: str, given: object, example: str) -> tuple[str, ...]:
    """One text or several.

    Raises:
        SpecError: something is no text.
    """
    several = tuple(given) if isinstance(given, list | tuple) else (given,)
    for one in several:
        if not isinstance(one, str):
            raise SpecError(argument, f"{one!r} is not text", example)
    return several
