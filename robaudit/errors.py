"""Errors for the user: where the problem is, what is wrong, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from robaudit.text import clipped, printable

_MOST_CHOICES = 30_000  # searched for the nearest
_LONGEST = 500  # characters of each part; a path alone may have 4096


class RobauditError(Exception):
    """A problem that the user can fix; the command line prints it as one line and exits with 2.

    Args:
        where: the place, as the user knows it (``spec.yaml:12``, a path, an option).
        what: what is wrong there.
        remedy: how to fix it (may be empty).
    """

    exit_code = 2

    def __init__(self, where: str, what: str, remedy: str = "") -> None:
        self.where, self.what, self.remedy = (
            clipped(printable(text), _LONGEST) for text in (where, *map(_one_line, (what, remedy)))
        )
        super().__init__(f"{self.where}: {self.what}" + (f"; {self.remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[RobauditError], tuple[str, str, str]]:
        """For workers in other processes, which send their errors."""
        return type(self), (self.where, self.what, self.remedy)


def _one_line(text: str) -> str:
    return " ".join(text.split())


class RobauditWarning(UserWarning):
    """Something suspicious about an audit from Python: see :func:`robaudit.audit`."""


class SpecError(RobauditError):
    """The spec, an option or a setting is not valid."""


class ModelError(RobauditError):
    """The model cannot be loaded, or does not match the data."""


class DataError(RobauditError):
    """The data set cannot be read."""


class SampleError(DataError):
    """One sample cannot be used; ``--on-error skip`` lists it and continues."""

    def or_skip(self) -> SampleError:
        """The same error for a run that stops at it: the remedy says how to continue without the
        sample."""
        return SampleError(
            self.where,
            self.what,
            f"{self.remedy + '; or ' if self.remedy else ''}continue without it: robaudit "
            "estimate --on-error skip",
        )


class RunError(RobauditError):
    """The run folder is missing, damaged, or belongs to another audit."""


class PluginError(RobauditError):
    """A third-party plugin breaks its contract."""


class NothingLeftError(RobauditError):
    """The input is valid, but every sample was skipped or filtered out."""

    exit_code = 5


class AnotherRunError(RunError):
    """The folder holds a run with other weights, data or noise, which this run cannot continue."""


def needs_extra(where: str, library: str, extra: str) -> RobauditError:
    """The error for a library that only an extra of robaudit installs.

    Args:
        where: what needs it, as the user knows it.
        library: its name on the package index.
        extra: its name in pyproject.toml.
    """
    return RobauditError(
        where, f"needs {library}, which is not installed", f"pip install 'robaudit[{extra}]'"
    )


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``did you mean 'path'?`` for the choice nearest to the word; without one, the list of
    choices."""
    names = sorted(map(str, choices))[:_MOST_CHOICES]
    near = [
        name for name in names if name.casefold() == word.casefold()
    ] or difflib.get_close_matches(word, names, n=1, cutoff=0.55)
    if near:
        return f"did you mean {near[0]!r}?"
    return "known: " + ", ".join(names) if names else ""
