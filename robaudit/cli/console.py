"""Consoles for tables, notes and progress, with and without a terminal."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import IO, Any, cast

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from robaudit.cli.streams import StandardError
from robaudit.progress import SPEED_WINDOW, AuditProgress, Clock
from robaudit.text import printable

_WIDTH_WITHOUT_TERMINAL = 120
_SECONDS_BETWEEN_LINES = 5.0
_NARROW = 50  # columns; a narrower terminal has no room for counts beside the bar


def output() -> Console:
    """Standard output, for tables: as wide as the terminal, or 120 columns without one (COLUMNS overrides)."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDTH_WITHOUT_TERMINAL
    return Console(width=width, highlight=False, soft_wrap=False)


def messages() -> Console:
    """Standard error, for notes, warnings and progress, which are dropped once nothing reads it."""
    return Console(file=cast("IO[str]", StandardError()), highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line to standard error, without markup."""
    messages().print(text, markup=False)


def plain_text(*renderables: RenderableType, soft_wrap: bool = False) -> str:
    """Tables as text for a file: 120 columns, without colours."""
    console = Console(file=io.StringIO(), width=_WIDTH_WITHOUT_TERMINAL, highlight=False, color_system=None)
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable, soft_wrap=soft_wrap)
    return captured.get()


class Reporter:
    """A listener that prints: notes, warnings and, on a terminal, a progress bar, otherwise a plain line every few seconds.

    While an audit computes, the first Ctrl-C asks it to stop after the current part, and the second interrupts at once.

    Args:
        quiet: print only warnings.
        patient: let the first Ctrl-C wait for the current part; otherwise any Ctrl-C interrupts at once.
        clock: seconds.
    """

    def __init__(self, *, quiet: bool = False, patient: bool = True, clock: Clock = time.monotonic) -> None:
        self._console, self._quiet, self._patient, self._clock = messages(), quiet, patient, clock
        self._progress = AuditProgress(0, 0, clock=clock)
        self._display: Progress | None = None
        self._last = clock()
        self._stop = False
        self._previous_handler: Any = None

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
        self._handle_interrupts()
        if done and done < total:
            self.note(f"resuming: {done} of {total} samples are already on disk")
        if not self._quiet and done < total and self._on_terminal():
            self._display = _bar(self._console, self._clock)
        self._progress, self._last = AuditProgress(total, done, self._display, self._clock), self._clock()
        if self._display is not None:
            self._display.start()

    def working(self, share: float) -> None:
        """Show that this share of the work is done."""
        self._progress.working(share)
        self._print_line()

    def advance(self, samples: int) -> None:
        """Show that this many more samples are on disk."""
        self._progress.advance(samples)
        self._print_line()

    def end(self) -> None:
        """Remove the progress display."""
        display, self._display = self._display, None
        if display is not None:
            display.stop()
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._previous_handler = None

    def stop_asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._stop

    def _on_terminal(self) -> bool:
        """Whether a bar can be drawn; FORCE_COLOR only pretends that there is a terminal."""
        return self._console.is_interactive and self._console.file.isatty()

    def _print_line(self) -> None:
        if self._quiet or self._display is not None or self._on_terminal() or self._clock() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = self._clock()
        self._console.print(f"auditing: {self._progress.line()}")

    def _handle_interrupts(self) -> None:
        if self._patient and threading.current_thread() is threading.main_thread() and self._previous_handler is None:
            self._previous_handler = signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, *_: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        self._console.print("finishing the current part; press Ctrl-C again to stop at once")


def _bar(console: Console, clock: Clock) -> Progress:
    """A progress bar, redrawn several times a second by a thread."""
    bar = BarColumn(bar_width=None, table_column=Column(min_width=4, max_width=40, ratio=1))
    rate = TextColumn("{task.fields[rate]}", table_column=Column(min_width=8, no_wrap=True))  # so that the bar keeps its width
    counts = (TextColumn("{task.fields[samples]}"), rate) if console.width >= _NARROW else ()
    return Progress(
        TextColumn("auditing"),
        bar,
        *counts,
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        refresh_per_second=5,
        speed_estimate_period=SPEED_WINDOW,
        get_time=clock,
        transient=True,
    )
