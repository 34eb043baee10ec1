"""What must be answered before the large libraries are imported: help, mistakes on the command
line, and an invalid spec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from robaudit import audit, load_spec
from robaudit.cli.parser import program
from tests.specs import digits, write

LARGE = ("torch", "torchvision", "scipy", "sklearn", "matplotlib", "onnxruntime", "PIL")
COMMANDS = sorted(program().commands, key=lambda name: (name == "show", name))
"""`show` is last: it imports the sections for their options, and they import NumPy."""
_CODE = f"""
import contextlib, io, json, sys
commands = json.load(sys.stdin)
for command in commands:
    sys.argv = ["robaudit", *command]
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            from robaudit.cli import main
            main()
        except SystemExit as exit_:
            code = exit_.code
    loaded = [name for name in {(*LARGE, "numpy", "yaml")!r} if name in sys.modules]
    print(json.dumps([code, said.getvalue(), loaded]))
"""


def answers(commands: list[list[str]], folder: Path) -> list[tuple[int, str, list[str]]]:
    """Exit code, message and large libraries imported so far, of commands one after the other in a
    fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        input=json.dumps(commands),
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_help_and_misspelt_options(tmp_path: Path) -> None:
    commands = [
        ["--version"],
        ["--help"],
        ["--nosuch"],
        ["nosuch"],
        *([name, word] for name in COMMANDS for word in ("--help", "--nosuch")),
    ]
    found = answers(commands, tmp_path)
    assert len(found) == len(commands)
    for command, (code, said, imported) in zip(commands, found, strict=True):
        assert code == (0 if command[-1] in ("--help", "--version") else 2), command
        assert ("--help" in said) == (code == 2), command
        assert imported == (["numpy"] if command[0] == "show" else []), command


def test_no_such_run_or_spec(tmp_path: Path) -> None:
    more = {"plot": ["--kind", "classes", "-o", "x.png"], "compare": ["other"]}
    commands = [[name, "nosuch", *more.get(name, [])] for name in COMMANDS]
    found = answers(commands, tmp_path)
    for command, (code, said, imported) in zip(commands, found, strict=True):
        assert code == 2, command
        assert said.startswith("error: "), command
        assert len(said.splitlines()) == 1, command
        # plot looks first whether it can draw
        assert not {*imported} & {*LARGE} - {"matplotlib"}, command


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "estimator": ({"estimators": ["mcc"]}, "unknown estimator 'mcc'; did you mean 'mc'?"),
    "noise": (
        {"noise": {"kind": "gauss", "sigma": 0.1}},
        "unknown noise kind 'gauss'; did you mean 'gaussian'?",
    ),
    "key": ({"modl": {}}, "unknown key 'modl'"),
    "dataset": ({"dataset": {"kind": "digitz"}}, "unknown kind 'digitz'"),
    "level": ({"noise": {"sigma": -1}}, "must be greater than 0"),
    "gate": ({"gates": ["men >= 1"]}, "unknown quantity 'men'"),
}


def test_invalid_specs(tmp_path: Path) -> None:
    for name, (changed, _) in INVALID.items():
        write(tmp_path, digits(**changed), f"{name}.yaml")
    (tmp_path / "yaml.yaml").write_text("a: [")
    specs = [*(f"{name}.yaml" for name in INVALID), "yaml.yaml"]
    commands = [[*command, spec] for command in (["estimate"], ["validate"]) for spec in specs]
    commands += [
        ["plot", "--kind", "noise", "-o", "x.png", "key.yaml"],
        ["estimate", "gate.yaml", "--sigma", "x"],
        ["estimate", "gate.yaml", "--set", "a"],
    ]
    for command, (code, said, imported) in zip(commands, answers(commands, tmp_path), strict=True):
        assert code == 2, command
        assert INVALID.get(command[-1].removesuffix(".yaml"), ("", "error: "))[1] in said, command
        assert not {*imported} & {*LARGE}, command


def test_gates(tmp_path: Path) -> None:
    spec = digits(limit=4, estimators=[{"mc": {"draws": 2}}])
    audit(load_spec(write(tmp_path, spec)), out=tmp_path / "run")
    found = answers(
        [["gate", "run", "men >= 1"], ["gate", "run", "mean > 1"], ["show", "run"]], tmp_path
    )
    for code, said, imported in found[:2]:
        assert code == 2
        assert not {*imported} & {*LARGE}
        assert said.startswith("error: gate 'me")
    assert "torch" not in found[2][2]
