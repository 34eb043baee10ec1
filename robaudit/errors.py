"""Errors for the user: where the problem is, what is wrong, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from robaudit.settings import ESTIMATE, ON_ERROR, Setting, changed, in_python
from robaudit.text import clipped, printable

_MOST_CHOICES = 30_000
"""Names that are searched for the nearest, such as ids of samples: this takes 0.14 s."""
_LONGEST = 500
"""Characters of each part of a message; a path alone may have 4096."""
_NEAR = 0.55
"""The least similarity, of 0 to 1 as difflib measures it, of a name that was probably meant."""


class RobauditError(Exception):
    """A problem that the user can fix; the command line prints it as one line and exits with 2.

    The message names options of robaudit as :class:`robaudit.settings.Setting`, so that the command
    line and Python each say it in their own words.

    Args:
        where: the place, as the user knows it (``spec.yaml:12``, a path, an option).
        what: what is wrong there.
        remedy: how to fix it (may be empty).
    """

    exit_code = 2

    def __init__(self, where: str | Setting, what: str | Setting, remedy: str = "") -> None:
        # A place is the bare argument: "extend: ...", not "extend=True: ...".
        place = where.place_words if isinstance(where, Setting) else where
        self.where = _shortened(place)
        self.what = _shortened(_one_line(what))
        self.remedy = _shortened(_one_line(remedy))
        super().__init__(self._message())

    def _message(self) -> str:
        message = f"{self.where}: {self.what}"
        return f"{message}; {self.remedy}" if self.remedy else message

    def say_in_python(self) -> None:
        """Name the arguments of Python instead of the options of the command line."""
        self.where = in_python(self.where)
        self.what = in_python(self.what)
        self.remedy = in_python(self.remedy)
        self.args = (self._message(),)

    def __reduce__(self) -> tuple[type[RobauditError], tuple[str, str, str]]:
        """For workers in other processes, which send their errors."""
        return type(self), (self.where, self.what, self.remedy)


def _shortened(text: str | Setting) -> str:
    return changed(text, lambda part: clipped(printable(part), _LONGEST))


def _one_line(text: str | Setting) -> str:
    return changed(text, lambda part: " ".join(part.split()))


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
        """The same error for a run that stops at it, with how to continue without the sample."""
        skip = "continue without it: " + (ESTIMATE + ON_ERROR.set_to("skip"))
        remedy = self.remedy + "; or " + skip if self.remedy else skip
        return SampleError(self.where, self.what, remedy)


class ShapeError(SampleError):
    """One sample has another size than the others: to skip it would leave out most of a data set of
    photos, and a crop keeps them all."""

    def or_skip(self) -> SampleError:
        """The error itself."""
        return self


class RunError(RobauditError):
    """The run folder is missing, damaged, or belongs to another audit."""


class PluginError(RobauditError):
    """A third-party plugin breaks its contract."""


class NothingLeftError(RobauditError):
    """The input is valid, but every sample was skipped or filtered out."""

    exit_code = 5


class NoResultsYetError(RunError):
    """A run has begun, and nothing of it is on disk."""


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
    """``did you mean 'path'?`` for the choice nearest to the word.

    Without a near one, the list of choices; without choices, nothing.
    """
    names = sorted(map(str, choices))[:_MOST_CHOICES]
    # difflib counts a letter of another case as a wrong letter.
    near = [name for name in names if name.casefold() == word.casefold()]
    near = near or difflib.get_close_matches(word, names, n=1, cutoff=_NEAR)
    if near:
        return f"did you mean {near[0]!r}?"
    return "known: " + ", ".join(names) if names else ""
