"""The values of arguments as a spec holds them, and errors that name arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robaudit.errors import RobauditError, SpecError
from robaudit.levels import LevelChoice
from robaudit.spec import fields


@contextlib.contextmanager
def naming_arguments() -> Iterator[None]:
    """Let the errors of a function name its arguments instead of command-line options."""
    try:
        yield
    except RobauditError as error:
        error.say_in_python()
        raise


def plain(value: Any) -> Any:
    """A value of Python as a YAML file would hold it: arrays, tensors and tuples as lists.

    A 32-bit float becomes the shortest number that reads back the same (0.1), as the user wrote it.
    """
    if hasattr(value, "detach"):
        value = _tensor_array(value)
    dtype = getattr(value, "dtype", None)
    if dtype is not None and _is_short_float(dtype):
        # tolist would make 0.10000000149 of 0.1.
        if value.ndim:
            return [plain(item) for item in value]
        return float(str(value))
    # Arrays of NumPy and its numbers.
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def _tensor_array(tensor: Any) -> Any:
    """A tensor as a NumPy array."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point() and tensor.element_size() < 4:
        # NumPy has no bfloat16.
        tensor = tensor.float()
    return tensor.numpy()


def _is_short_float(dtype: Any) -> bool:
    """Whether a NumPy type holds floats of less than 64 bits."""
    return getattr(dtype, "kind", "") == "f" and bool(dtype.itemsize < 8)


def number(argument: str, value: object) -> float:
    """An argument as a finite number; "8/255" is understood.

    Raises:
        SpecError: it is not a finite number.
    """
    return fields.number(argument, plain(value))


def whole(argument: str, value: object) -> int:
    """An argument as a whole number.

    Raises:
        SpecError: it is not a whole number.
    """
    parsed = plain(value)
    # True is an int to Python.
    if isinstance(parsed, bool) or not isinstance(parsed, int):
        raise SpecError(argument, f"{value!r} is not a whole number", "for example 10")
    return parsed


def several(value: Any) -> tuple[Any, ...]:
    """One value or several as a tuple; None: empty."""
    parsed = plain(value)
    if parsed is None:
        return ()
    return tuple(parsed) if isinstance(parsed, list) else (parsed,)


def choose(argument: str, value: object, known: Sequence[object]) -> None:
    """Refuse an unknown value.

    Raises:
        SpecError: the value is unknown.
    """
    if value not in known:
        raise SpecError(argument, f"{value!r} is unknown", f"one of {', '.join(map(repr, known))}")


def levels(noise: Any, level: Any, sigma: Any) -> LevelChoice:
    """The noise levels that the arguments noise, level and sigma choose.

    Raises:
        SpecError: a level is not a positive number.
    """
    return LevelChoice(
        several(noise),
        tuple(fields.level("level", part) for part in several(level)),
        tuple(fields.level("sigma", part) for part in several(sigma)),
    )


def texts(argument: str, value: object, example: str) -> tuple[str, ...]:
    """One text or several as a tuple.

    Raises:
        SpecError: an item is not text.
    """
    items = tuple(value) if isinstance(value, list | tuple) else (value,)
    for text in items:
        if not isinstance(text, str):
            raise SpecError(argument, f"{text!r} is not text", example)
    return items
