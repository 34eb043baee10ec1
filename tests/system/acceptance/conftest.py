"""What tests of the command line in processes of their own share: undisturbed runs."""

from __future__ import annotations

import pytest

from tests.system.acceptance.rig import Rig


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A place to disturb runs in."""
    return Rig(tmp_path_factory.mktemp("faults"))
