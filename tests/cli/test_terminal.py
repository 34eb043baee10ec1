"""Ids and names from strangers: on a terminal what nobody would see is escaped; a file or a pipe
gets them exactly as they are."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from robaudit import audit, load_spec
from robaudit.cli.output_streams import put
from tests.conftest import RunCli
from tests.specs import digits, write

IDS = ("zero\u200bwidth", "\u00adsoft", "\ue000private", "\ufeffmark", "Katze 猫, é", "plain")
COMMANDS = (
    ("show", "rows"),
    ("flag-samples", "--threshold", "1", "--format", "csv"),
    ("bias-report", "--format", "csv"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images and classes with such names; those with control characters are refused when the data
    are read."""
    folder = tmp_path_factory.mktemp("terminal")
    Image.new("L", (8, 8)).save(folder / "a.png")
    lines = "".join(f'a.png,{i},"{name}"\n' for i, name in enumerate(IDS))
    (folder / "list.csv").write_bytes(("path,label,id\n" + lines).encode())
    names = [f"\u200b{i}m" for i in range(10)]
    spec = digits(dataset={"kind": "csv", "path": "list.csv", "channels": 1, "class_names": names})
    return audit(load_spec(write(folder, spec)), out=folder / "run").path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_and_a_pipe_get_the_same_bytes(
    run: Path, run_cli: RunCli, command: tuple[str, ...], tmp_path: Path
) -> None:
    printed = run_cli(command[0], run, *command[1:]).out
    assert run_cli(command[0], run, *command[1:], "-o", tmp_path / "report").out == ""
    assert (tmp_path / "report").read_bytes() == printed.encode()


def test_export_is_exact(run: Path, run_cli: RunCli) -> None:
    for form in ("csv", "json"):
        assert (
            run_cli("show", run, "rows", "--format", form).out.encode()
            == (run / f"samples.{form}").read_bytes()
        )
    assert [
        row["sample_id"]
        for row in json.loads(run_cli("show", run, "rows", "--format", "json").out)["rows"]
    ] == list(IDS)


def test_a_real_terminal(run: Path) -> None:
    leader, follower = pty.openpty()
    try:
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-m", "robaudit", "show", str(run), "rows"]
        assert (
            subprocess.run(command, stdout=follower, env=environment, check=False).returncode == 0
        )
        shown = os.read(leader, 10_000).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert [c for c in shown if not c.isprintable() and c not in "\r\n"] == []
    assert "zero\\u200bwidth" in shown
    assert "Katze 猫, é" in shown
    assert shown.count("\r\n") == shown.count("\r") == len(IDS) + 1


def test_a_table_on_an_output_that_knows_ascii_only(run: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "robaudit", "flag-samples", str(run), "--threshold", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"Katze \\u732b, \\xe9" in done.stdout


@pytest.mark.parametrize(
    ("terminal", "expected"), [(True, b"a\\x1b\n\\u732b\n"), (False, "a\\x1b\n猫\n".encode())]
)
def test_an_output_that_knows_ascii_only(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, expected: bytes
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    put(["a\x1b", "\n猫\n"])
    assert stream.buffer.getvalue() == expected
