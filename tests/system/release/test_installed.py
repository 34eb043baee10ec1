"""The wheel, installed outside the source tree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.research.release import build, install, try_out


@pytest.mark.slow
def test_the_installed_wheel_works(tmp_path: Path) -> None:
    for name in ("dist", "work"):
        (tmp_path / name).mkdir()
    wheel = build(tmp_path / "dist")
    programs = install(
        wheel, tmp_path / "environment", sys.executable, extras=(), oldest=False, shared=True
    )
    try_out(programs, tmp_path / "work", with_report=True)
