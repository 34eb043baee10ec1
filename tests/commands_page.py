"""Write docs/commands.md: every command with its arguments and options, taken from the program
itself.

python -m tests.commands_page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from robaudit.cli import parser

PATH = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_HEAD = """# The commands

Written by `python -m tests.commands_page`. `robaudit COMMAND --help` prints the same in a terminal.
`robaudit --install-completion` makes your shell complete commands and options; `--show-completion`
prints what it would install.
"""


def commands() -> dict[str, Any]:
    """The commands of the parser by name."""
    return parser.commands()


def text() -> str:
    """The whole page."""
    return "\n".join(
        [_HEAD, *(line for name, command in commands().items() for line in _command(name, command))]
    )


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## robaudit {name}\n"
    yield command.help.replace("Example: ", "Example:\n\n    ") + "\n"
    yield "| argument or option | meaning |\n|---|---|"
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        left, meaning = (
            part.replace("|", "\\|") for part in parameter.get_help_record(typer.Context(command))
        )
        yield f"| `{left}` | {meaning.replace('<', '&lt;')} |"
    yield ""


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
