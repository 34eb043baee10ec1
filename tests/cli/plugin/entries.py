"""Plugins as if they were installed, and those of docs/plugins.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from robaudit import plugins

PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
FILES = (
    "pyproject.toml",
    "robaudit_clear.py",
    "robaudit_clear_section.py",
    "robaudit_clear_gate.py",
    "test_clear.py",
    "robaudit_norms.py",
    "robaudit_banding.py",
)
"""The files on the page, in their order there."""


def write_documented(folder: Path) -> None:
    """The files of the packages on the page."""
    folder.mkdir()
    for name, text in zip(
        FILES,
        re.findall(r"```(?:toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL),
        strict=True,
    ):
        (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def only(where: str, names: Mapping[str, str]) -> Iterator[None]:
    """A group of entry points that has these alone: name -> "module:Class"."""
    found = [EntryPoint(name.rstrip("_"), value, where) for name, value in names.items()]
    others = plugins.in_group  # also where another group is replaced already
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plugins, "in_group", lambda group: found if group == where else others(group=group)
        )
        yield


@contextmanager
def beside_ours(group: str, names: Mapping[str, str]) -> Iterator[None]:
    """The group with these besides those that are installed."""
    with only(group, {**{point.name: point.value for point in entry_points(group=group)}, **names}):
        yield
