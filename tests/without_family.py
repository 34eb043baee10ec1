"""A plugin of pytest that takes a family away, as if its folder and its entry points were deleted: `pytest -p tests.without_family --without radius`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoints
from types import ModuleType

import pytest

from robaudit import plugins


class Deleted:
    """Finds no module of a family.

    Args:
        family: the name of its folder.
    """

    def __init__(self, family: str) -> None:
        self.package = f"robaudit.methods.{family}"

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Raise for the family's modules; leave all others to the other finders."""
        if name == self.package or name.startswith(f"{self.package}."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", metavar="FAMILY", required=True)


def pytest_configure(config: pytest.Config) -> None:
    deleted = Deleted(config.getoption("--without"))
    installed = plugins._entry_points.__wrapped__

    def others(path: tuple[str, ...], group: str) -> EntryPoints:
        return EntryPoints(point for point in installed(path, group) if not point.value.startswith(f"{deleted.package}."))

    sys.meta_path.insert(0, deleted)
    plugins._entry_points = others  # type: ignore[assignment]
