"""Plugins as if they were installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

import pytest

from robaudit import plugins


@contextmanager
def only(where: str, names: Mapping[str, str]) -> Iterator[None]:
    """A group of entry points that has these alone: name -> "module:Class"."""
    found = [EntryPoint(name.rstrip("_"), value, where) for name, value in names.items()]
    others = plugins.in_group  # also where another group is replaced already
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "in_group", lambda group: found if group == where else others(group=group))
        yield


@contextmanager
def beside_ours(group: str, names: Mapping[str, str]) -> Iterator[None]:
    """The group with these besides those that are installed."""
    with only(group, {**{point.name: point.value for point in entry_points(group=group)}, **names}):
        yield
