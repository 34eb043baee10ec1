"""The real program in a process of its own: help, version, streams, colours, pipes; and that help
is fast."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import forks
from tests.commands_page import commands
from tests.specs import digits, write

PROGRAM = Path(sys.executable).with_name("robaudit")


def start(
    *args: str,
    cwd: Path | None = None,
    program: tuple[str, ...] = (str(PROGRAM),),
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run the installed program without a terminal, in a plain environment."""
    return subprocess.run(
        [*program, *args],
        cwd=cwd,
        env=plain(environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def plain(extra: Mapping[str, str]) -> dict[str, str]:
    dropped = (
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR_FORCE",
        "TTY_COMPATIBLE",
        "COLUMNS",
        "GITHUB_ACTIONS",
        "PY_COLORS",
    )
    return {**{key: value for key, value in os.environ.items() if key not in dropped}, **extra}


def test_version() -> None:
    done = start("--version")
    first, packages, machine = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first == f"robaudit {version('robaudit')}"
    assert f"torch {version('torch')}" in packages
    assert platform.machine() in machine


def test_modules_of_the_working_folder_are_not_imported(tmp_path: Path) -> None:
    """A stranger's folder may hold a typer.py, and the audit of its files is started there."""
    for name in ("__future__", "os", "signal", "torch", "typer", "typing", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it ran')\n")
    done = start("list", "schema", program=(sys.executable, "-m", "robaudit"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{")


def test_help_lists_every_command() -> None:
    done = start("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(re.search(rf"^\W+{command} ", done.stdout, re.MULTILINE) for command in commands())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec and its run, made by the real program; ``out`` and ``err`` hold what it
    printed."""
    folder = tmp_path_factory.mktemp("entry")
    spec = digits(limit=20, model={**digits()["model"], "mean": [0.99], "std": [0.01]})
    done = start("estimate", str(write(folder, spec)), "--out", "run", cwd=folder)
    assert done.returncode == 0
    (folder / "out").write_text(done.stdout)
    (folder / "err").write_text(done.stderr)
    return folder


def test_tables_go_to_stdout_and_notes_to_stderr(folder: Path) -> None:
    out = (folder / "out").read_text()
    err = (folder / "err").read_text()
    assert out.startswith("warning         ")
    assert "\nclean accuracy  " in out
    assert "note: " not in out
    assert "warning: " not in out
    assert "warning: " in err
    assert "note: " in err
    assert not set(out.splitlines()) & set(err.splitlines()) - {""}


def test_no_escape_codes_without_a_terminal(folder: Path) -> None:
    assert "\x1b" not in (folder / "out").read_text() + (folder / "err").read_text()


@pytest.mark.slow
def test_no_color_wins_over_a_terminal_that_has_colours(folder: Path) -> None:
    forced = start("estimate", "spec.yaml", "--out", "run", cwd=folder, FORCE_COLOR="1")
    assert "\x1b[33mwarning:" in forced.stderr
    refused = start(
        "estimate", "spec.yaml", "--out", "run", cwd=folder, FORCE_COLOR="1", NO_COLOR="1"
    )
    assert not re.search(r"\x1b\[[\d;]*3\d", refused.stderr + refused.stdout), (
        "no colour; bold and dim are no colours"
    )


def read_all(controller: int) -> str:
    """What is written to a terminal until its last writer closes it."""
    found = b""
    with (
        os.fdopen(controller, "rb", buffering=0) as stream,
        contextlib.suppress(OSError),
    ):  # Linux ends with an error
        while data := stream.read(4096):
            found += data
    return found.decode()


def test_data_formats_are_alone_on_stdout(folder: Path) -> None:
    done = forks.robaudit(
        folder, "flag-samples", "run", "--bottom", "2", "--format", "csv", "--images", "pictures"
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 3
    warning, said = done.stderr.splitlines()
    assert warning.startswith("warning: ")
    assert said == "2 pictures in pictures"


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [["show", "run"], ["flag-samples", "run", "--format", "csv"], ["list", "schema"], ["--help"]],
    ids=" ".join,
)
def test_reader_of_the_pipe_may_leave(args: list[str], folder: Path) -> None:
    with subprocess.Popen(
        [PROGRAM, *args], cwd=folder, env=plain({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert all(line.startswith(b"warning: ") for line in process.stderr.read().splitlines())
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("args", "code"),
    [(["show", "run"], 0), (["gate", "run", "warnings <= 0"], 1)],
    ids=["show", "gate"],
)
def test_without_standard_output(args: list[str], code: int, folder: Path) -> None:
    """What would be printed is dropped; the exit code counts."""
    command = ["sh", "-c", 'exec "$@" >&-', "sh", str(PROGRAM), *args]
    done = subprocess.run(
        command,
        cwd=folder,
        env=plain({}),
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, "internal error" in done.stderr) == (code, False)


def test_in_a_folder_that_was_deleted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = [
        "sh",
        "-c",
        'rmdir "$PWD" && exec "$@"',
        "sh",
        str(PROGRAM),
        "report",
        str(folder / "run"),
        "-o",
        "x.html",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path / "gone",
        env=plain({}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    line = "error: the current folder has been deleted; change to one that exists\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_a_bug_shows_its_traceback_only_when_asked(folder: Path) -> None:
    code = (
        "import sys, robaudit.stats.reading\n"
        "robaudit.stats.reading.read_run = lambda path: 1 / 0\n"
        "sys.argv = ['robaudit', 'show', 'run']\n"
        "from robaudit.cli import main\n"
        "main()\n"
    )
    done = start("-c", code, cwd=folder, program=(sys.executable,))
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "Traceback" not in done.stderr
    asked = start("-c", code, cwd=folder, program=(sys.executable,), ROBAUDIT_TRACEBACK="1")
    assert "Traceback" in asked.stderr
