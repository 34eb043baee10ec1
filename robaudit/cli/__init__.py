"""The command line: one file a command, with arguments, printing and the exit code, nothing else."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the command line and exit with the code the design gives: 0, 2, 3, 5 or 130 (1 and 4 belong to gates)."""
    import typer

    from robaudit.cli.app import app
    from robaudit.errors import RobauditError

    try:
        code = app(prog_name="robaudit", standalone_mode=False)
    except RobauditError as error:
        _fail(f"error: {error}", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except SystemExit as exit_:  # typer and rich leave like this when the reader of a pipe has gone: no mistake of anyone
        code = 0 if isinstance(exit_.__context__, BrokenPipeError) else exit_.code
    except OSError as error:
        if error.filename is not None and not os.environ.get("ROBAUDIT_TRACEBACK"):
            _fail(f"error: {error.filename}: {error.strerror}", 2)
        _internal(error)
    except Exception as error:  # noqa: BLE001  reported in one line: usage, or a bug of ours
        if hasattr(error, "format_message"):  # a usage error of the argument parser
            _fail(f"error: {_usage(error)}", 2)
        _internal(error)
    if code == 130:  # typer turns an interrupt into this code
        resumable = sys.argv[1:2] in (["estimate"], ["demo"])
        _fail("interrupted" + ("; the finished parts are on disk: the same command goes on from there" if resumable else ""), 130)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Any) -> str:
    """The parser's message in one line, and which command explains more."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "robaudit"
    message = " ".join(str(error.format_message()).split()).rstrip(".").replace("Value error, ", "").replace("Input should", "must")
    return f"{message or 'no command is given'}; see {command} --help"


def _internal(error: Exception) -> NoReturn:
    if os.environ.get("ROBAUDIT_TRACEBACK"):
        raise error
    text = " ".join(f"{type(error).__name__}: {error}".split())
    _fail(f"internal error: {text}; this is a bug in robaudit (ROBAUDIT_TRACEBACK=1 shows where)", 3)


def _fail(line: str, code: int) -> NoReturn:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
    sys.exit(code)
