"""Consoles for tables, notes and progress, with and without a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from robaudit.cli.streams import StandardError
from robaudit.progress import AUDITING, SECONDS_BETWEEN_LINES, AuditProgress, Clock, progress_bar
from robaudit.text import harmless, printable

if TYPE_CHECKING:
    from robaudit.store.run import Run

_WIDTH_WITHOUT_TERMINAL = 120
_NARROW = 50  # columns; a narrower terminal has no room for counts beside the bar
_NARROWEST_NAME, _WIDEST_NAME, _BESIDE_NAME = 12, 40, 48  # columns of what is computed, and of all that is beside it


class _Harmless(RenderHook):
    """Lets a console print harmless text only, whatever is given to it."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap what is about to be printed."""
        return [_Shown(one) for one in renderables]


class _Shown:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in console.render(self._inner, options):
            yield part if part.control else Segment(harmless(part.text), part.style)


def _console(**settings: Any) -> Console:
    console = Console(highlight=False, **settings)
    console.push_render_hook(_Harmless())
    return console


def output() -> Console:
    """Standard output, for tables: as wide as the terminal, or 120 columns without one (COLUMNS overrides)."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDTH_WITHOUT_TERMINAL
    return _console(width=width, soft_wrap=False)


def messages() -> Console:
    """Standard error, for notes, warnings and progress, which are dropped once nothing reads it."""
    return _console(file=cast("IO[str]", StandardError()), soft_wrap=True)


def say(text: str) -> None:
    """Print a line to standard error, without markup."""
    messages().print(text, markup=False)


def show(*renderables: RenderableType, to: Path | None = None) -> None:
    """Print tables and lines, or write them to a file as plain text; lines (``Text``) are never broken.

    Args:
        renderables: in order.
        to: the file; None: standard output.
    """
    from robaudit.cli.streams import emit, reader_may_leave

    console = output() if to is None else Console(file=io.StringIO(), width=_WIDTH_WITHOUT_TERMINAL, highlight=False, color_system=None)
    with reader_may_leave(), contextlib.nullcontext() if to is None else console.capture() as captured:
        for one in renderables:
            console.print(one, soft_wrap=isinstance(one, Text))
    if captured is not None:
        emit(captured.get(), to)


def leading_warnings(runs: Sequence[Run], *, in_table: bool) -> list[Text]:
    """The warnings of runs, which come before anything that is printed about them: lines for above a table, or on standard error.

    Args:
        runs: where there are several, each line names its run.
        in_table: whether a table follows; other formats have standard output to themselves.
    """
    told = [(run.info["name"], text) for run in runs for text in run.info["warnings"]]
    lines = [printable(f"warning: {f'{name}: ' if len(runs) > 1 else ''}{text}") for name, text in told]
    if in_table:
        return [Text(line, "yellow") for line in lines]
    for line in lines:
        say(line)
    return []


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
        self._stage: Progress | None = None
        self._name = Column(max_width=max(_NARROWEST_NAME, min(_WIDEST_NAME, self._console.width - _BESIDE_NAME)), no_wrap=True)
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

    def doing(self, what: str) -> None:
        """Show what is done: beside the bar, or before there is one by itself."""
        if self._display is not None:
            self._name.min_width = min(max(self._name.min_width or 0, len(what)), self._name.max_width or 0)  # the bar does not jump
            self._progress.doing(what)
        elif not self._on_terminal():
            self._progress.doing(what)
            self._print_stage(what)
        elif not self._quiet:
            self._show_stage(what)

    def begin(self, total: int, done: int) -> None:
        """Start the progress display."""
        self._end_stage()
        self._handle_interrupts()
        if done and done < total:
            self.note(f"resuming: {done} of {total} samples are already on disk")
        if not self._quiet and done < total and self._on_terminal():
            self._display = _bar(self._console, self._name, self._clock)
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
        self._end_stage()
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
        if self._quiet or self._display is not None or self._on_terminal() or self._clock() - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = self._clock()
        self._console.print(f"auditing: {self._progress.line()}")

    def _show_stage(self, what: str) -> None:
        """Show a stage that has no bar, with a sign of life and the seconds that it has taken."""
        self._end_stage()
        self._stage = _spinner(self._console, self._clock)
        self._stage.add_task(printable(what), total=None)
        self._stage.start()

    def _end_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.stop()

    def _print_stage(self, what: str) -> None:
        """Say what is done where nothing was printed for a while and no audit runs, which has lines of its own."""
        if self._quiet or self._progress.total or self._clock() - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = self._clock()
        self._console.print(escape(printable(what)))

    def _handle_interrupts(self) -> None:
        if self._patient and threading.current_thread() is threading.main_thread() and self._previous_handler is None:
            self._previous_handler = signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, *_: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        self._console.print("finishing the current part; press Ctrl-C again to stop at once")


def _spinner(console: Console, clock: Clock) -> Progress:
    """A line for a stage whose length nobody knows, redrawn several times a second by a thread."""
    elapsed = TimeElapsedColumn()
    text = TextColumn("{task.description}", markup=False)
    return Progress(SpinnerColumn("line"), text, elapsed, console=console, refresh_per_second=5, get_time=clock, transient=True)


def _bar(console: Console, name: Column, clock: Clock) -> Progress:
    """A progress bar that fits the terminal."""
    bar = BarColumn(bar_width=None, table_column=Column(min_width=4, max_width=40, ratio=1))
    rate = TextColumn("{task.fields[rate]}", table_column=Column(min_width=8, no_wrap=True))  # so that the bar keeps its width
    counts = (TextColumn("{task.fields[samples]}"), rate) if console.width >= _NARROW else ()
    what = TextColumn("{task.description}", markup=False, table_column=name)
    head = (SpinnerColumn("line"), what) if console.width >= _NARROW else (TextColumn(AUDITING),)
    return progress_bar(console, clock, *head, bar, *counts)


@contextlib.contextmanager
def starting(what: str = "starting", *, quiet: bool = False) -> Iterator[None]:
    """Show what is done while the block takes seconds, such as importing torch and all that is made of it; it prints nothing itself."""
    with Reporter(quiet=quiet) as reporter:
        reporter.doing(what)
        yield
