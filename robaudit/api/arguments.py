"""The values of arguments as a spec holds them, and messages that name the argument."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robaudit.errors import RobauditError, SpecError
from robaudit.levels import LevelChoice
from robaudit.report.sections import section_options
from robaudit.spec import fields

_FLAGS = ("as-given", "deterministic", "extend", "fresh", "point", "population", "strict", "trust")
_VALUES = (
    *(
        "bottom",
        "budget",
        "by",
        "confidence",
        "device",
        "engine",
        "estimator",
        "gate",
        "gpus-per-worker",
        "id",
        "inconclusive",
        "label",
    ),
    *(
        "level",
        "limit",
        "memory",
        "noise",
        "on-error",
        "only",
        "out",
        "ray-address",
        "sigma",
        "threshold",
        "top",
    ),
    *("until-decided", "width", "with", "workers"),
)


@functools.cache
def _option() -> re.Pattern[str]:
    """An option of the command line, those of the installed sections included, and its value where
    that is a word."""
    names = "|".join((*_FLAGS, *_VALUES, *(option.name for option in section_options())))
    return re.compile(
        rf"(?:robaudit estimate )?(?<![\w-])--({names})(?![\w-])(?: "
        r"(skip|label|predicted|ray|all)\b)?"
    )


def in_python(text: str) -> str:
    """A message with the options of the command line as arguments: ``trust=True`` for ``--trust``,
    ``out`` for ``--out``."""

    def argument(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return (
            f"{name}=True"
            if option[1] in _FLAGS
            else f"{name}={option[2]!r}"
            if option[2]
            else name
        )

    return _option().sub(argument, text)


@contextlib.contextmanager
def naming_arguments() -> Iterator[None]:
    """Let the errors of a function name its arguments instead of command-line options."""
    try:
        yield
    except RobauditError as error:
        error.where, error.what, error.remedy = map(
            in_python, (error.where, error.what, error.remedy)
        )
        error.args = (in_python(str(error)),)
        raise


def plain(value: Any) -> Any:
    """Arrays, tensors and tuples as lists; a 32-bit float as the shortest number that reads back
    the same (0.1)."""
    if hasattr(value, "detach"):  # a tensor; NumPy has no bfloat16
        value = value.detach().cpu()
        value = (
            value.float() if value.is_floating_point() and value.element_size() < 4 else value
        ).numpy()
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") == "f" and dtype is not None and dtype.itemsize < 8:
        return [plain(item) for item in value] if value.ndim else float(str(value))
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return (
        {key: plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
    )


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
    if isinstance(parsed, bool) or not isinstance(parsed, int):
        raise SpecError(argument, f"{value!r} is not a whole number", "for example 10")
    return parsed


def several(value: Any) -> tuple[Any, ...]:
    """One value or several as a tuple; None: empty."""
    parsed = plain(value)
    return () if parsed is None else tuple(parsed) if isinstance(parsed, list) else (parsed,)


def choose(argument: str, value: object, known: Sequence[object]) -> None:
    """Refuse an unknown value.

    Raises:
        SpecError: the value is unknown.
    """
    if value not in known:
        raise SpecError(argument, f"{value!r} is unknown", f"one of {', '.join(map(repr, known))}")


def levels(noise: Any, level: Any, sigma: Any) -> LevelChoice:
    """The noise levels that the arguments noise, level and sigma choose."""
    numbers = (
        tuple(fields.level(name, part) for part in several(value))
        for name, value in (("level", level), ("sigma", sigma))
    )
    return LevelChoice(several(noise), *numbers)


def texts(argument: str, value: object, example: str) -> tuple[str, ...]:
    """One text or several as a tuple.

    Raises:
        SpecError: an item is not text.
    """
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    for text in several:
        if not isinstance(text, str):
            raise SpecError(argument, f"{text!r} is not text", example)
    return several
