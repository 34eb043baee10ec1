"""What the tests of the commands share: what a refusal looks like."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import tree

Refuse = Callable[..., str]


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A run of the test's own, ``run``, beside its spec: a copy of the module's folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


@pytest.fixture
def refuse(run_cli: RunCli, tmp_path: Path, golden: Golden) -> Refuse:
    """Run a command that must be refused: one line, which tests/messages has, exit 2 and nothing
    written; returns the line."""

    def run(*args: str | Path, code: int = 2) -> str:
        before = tree(tmp_path)
        outcome = run_cli(*args)
        lines = [
            line
            for line in outcome.err.splitlines()
            if not line.startswith(("note: ", "warning: "))
        ]
        assert len(lines) == 1, outcome.err
        assert lines[0].startswith("error: "), outcome.err
        golden(lines[0])
        assert "Traceback" not in outcome.err
        assert len(lines[0]) < 700
        assert (outcome.code, outcome.out) == (code, "")
        assert tree(tmp_path) == before, "a refused command leaves nothing behind"
        return lines[0]

    return run
