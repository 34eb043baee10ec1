"""The command line: one file a command, with arguments, printing and the exit code, nothing else."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, NoReturn

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_GOES_ON = "; the finished parts are on disk: the same command goes on from there"


def main() -> NoReturn:
    """Run the command line and exit with the code the design gives: 0, 2, 3, 5, 130 or 143; 1 and 4 only where gates or `verify` say so.

    Whatever goes wrong, and an installation that cannot be imported, is 3: no pipeline takes it for a failed gate.
    """
    try:
        from robaudit.cli.ending import ends_when_asked
        from robaudit.cli.process import share_cores

        share_cores()
        with ends_when_asked():
            _main()
    except Exception as error:  # noqa: BLE001  the interpreter's own code for it is 1
        _internal(error)


def _main() -> NoReturn:
    import typer

    from robaudit.cli.app import app
    from robaudit.cli.ending import TERMINATED
    from robaudit.cli.unread import nowhere
    from robaudit.errors import RobauditError

    try:
        code = app(prog_name="robaudit", standalone_mode=False)
    except RobauditError as error:
        _fail(f"error: {error}", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except SystemExit as exit_:
        if exit_.code == TERMINATED:
            _fail("terminated" + _resumable(), TERMINATED)
        if isinstance(exit_.__context__, BrokenPipeError):  # typer and rich leave like this when the reader of a pipe has gone
            sys.exit(0)
        if not _completes():
            what = "code of the model or the data set has called sys.exit, and the command is not done"
            _fail(f"error: {what}; let it return or raise", 2)
        code = exit_.code
    except OSError as error:
        if error.filename is not None and not os.environ.get("ROBAUDIT_TRACEBACK"):
            _fail(f"error: {error.filename}: {error.strerror}", 2)
        if error.errno in _FULL:  # files of ours are named: this is what is printed
            nowhere()
            _fail(f"error: standard output: {error.strerror}", 2)
        _internal(error)
    except Exception as error:  # noqa: BLE001  reported in one line: usage, or a bug of ours
        if hasattr(error, "format_message"):  # a usage error of the argument parser
            _fail(f"error: {_usage(error)}", 2)
        _internal(error)
    if code == 130:  # typer turns an interrupt into this code
        _fail("interrupted" + _resumable(), 130)
    sys.exit(code if isinstance(code, int) else 0)


def _completes() -> bool:
    """Whether the shell asks for completions: typer answers and calls sys.exit."""
    return "_ROBAUDIT_COMPLETE" in os.environ or any(argument.endswith("-completion") for argument in sys.argv[1:])


def _resumable() -> str:
    return _GOES_ON if sys.argv[1:2] in (["estimate"], ["demo"]) else ""


def _usage(error: Any) -> str:
    """The parser's message in one line, and which command explains more."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "robaudit"
    message = " ".join(str(error.format_message()).split()).rstrip(".").replace("Value error, ", "").replace("Input should", "must")
    return f"{message or 'no command is given'}; see {command} --help"


def _internal(error: Exception) -> NoReturn:
    if os.environ.get("ROBAUDIT_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    _fail(f"internal error: {text}; this is a bug in robaudit (ROBAUDIT_TRACEBACK=1 shows where)", 3)


def _fail(line: str, code: int) -> NoReturn:
    from robaudit.cli.standard_error import StandardError

    stream = StandardError()
    stream.write(line + "\n")
    stream.flush()
    sys.exit(code)
