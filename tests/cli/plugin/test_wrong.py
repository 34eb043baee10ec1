"""Plugins of every group that are wrong: one line that names them where they are asked for, and
everything else works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import forks
from tests.conftest import RunCli
from tests.specs import digits, write

WRONG = {
    "gone": "no_such_module:X",
    "number": "wrong:NUMBER",
    "function": "wrong:function",
    "plain": "wrong:Plain",
    "ending": "wrong_ending:X",
    "raising": "wrong:Raising",
}
GROUPS = ("sections", "statistics", "commands", "relations", "datasets", "objectives")
MODULE = """
from robaudit.report.sections import Section

NUMBER = 5

def function():
    raise KeyError("a mistake")

class Plain:
    pass

class Raising(Section):
    title = "Raising"

    def applies(self, run):
        return False

    def records(self, run, request):
        raise KeyError("a mistake")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and wrong packages beside it."""
    base = tmp_path_factory.mktemp("wrong")
    (base / "wrong.py").write_text(MODULE)
    (base / "wrong_ending.py").write_text("raise SystemExit(0)")
    about = base / "wrong-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    names = {name: value for name, value in WRONG.items() if name != "raising"}
    listed = {f"robaudit.{group}": names for group in GROUPS if group != "relations"}
    listed["robaudit.sections"] = {**WRONG, "confusion": "wrong:Plain"}
    listed["robaudit.commands"] = {**names, "estimate": "wrong:function"}
    lines = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in listed.items()
    )
    (about / "entry_points.txt").write_text("".join(lines))
    return base


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    spec = write(folder, digits(limit=4, estimators=[{"mc": {"draws": 20}}]))
    done = forks.robaudit(folder, "estimate", spec, "--out", "run", path=[folder])
    assert done.returncode == 0, done.stderr  # a plugin does not replace a command of ours
    return folder / "run"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("show", "run", "levels"),
        ("show", "run", "--help"),
        ("gate", "run", "mean >= 0.1", "--format", "json"),
        ("list", "schema", "--for", "gates"),
        ("report", "run", "-o", "page.md"),
        ("verify", "run", "--samples", "0"),
    ],
    ids=" ".join,
)
def test_what_does_not_ask_for_them_works(arguments: tuple[str, ...], run: Path) -> None:
    done = forks.robaudit(run.parent, *arguments, path=[run.parent])
    assert done.returncode == 0, done.stderr
    assert "wrong" not in done.stderr


@pytest.mark.parametrize("name", WRONG)
def test_a_section_that_is_wrong_says_so(name: str, run: Path) -> None:
    done = forks.robaudit(run.parent, "show", "run", name, path=[run.parent])
    assert done.returncode == 2
    assert done.stderr.startswith("error: section ")
    assert done.stderr.count("\n") == 1
    assert "fix or uninstall" in done.stderr


ASKING = {"gate statistic": ("gate", "run", "{} >= 0"), "command": ("{}",)}


@pytest.mark.parametrize("name", [name for name in WRONG if name != "raising"])
@pytest.mark.parametrize("what", ASKING)
def test_a_statistic_or_a_command_that_is_wrong_says_so(what: str, name: str, run: Path) -> None:
    done = forks.robaudit(
        run.parent, *(word.format(name) for word in ASKING[what]), path=[run.parent]
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {what} {name}")
    assert done.stderr.count("\n") == 1


def test_the_name_of_a_section_of_ours_is_taken(run: Path, run_cli: RunCli) -> None:
    done = forks.robaudit(run.parent, "show", "run", "confusion", path=[run.parent])
    assert done.returncode == 2
    assert "section confusion: registered twice" in done.stderr


def test_a_shell_completes_sections_and_their_options(run_cli: RunCli) -> None:
    from robaudit.cli.parser import commands

    (section,) = (
        parameter for parameter in commands()["show"].params if parameter.name == "section"
    )
    assert any(parameter.name == "radius" for parameter in commands()["show"].params)
    assert section.shell_complete is not None
