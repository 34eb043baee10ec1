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

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from robaudit.cli.output_streams import StandardError
from robaudit.progress import (
    AUDITING,
    SECONDS_BETWEEN_LINES,
    AuditProgress,
    Clock,
    Listener,
    audit_bar,
)
from robaudit.text import harmless, printable

if TYPE_CHECKING:
    from robaudit.runs.run import Run

_WIDTH_WITHOUT_TERMINAL = 120


class _Harmless(RenderHook):
    """Let a console print harmless text only."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap what is about to be printed."""
        return [_HarmlessText(renderable) for renderable in renderables]


class _HarmlessText:
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
    """Standard output, for tables: as wide as the terminal, or 120 columns without one (COLUMNS
    overrides)."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDTH_WITHOUT_TERMINAL
    return _console(width=width, soft_wrap=False)


def messages() -> Console:
    """Standard error, for notes, warnings and progress, which are dropped once nothing reads it."""
    return _console(file=cast("IO[str]", StandardError()), soft_wrap=True)


def say(text: str) -> None:
    """Print a line to standard error, without markup."""
    messages().print(text, markup=False)


def plain_text(*renderables: RenderableType) -> str:
    """Tables and lines as text for a file: 120 columns, without colours; lines (``Text``) are never
    broken."""
    console = Console(
        file=io.StringIO(), width=_WIDTH_WITHOUT_TERMINAL, highlight=False, color_system=None
    )
    with console.capture() as captured:
        _print(console, renderables)
    return captured.get()


def show(*renderables: RenderableType, to: Path | None = None) -> None:
    """Print tables and lines, or write them to a file as text.

    Args:
        renderables: in order.
        to: the file; None: standard output.
    """
    from robaudit.cli.output_streams import emit, reader_may_leave

    if to is not None:
        emit(plain_text(*renderables), to)
        return
    with reader_may_leave():
        _print(output(), renderables)


def _print(console: Console, renderables: Sequence[RenderableType]) -> None:
    for renderable in renderables:
        console.print(renderable, soft_wrap=isinstance(renderable, Text))


def leading_warnings(runs: Sequence[Run], *, in_table: bool) -> list[Text]:
    """The warnings of runs, which precede everything else: as lines above a table, otherwise
    printed to standard error.

    Args:
        runs: where there are several, each line names its run.
        in_table: whether a table follows; other formats have standard output to themselves.
    """
    warnings = [(run.info.name, text) for run in runs for text in run.info.warnings]
    lines = [
        printable(f"warning: {f'{name}: ' if len(runs) > 1 else ''}{text}")
        for name, text in warnings
    ]
    if in_table:
        return [Text(line, "yellow") for line in lines]
    for line in lines:
        say(line)
    return []


class Reporter(Listener):
    """A listener that prints: notes, warnings, and progress as a bar on a terminal, otherwise as a
    line every 30 seconds.

    While an audit computes, the first Ctrl-C asks it to stop after the current part, and the second
    interrupts at once.

    Args:
        quiet: print only warnings.
        patient: let the first Ctrl-C wait for the current part; otherwise any Ctrl-C interrupts at
            once.
        clock: seconds.
        action: what the display calls the work.
        unit: what is counted.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        patient: bool = True,
        clock: Clock = time.monotonic,
        action: str = AUDITING,
        unit: str = "samples",
    ) -> None:
        self._action = action
        self._unit = unit
        self._console = messages()
        self._quiet = quiet
        self._patient = patient
        self._clock = clock
        self._progress = AuditProgress(0, 0, clock=clock)
        self._bar: Progress | None = None
        self._stage: Status | None = None
        self._last = clock()
        self._stop = False
        self._previous_handler: Any = None

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self._quiet:
            self._console.print(f"[dim]note:[/dim] {escape(printable(text))}")

    def warn(self, text: str) -> None:
        """Print a warning, always."""
        self._console.print(f"[yellow]warning:[/yellow] {escape(printable(text))}")

    def doing(self, what: str) -> None:
        """Show the current stage: beside the bar, or with a spinner before there is a bar."""
        self._progress.doing(what)
        if self._bar is None and self._draws():
            self._end_stage()
            self._stage = self._console.status(Text(printable(what)), spinner="line")
            self._stage.start()
        elif not self._progress.total and self._due():
            self._console.print(printable(what), markup=False)

    def begin(self, total: int, done: int) -> None:
        """Start the progress display."""
        self._end_stage()
        on_main_thread = threading.current_thread() is threading.main_thread()
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as of a background job
        if self._patient and on_main_thread and not ignored and self._previous_handler is None:
            self._previous_handler = signal.signal(signal.SIGINT, self._interrupted)
        if 0 < done < total:
            self.note(f"resuming: {done} of {total} {self._unit} are already on disk")
        self._bar = (
            audit_bar(self._console, self._clock, self._action)
            if done < total and self._draws()
            else None
        )
        self._progress = AuditProgress(
            total, done, self._bar, self._clock, action=self._action, unit=self._unit
        )
        self._last = self._clock()
        if self._bar is not None:
            self._bar.start()

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
        bar = self._bar
        self._bar = None
        if bar is not None:
            bar.stop()
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._previous_handler = None

    def stop_asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._stop

    def _draws(self) -> bool:
        """Whether a bar or a spinner can be drawn; FORCE_COLOR only pretends that there is a
        terminal."""
        return not self._quiet and self._console.is_interactive and self._console.file.isatty()

    def _due(self) -> bool:
        """Whether it is time for a line, where nothing can be drawn."""
        if (
            self._quiet
            or self._bar is not None
            or self._draws()
            or self._clock() - self._last < SECONDS_BETWEEN_LINES
        ):
            return False
        self._last = self._clock()
        return True

    def _print_line(self) -> None:
        if self._due():
            self._console.print(f"{self._action}: {self._progress.line()}", markup=False)

    def _end_stage(self) -> None:
        stage = self._stage
        self._stage = None
        if stage is not None:
            stage.stop()

    def _interrupted(self, *_: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        self._console.print("finishing the current part; press Ctrl-C again to stop at once")


@contextlib.contextmanager
def starting(what: str = "starting", *, quiet: bool = False) -> Iterator[None]:
    """Show the stage of a block that takes seconds, such as importing torch."""
    with Reporter(quiet=quiet) as reporter:
        reporter.doing(what)
        yield
