"""Plugins by name, through entry points, and errors that name the plugin at fault."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, TypeVar

from robaudit.errors import PluginError, RobauditError, SpecError, did_you_mean

ESTIMATORS = "robaudit.estimators"
"""The entry-point group of estimators, which a spec names, as the following two."""
NOISES = "robaudit.noise"
"""Kinds of noise."""
OBJECTIVES = "robaudit.objectives"
"""Objectives of training."""
DATASETS = "robaudit.datasets"
"""Kinds of data sets that a spec names: sections of the spec that open them."""
SECTIONS = "robaudit.sections"
"""Sections of ``robaudit show``, pages and figures."""
STATISTICS = "robaudit.statistics"
"""Statistics of gates on a run."""
RELATIONS = "robaudit.relations"
"""Relations between results that ``robaudit verify`` checks."""
REFERENCE = "robaudit.reference"
"""The estimator that others are compared with, and that messages advise."""
COMMANDS = "robaudit.commands"
"""Further commands of the program: functions for typer."""

_T = TypeVar("_T")


def in_group(group: str) -> EntryPoints:
    """The entry points of a group.

    The metadata of all packages are read once for each ``sys.path``.
    """
    return _entry_points(tuple(sys.path), group)


@functools.cache
def _entry_points(_: tuple[str, ...], group: str) -> EntryPoints:
    """The entry points of a group, cached for a search path."""
    return entry_points(group=group)


def names_in(group: str) -> list[str]:
    """The names in a group, in alphabetical order; nothing is imported."""
    return sorted({point.name for point in in_group(group)})


def entry_point(group: str, what: str, name: str) -> EntryPoint:
    """The entry point of a name in a group.

    Raises:
        RobauditError: two packages register the name.
    """
    # By value: a package that is installed twice, as in development, registers the same value.
    by_value = {point.value: point for point in in_group(group) if point.name == name}
    if len(by_value) > 1:
        first, second, *_ = sorted(by_value)
        raise RobauditError(
            f"{what} {name}",
            f"registered twice, as {first} and {second}",
            "uninstall one of the packages",
        )
    (point,) = by_value.values()
    return point


def installed(group: str, what: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, in alphabetical order; nothing is imported.

    Args:
        group: the name of the group, such as robaudit.estimators.
        what: the noun for its plugins, for messages, such as estimator.

    Raises:
        RobauditError: two packages register the same name, or none is registered at all.
    """
    points = {name: entry_point(group, what, name) for name in names_in(group)}
    if not points:
        raise RobauditError(
            f"{what}s",
            f"no entry point in the group {group}",
            "install the package (pip install .) instead of copying it",
        )
    return points


def refuse_unknown(group: str, what: str, name: str, where: str) -> None:
    """Refuse an unknown plugin name; nothing is imported.

    Raises:
        SpecError: it is unknown, with a did-you-mean.
    """
    points = installed(group, what)
    if name not in points:
        raise SpecError(where, f"unknown {what} {name!r}", did_you_mean(name, points))


def load_class(group: str, what: str, name: str, base: type[_T], where: str) -> type[_T]:
    """The class behind a name.

    Args:
        group, what: as for :func:`installed`.
        name: the plugin's name.
        base: the plugin's base class; the plugin must set the class variables without a value
            there.
        where: the place that names the plugin, for messages.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, is not a subclass of ``base``, or lacks a
            required definition.
    """
    refuse_unknown(group, what, name, where)
    return class_of(group, what, name, base)


def class_of(group: str, what: str, name: str, base: type[_T]) -> type[_T]:
    """The class behind a name that some package registers.

    Raises:
        RobauditError: two packages register it, or it cannot be imported, is not a subclass of
            ``base``, or lacks a required definition.
    """
    cls = load_plugin(group, what, name)
    value = entry_point(group, what, name).value
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise RobauditError(
            f"{what} {name}",
            f"{value} is not a subclass of robaudit.{base.__name__}",
            "fix or uninstall the plugin",
        )
    # Pydantic collects the class variables of a model, its bases' included; of a plain class the
    # annotations of the base name them.
    declared = getattr(cls, "__class_vars__", base.__annotations__)
    missing = set(getattr(cls, "__abstractmethods__", ()))
    missing.update(variable for variable in declared if not hasattr(cls, variable))
    if missing:
        lack = f"{value} does not define {', '.join(sorted(missing))}"
        raise RobauditError(f"{what} {name}", lack, "fix or uninstall the plugin")
    return cls


def load_plugin(group: str, what: str, name: str) -> Any:
    """The object that is registered under the name of an installed plugin.

    Raises:
        RobauditError: the plugin cannot be imported.
    """
    point = entry_point(group, what, name)
    try:
        return point.load()
    # SystemExit, too: a module that ends the program would end every command.
    except (Exception, SystemExit) as error:
        raise RobauditError(
            f"{what} {name}",
            f"its plugin {point.value} does not import: {error!r}",
            "fix or uninstall it",
        ) from error


def load_object(group: str, what: str, name: str, kind: type[_T]) -> _T:
    """The object of a class that is registered under the name of an installed plugin.

    Raises:
        RobauditError: the plugin cannot be imported, or is no such object.
    """
    plugin = load_plugin(group, what, name)
    if not isinstance(plugin, kind):
        value = entry_point(group, what, name).value
        raise RobauditError(
            f"{what} {name}",
            f"{value} is {shown(plugin)}, not a {kind.__name__}",
            "fix or uninstall the plugin",
        )
    return plugin


def reference() -> str:
    """The name of the reference estimator, for messages and defaults; nothing is imported."""

    def order(point: EntryPoint) -> tuple[bool, str]:
        """Our own reference comes first, before those of other packages."""
        return not _is_in_package(point.module), point.name

    points = sorted(in_group(REFERENCE), key=order)
    return points[0].name if points else "an estimator of a probability"


class BrokenContractError(ValueError):
    """A plugin declares or returns something invalid."""


@contextmanager
def blaming(place: str, owner: type | EntryPoint) -> Iterator[None]:
    """Turn an exception in a third-party plugin into an error that names the plugin.

    Exceptions of our own plugins pass unchanged, and so do user errors and failed allocations.

    Args:
        place: kind and name of the plugin, such as "estimator mc".
        owner: its class, or the entry point of an object.

    Raises:
        PluginError: the plugin raised an exception.
    """
    try:
        yield
    except Exception as error:
        if isinstance(owner, EntryPoint):
            module = owner.module
            name = owner.attr
        else:
            module = owner.__module__
            name = owner.__qualname__
        if _is_in_package(module) or isinstance(error, RobauditError):
            raise
        from robaudit.memory import is_out_of_memory  # imports torch

        # The audit tries again with less when memory runs out, whoever ran out of it.
        if is_out_of_memory(error):
            raise
        what = str(error)
        if not isinstance(error, BrokenContractError):
            what = f"raised {type(error).__name__}: {error}{_line(module, error)}"
        raise PluginError(
            f"{place} ({module}:{name})", what, "fix or uninstall the plugin"
        ) from error


def is_ours(cls: type) -> bool:
    """Whether a plugin belongs to this package."""
    return _is_in_package(cls.__module__)


def _is_in_package(module: str) -> bool:
    """Whether a module belongs to this package."""
    return module.partition(".")[0] == "robaudit"


def shown(value: Any) -> str:
    """A short description of an object: its type with its shape or value."""
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"{kind} {value!r:.60}" if shape is None else f"a {kind} of shape {tuple(shape)}"


def _line(module: str, error: Exception) -> str:
    """The last line of the plugin's own module in the traceback, as " (file.py, line 7)"; empty if
    there is none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""
