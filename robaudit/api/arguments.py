"""The values of arguments as a spec holds them, and messages that name the argument."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robaudit.errors import RobauditError, SpecError
from robaudit.levels import LevelChoice
from robaudit.spec.fields import as_number

_FLAGS = ("as-given", "deterministic", "extend", "fresh", "per-class", "point", "population", "strict", "trust")
_VALUES = (
    *("bottom", "budget", "by", "confidence", "device", "engine", "estimator", "gate", "gpus-per-worker", "id", "inconclusive", "label"),
    *("level", "limit", "max-samples", "memory", "noise", "on-error", "only", "out", "radius", "ray-address", "sigma", "threshold", "top"),
    *("until-decided", "width", "with", "workers"),
)
_OPTION = re.compile(
    rf"(?:robaudit estimate )?(?<![\w-])--({'|'.join((*_FLAGS, *_VALUES))})(?![\w-])(?: (skip|label|predicted|ray|all)\b)?"
)


def in_python(text: str) -> str:
    """A message with the options of the command line as arguments: ``trust=True`` for ``--trust``, ``out`` for ``--out``."""

    def argument(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return f"{name}=True" if option[1] in _FLAGS else f"{name}={option[2]!r}" if option[2] else name

    return _OPTION.sub(argument, text)


@contextlib.contextmanager
def naming_arguments() -> Iterator[None]:
    """Let the errors of a function name its arguments, not options."""
    try:
        yield
    except RobauditError as error:
        error.where, error.what, error.remedy = map(in_python, (error.where, error.what, error.remedy))
        error.args = (in_python(str(error)),)
        raise


def plain(value: Any) -> Any:
    """Arrays and tensors as lists of numbers, and tuples as well; a 32-bit float as the shortest number that reads back the same (0.1)."""
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
    """The finite number that an argument is; "8/255" is understood.

    Raises:
        SpecError: it is none.
    """
    found = plain(given)
    with contextlib.suppress(ValueError):
        found = float(str(as_number(found))) if isinstance(found, str) else found
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
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
    if found <= 0:
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


def several(given: Any) -> tuple[Any, ...]:
    """One or several as a tuple; None: empty."""
    found = plain(given)
    return () if found is None else tuple(found) if isinstance(found, list) else (found,)


def choose(argument: str, given: object, known: Sequence[object]) -> None:
    """Refuse a value that is not one of those known.

    Raises:
        SpecError: it is none.
    """
    if given not in known:
        raise SpecError(argument, f"{given!r} is unknown", f"one of {', '.join(map(repr, known))}")


def levels(noise: Any, level_: Any, sigma: Any) -> LevelChoice:
    """The noise levels that the arguments of a question name."""
    numbers = (tuple(level(name, one) for one in several(given)) for name, given in (("level", level_), ("sigma", sigma)))
    return LevelChoice(several(noise), *numbers)


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
