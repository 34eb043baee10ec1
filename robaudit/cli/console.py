"""Where do tables, notes and progress go, with and without a terminal?"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import IO, Any, cast

from rich.console import Console
from rich.markup import escape

from robaudit.cli.bar import Bar
from robaudit.cli.standard_error import StandardError
from robaudit.remaining import Clock, Standing
from robaudit.text import printable

_PIPED_WIDTH = 120
_SECONDS_BETWEEN_LINES = 5.0


def output() -> Console:
    """Standard output: tables and data. As wide as the terminal; 120 columns where there is none (COLUMNS overrides)."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _PIPED_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False)


def messages() -> Console:
    """Standard error: notes, warnings and progress. Where nobody reads it any more, they are dropped."""
    return Console(file=cast("IO[str]", StandardError()), highlight=False, soft_wrap=True)


class Reporter:
    """Tells what an audit is doing: a progress bar on a terminal, else a plain line every few seconds.

    While an audit computes, the first Ctrl-C asks it to stop after the part at hand, and the second interrupts at once.

    Args:
        quiet: say warnings only.
        patient: let the first Ctrl-C wait for the part at hand; else every one interrupts at once.
        clock: seconds.
    """

    def __init__(self, *, quiet: bool = False, patient: bool = True, clock: Clock = time.monotonic) -> None:
        self._console, self._quiet, self._patient, self._clock = messages(), quiet, patient, clock
        self._standing = Standing(0, 0, clock)
        self._bar: Bar | None = None
        self._last = clock()
        self._stop = False
        self._before_us: Any = None

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self._quiet:
            self._console.print(f"[dim]note:[/dim] {escape(printable(text))}")

    def warn(self, text: str) -> None:
        """Print a warning, always."""
        self._console.print(f"[yellow]warning:[/yellow] {escape(printable(text))}")

    def begin(self, total: int, done: int) -> None:
        """Start the progress display."""
        self._standing, self._last = Standing(total, done, self._clock), self._clock()
        self._listen()
        if done and done < total:
            self.note(f"resuming: {done} of {total} samples are on disk already")
        if not self._quiet and done < total and self._terminal():
            self._bar = Bar(self._console, self._standing)

    def working(self, share: float) -> None:
        """So much of the work is done."""
        self._standing.working(share)
        self._line()

    def advance(self, samples: int) -> None:
        """So many more samples are done."""
        self._standing.advance(samples)
        self._line()

    def end(self) -> None:
        """Take the progress display down."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()
        if self._before_us is not None:
            signal.signal(signal.SIGINT, self._before_us)
            self._before_us = None

    def stop_asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._stop

    def _terminal(self) -> bool:
        """Whether there is a terminal that a bar can be drawn on; one that is only said to be there (FORCE_COLOR) is none."""
        return self._console.is_interactive and self._console.file.isatty()

    def _line(self) -> None:
        if self._bar is None and not self._quiet and not self._terminal() and self._clock() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = self._clock()
            self._console.print(f"auditing: {self._standing.line()}")

    def _listen(self) -> None:
        if self._patient and threading.current_thread() is threading.main_thread() and self._before_us is None:
            self._before_us = signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, *_: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        self._console.print("finishing this part; Ctrl-C again stops at once")
