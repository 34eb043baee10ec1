"""Plugins by name, through entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from robaudit.errors import RobauditError, SpecError, did_you_mean

_T = TypeVar("_T")


def installed(group: str, what: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, in alphabetical order; nothing is imported.

    Args:
        group: its name, such as robaudit.estimators.
        what: what its plugins are, for messages, such as estimator.

    Raises:
        RobauditError: two packages register the same name, or none is registered at all.
    """
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda p: (p.name, p.value)):
        other = points.setdefault(point.name, point)
        if other.value != point.value:
            raise RobauditError(
                f"{what} {point.name}", f"registered twice, as {other.value} and {point.value}", "uninstall one of the packages"
            )
    if not points:
        raise RobauditError(f"{what}s", f"no entry point in the group {group}", "install the package (pip install .) instead of copying it")
    return points


def load_class(group: str, what: str, name: str, base: type[_T], where: str) -> type[_T]:
    """The class behind a name.

    Args:
        group, what: as for :func:`installed`.
        name: of the plugin.
        base: what it must be a subclass of.
        where: the place that names it, for messages.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, or its class is of another kind.
    """
    points = installed(group, what)
    if name not in points:
        raise SpecError(where, f"unknown {what} {name!r}", did_you_mean(name, points))
    try:
        cls = points[name].load()
    except Exception as error:
        raise RobauditError(
            f"{what} {name}", f"its plugin {points[name].value} does not import: {error!r}", "fix or uninstall it"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise RobauditError(
            f"{what} {name}", f"{points[name].value} is not a subclass of robaudit.{base.__name__}", "fix or uninstall the plugin"
        )
    return cls
