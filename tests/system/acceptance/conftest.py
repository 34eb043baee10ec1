"""What tests of the command line in processes of their own share: a server that forks for each, and undisturbed runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.acceptance.rig import Rig
from tests.system.hostile.client import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A process that forks for each command."""
    started = Server()
    yield started
    started.close()


@pytest.fixture(scope="session")
def rig(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A place to disturb runs in."""
    return Rig(server, tmp_path_factory.mktemp("faults"))
