"""Where do tables, notes and progress go, with and without a terminal?"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from robaudit.text import printable

_PIPED_WIDTH = 120
_SECONDS_BETWEEN_LINES = 5.0


def output() -> Console:
    """Standard output: tables and data. As wide as the terminal; 120 columns where there is none (COLUMNS overrides)."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _PIPED_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False)


def messages() -> Console:
    """Standard error: notes, warnings and progress."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


class Reporter:
    """Tells what an audit is doing: a progress bar on a terminal, else a plain line every few seconds.

    While an audit computes, the first Ctrl-C asks it to stop after the part at hand, and the second interrupts at once.

    Args:
        quiet: say warnings only.
        patient: let the first Ctrl-C wait for the part at hand; else every one interrupts at once.
    """

    def __init__(self, *, quiet: bool = False, patient: bool = True) -> None:
        self._console, self._quiet, self._patient = messages(), quiet, patient
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._total = self._done = self._before = 0
        self._started = self._last = time.monotonic()
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
        self._total, self._done, self._before = total, done, done
        self._started = self._last = time.monotonic()
        self._listen()
        if done and done < total:
            self.note(f"resuming: {done} of {total} samples are on disk already")
        if self._quiet or done == total or not self._console.is_terminal:
            return
        self._progress = Progress(
            TextColumn("auditing"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("samples"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=total, completed=done, rate="")

    def advance(self, samples: int) -> None:
        """So many more samples are done."""
        self._done += samples
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done, rate=self._rate())
        elif not self._quiet and not self._console.is_terminal and time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._console.print(f"auditing: {self._done} of {self._total} samples, {self._rate()}, {self._left()} left")

    def end(self) -> None:
        """Take the progress display down."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if self._before_us is not None:
            signal.signal(signal.SIGINT, self._before_us)
            self._before_us = None

    def stop_asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._stop

    def _listen(self) -> None:
        if self._patient and threading.current_thread() is threading.main_thread() and self._before_us is None:
            self._before_us = signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, *_: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        self._console.print("finishing this part; Ctrl-C again stops at once")

    def _rate(self) -> str:
        rate = (self._done - self._before) / max(1e-9, time.monotonic() - self._started)
        return f"{rate:.3g}/s" if rate < 1000 else f"{rate:,.0f}/s"

    def _left(self) -> str:
        done = self._done - self._before
        seconds = (self._total - self._done) * (time.monotonic() - self._started) / max(1, done)
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
