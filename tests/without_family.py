"""A plugin of pytest that takes a family away, as if its folder and its entry points were deleted.

`pytest -p tests.without_family --without radius tests/unit`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from robaudit import plugins

REFERENCE = "robaudit.methods.average_case"
"""The family with the reference estimator; a stand-in takes its place."""


class Deleted:
    """Finds no module of some families.

    Args:
        families: the names of their folders.
    """

    def __init__(self, families: Sequence[str]) -> None:
        self.packages = tuple(f"robaudit.methods.{family}" for family in families)

    def has(self, module: str) -> bool:
        """Whether a module is of these families."""
        return any(
            module == package or module.startswith(f"{package}.") for package in self.packages
        )

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Raise for the family's modules; leave all others to the other finders."""
        if self.has(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", metavar="FAMILY[,FAMILY]", required=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of several families."""
    left_out = [item for item in items if item.get_closest_marker("families") is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    deleted = Deleted(config.getoption("--without").split(","))
    installed = plugins._entry_points.__wrapped__

    def others(path: tuple[str, ...], group: str) -> EntryPoints:
        points = list(installed(path, group))
        left = [point for point in points if not deleted.has(point.module)]
        if REFERENCE in deleted.packages and group in (
            plugins.ESTIMATORS,
            plugins.REFERENCE,
        ):  # the core's tests audit with these names
            left += [
                EntryPoint(point.name, "tests.stand_in:StandIn", group)
                for point in points
                if point.module.startswith(REFERENCE)
            ]
        return EntryPoints(left)

    sys.meta_path.insert(0, deleted)
    plugins._entry_points = others  # type: ignore[assignment]
