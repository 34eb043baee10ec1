"""The command line: one file for each command or family of commands, with arguments, printing and exit codes."""

from robaudit.cli.main import main

__all__ = ["main"]
