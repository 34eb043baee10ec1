"""The program: its commands, exit codes, and the handling of errors and signals."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

from robaudit.cli.signals import INTERRUPTED, TERMINATED, ended_by_signals

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a full or failing disk, which the user can mend."""
_TITLE = "--title"
"""The option whose value may be empty."""
_RUN_MODELS = ("demo", "init", "estimate", "validate", "verify", "train")
"""Commands that run a network, which may never return."""
_RESUMABLE_COMMANDS = ("estimate", "demo")
_RESUMABLE = "; finished work is on disk: run the same command again to continue"


def main() -> NoReturn:
    """Run the command line and exit with 0, 2, 3, 5, 130 or 143; 1 and 4 come only from gates,
    `compare` and `verify`.

    Anything unexpected, including an installation that cannot be imported, is 3, so that no
    pipeline takes it for a failed gate.
    """
    try:
        from robaudit.system import keep_freed_memory, share_cores

        # Before torch is imported: OpenMP reads its settings when it is loaded.
        share_cores()
        warnings.showwarning = _show_warning
        runs_model = _command() in _RUN_MODELS
        # Passes take and free the same blocks again and again; other commands do not.
        if runs_model:
            keep_freed_memory()
        with ended_by_signals(_last_words, _resumable(), watched=runs_model):
            _run()
    except Exception as error:  # noqa: BLE001
        # Otherwise Python would exit with 1, the code of a failed gate.
        _internal(error)


def _command() -> str:
    """The first word of the command line, before the parser reads it."""
    return sys.argv[1] if len(sys.argv) > 1 else ""


def _run() -> NoReturn:
    """Parse the command line, run the command, and exit with its code."""
    import typer

    from robaudit.cli.output_streams import prepare_output
    from robaudit.errors import RobauditError

    prepare_output()
    _refuse_empty()
    _refuse_deleted_folder()
    code: object
    try:
        # Inside the block, because a plugin's command may raise when it is loaded.
        from robaudit.cli.parser import program

        code = program()(prog_name="robaudit", standalone_mode=False)
    except RobauditError as error:
        _fail(f"error: {error}", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as exit_:
        code = _code_of(exit_)
    except OSError as error:
        _refuse_operation(error)
    except Exception as error:  # noqa: BLE001
        # A usage error of the argument parser; anything else is a bug in robaudit.
        if hasattr(error, "format_message"):
            _fail(f"error: {_usage(error)}", 2)
        _internal(error)
    if code == INTERRUPTED:  # typer turns an interrupt into this code
        _fail(_last_words(INTERRUPTED), INTERRUPTED)
    # A command returns None, and typer the code of typer.Exit.
    sys.exit(code if isinstance(code, int) else 0)


def _code_of(exit_: SystemExit) -> object:
    """The exit code of a SystemExit from inside a command; some end the program here."""
    if exit_.code == TERMINATED:
        _fail(_last_words(TERMINATED), TERMINATED)
    # typer and rich exit like this when the reader of a pipe is gone.
    if isinstance(exit_.__context__, BrokenPipeError):
        sys.exit(0)
    if not _completing():
        # Our own commands raise typer.Exit. A 0 from foreign code would pass for a finished audit.
        _fail(
            "error: code of the model, the data set or a plugin called sys.exit before the "
            "command ended; let it return or raise",
            2,
        )
    return exit_.code


def _refuse_operation(error: OSError) -> NoReturn:
    """End the program after an error of the operating system."""
    from robaudit.cli.output_streams import discard_output

    if error.filename is not None and not os.environ.get("ROBAUDIT_TRACEBACK"):
        _fail(f"error: {error.filename}: {error.strerror}", 2)
    # Errors about files name them, so this one is about printed text.
    if error.errno in _DISK_ERRORS:
        # Python flushes standard output at exit, and would fail again.
        discard_output()
        _fail(f"error: standard output: {error.strerror}", 2)
    _internal(error)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of a library or a network on one line.

    Control characters are escaped: a model file may choose the words of a warning.
    """
    from robaudit.cli.output_streams import StandardError
    from robaudit.text import harmless

    StandardError().write(harmless(f"warning: {' '.join(str(message).split())}") + "\n")


def _refuse_empty() -> None:
    """Refuse an empty argument, as an unset variable of a shell leaves it.

    An empty path would be taken for the working folder. An empty title is no title.
    """
    for previous, value in itertools.pairwise(sys.argv):
        if value or previous == _TITLE:
            continue
        what = f"{previous}: the value" if previous.startswith("-") else "an argument"
        _fail(f"error: {what} is empty; is a shell variable unset?", 2)


def _refuse_deleted_folder() -> None:
    """Refuse to start in a folder that has been deleted, where no relative path has a meaning."""
    try:
        Path.cwd()
    except FileNotFoundError:
        _fail("error: the current folder has been deleted; change to one that exists", 2)


def _completing() -> bool:
    """Whether the shell asks for completions, which typer answers before it calls sys.exit."""
    return "_ROBAUDIT_COMPLETE" in os.environ or any(
        argument.endswith("-completion") for argument in sys.argv[1:]
    )


def _last_words(code: int) -> str:
    """The line for a program that a signal ended."""
    how = "terminated" if code == TERMINATED else "interrupted"
    return how + _resumable()


def _resumable() -> str:
    """How to go on after an interrupted command; empty where nothing can be resumed."""
    return _RESUMABLE if _command() in _RESUMABLE_COMMANDS else ""


def _usage(error: Any) -> str:
    """The parser's message in one line, with the help to consult."""
    context = getattr(error, "ctx", None)
    if context is not None:
        command = context.command_path
    else:
        # The parser failed before it knew the command.
        typed = _command()
        command = "robaudit" if typed.startswith("-") or not typed else f"robaudit {typed}"
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    # Values are checked by pydantic, whose phrases do not fit into a line of ours.
    message = message.replace("Value error, ", "").replace("Input should", "must")
    message = message.partition(", unable to parse string as")[0]
    return f"{message or 'no command given'}; see {command} --help"


def _internal(error: Exception) -> NoReturn:
    """End the program after a bug in robaudit, with exit code 3."""
    if os.environ.get("ROBAUDIT_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    _fail(
        f"internal error: {text}; this is a bug in robaudit (ROBAUDIT_TRACEBACK=1 shows where)", 3
    )


def _fail(line: str, code: int) -> NoReturn:
    """Print a line to standard error and exit."""
    from robaudit.cli.output_streams import StandardError
    from robaudit.text import harmless

    stream = StandardError()
    stream.write(harmless(line) + "\n")
    stream.flush()
    sys.exit(code)
