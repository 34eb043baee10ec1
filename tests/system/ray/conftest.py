"""Clusters that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.ray.clusters import Nodes, Surroundings, surroundings, two_nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster of two nodes, each with room for one worker."""
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture
def here() -> Iterator[Surroundings]:
    """Surroundings without a cluster."""
    with surroundings() as found:
        yield found
