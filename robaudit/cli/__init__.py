"""The command line: one file for each command or family of commands."""

from robaudit.cli.main import main

__all__ = ["main"]
