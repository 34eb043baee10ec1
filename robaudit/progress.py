"""Whom does an audit tell what it is doing?"""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Hears notes, warnings and progress; the CLI prints them to stderr, the API ignores them unless given one."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def warn(self, text: str) -> None:
        """Something suspicious."""

    def begin(self, total: int, done: int) -> None:
        """The audit of ``total`` samples starts; ``done`` of them are on disk already."""

    def working(self, share: float) -> None:
        """So much of this session's work is done, in [0, 1], by what it was expected to cost; told often, also between writes."""

    def advance(self, samples: int) -> None:
        """So many more samples are on disk."""

    def end(self) -> None:
        """The audit is over, one way or the other."""

    def stop_asked(self) -> bool:
        """Whether to stop after the part that is being computed, with a KeyboardInterrupt."""
        ...


class Silent:
    """A listener that says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""

    def begin(self, total: int, done: int) -> None:
        """Nothing."""

    def working(self, share: float) -> None:
        """Nothing."""

    def advance(self, samples: int) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def stop_asked(self) -> bool:
        """Never."""
        return False
