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
"""Columns of a table in a file or a pipe, where rich would take 80 and break most tables."""


class _Harmless(RenderHook):
    """Let a console print harmless text only."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap what is about to be printed."""
        return [_HarmlessText(renderable) for renderable in renderables]


class _HarmlessText:
    """A renderable whose text steers neither a terminal nor a CI system."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in console.render(self._inner, options):
            # Control segments are rich's own, such as moving the cursor of a progress bar.
            yield part if part.control else Segment(harmless(part.text), part.style)


def _console(**settings: Any) -> Console:
    """A console that prints harmless text, and colours only what robaudit colours."""
    console = Console(highlight=False, **settings)
    console.push_render_hook(_Harmless())
    return console


def output() -> Console:
    """Standard output, for tables: as wide as the terminal, or 120 columns without one.

    The variable ``COLUMNS`` overrides both.
    """
    # Without a width, rich asks the terminal, or reads COLUMNS.
    known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    width = None if known else _WIDTH_WITHOUT_TERMINAL
    return _console(width=width, soft_wrap=False)


def messages() -> Console:
    """Standard error, for notes, warnings and progress, which are dropped once nothing reads it."""
    # A long line is left to the terminal, so that paths can be copied whole.
    return _console(file=cast("IO[str]", StandardError()), soft_wrap=True)


def say(text: str) -> None:
    """Print a line to standard error, without markup."""
    messages().print(text, markup=False)


def plain_text(*renderables: RenderableType) -> str:
    """Tables and lines as text for a file: 120 columns, without colours.

    Lines (``Text``) are never broken.
    """
    # The stream is never read; it keeps rich from asking about the real terminal.
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
        # Tables are laid out for the width; lines are left to the terminal.
        console.print(renderable, soft_wrap=isinstance(renderable, Text))


def leading_warnings(runs: Sequence[Run], *, in_table: bool) -> list[Text]:
    """The warnings of runs, which precede everything else.

    Above a table they are returned as its first lines; otherwise they are printed to standard
    error.

    Args:
        runs: where there are several, each line names its run.
        in_table: whether a table follows; other formats have standard output to themselves.
    """
    lines = []
    for run in runs:
        name = f"{run.info.name}: " if len(runs) > 1 else ""
        lines += [printable(f"warning: {name}{text}") for text in run.info.notices]
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
        said: notes and warnings that were printed; they are not printed again.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        patient: bool = True,
        clock: Clock = time.monotonic,
        action: str = AUDITING,
        unit: str = "samples",
        said: set[str] | None = None,
    ) -> None:
        self._said = set[str]() if said is None else said
        self._action = action
        self._unit = unit
        self._console = messages()
        self._quiet = quiet
        self._patient = patient
        self._clock = clock
        self._progress = AuditProgress(0, 0, clock=clock)
        self._bar: Progress | None = None
        self._stage: Status | None = None
        # When the last line was printed, where nothing can be drawn.
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
        if not self._quiet and text not in self._said:
            self._said.add(text)
            self._console.print(f"[dim]note:[/dim] {escape(printable(text))}")

    def warn(self, text: str) -> None:
        """Print a warning, always."""
        if text in self._said:
            return
        self._said.add(text)
        self._console.print(f"[yellow]warning:[/yellow] {escape(printable(text))}")

    def doing(self, what: str) -> None:
        """Show the current stage: beside the bar, or with a spinner before there is a bar."""
        self._progress.doing(what)
        if self._bar is None and self._draws():
            # rich shows one live display at a time.
            self._end_stage()
            self._stage = self._console.status(Text(printable(what)), spinner="line")
            self._stage.start()
        # Once an audit has begun, its lines of progress name the stage.
        elif not self._progress.total and self._due():
            self._console.print(printable(what), markup=False)

    def begin(self, total: int, done: int) -> None:
        """Start the progress display."""
        self._end_stage()
        if self._may_handle_interrupts():
            self._previous_handler = signal.signal(signal.SIGINT, self._interrupted)
        self._bar = None
        if done < total and self._draws():
            self._bar = audit_bar(self._console, self._clock, self._action)
        self._progress = AuditProgress(
            total, done, self._bar, self._clock, action=self._action, unit=self._unit
        )
        self._last = self._clock()
        if self._bar is not None:
            self._bar.start()

    def _may_handle_interrupts(self) -> bool:
        """Whether Ctrl-C is to ask for the end of the current part, and does not do so yet."""
        if not self._patient or self._previous_handler is not None:
            return False
        # Python sets handlers on the main thread only.
        if threading.current_thread() is not threading.main_thread():
            return False
        # Ignored in a background job: it stays so.
        return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN

    def round(self, draws: int, most: int, done: int) -> None:
        """Show that a round starts."""
        self._progress.round(draws, most, done)

    def found(self, estimate: str, gate: str) -> None:
        """Show the estimate after a round."""
        self._progress.found(estimate, gate)
        self._print_line()

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
        """Whether a bar or a spinner can be drawn."""
        # FORCE_COLOR makes rich believe in a terminal, so the file is asked, too.
        on_terminal = self._console.is_interactive and self._console.file.isatty()
        return on_terminal and not self._quiet

    def _due(self) -> bool:
        """Whether it is time for a line, where nothing can be drawn."""
        drawn = self._bar is not None or self._draws()
        if self._quiet or drawn:
            return False
        if self._clock() - self._last < SECONDS_BETWEEN_LINES:
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
        """Handle Ctrl-C: the first asks to stop, the second interrupts."""
        if self._stop:
            raise KeyboardInterrupt
        # The audit asks stop_asked() between its parts.
        self._stop = True
        self._console.print("finishing the current part; press Ctrl-C again to stop at once")


@contextlib.contextmanager
def starting(what: str = "starting", *, quiet: bool = False) -> Iterator[None]:
    """Show the stage of a block that takes seconds, such as importing torch."""
    # A spinner appears only on a terminal; elsewhere seconds are not worth a line.
    with Reporter(quiet=quiet) as reporter:
        reporter.doing(what)
        yield
