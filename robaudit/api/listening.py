"""Progress and warnings of an audit from Python: a bar in a notebook or on a terminal, and warnings as Python's own."""

from __future__ import annotations

import io
import sys
import time
import warnings
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from robaudit.errors import RobauditWarning
from robaudit.progress import SECONDS_BETWEEN_LINES, AuditProgress, Clock, Silent, progress_bar
from robaudit.text import printable

_SECONDS_BETWEEN = 0.5
_WIDTH = 90  # columns of a bar in a notebook
_PRE = '<pre style="line-height:normal;margin:0;white-space:pre;overflow-x:auto">{code}</pre>'


class PythonListener(Silent):
    """Shows progress where somebody can see it, and passes warnings on to Python's ``warnings``.

    Args:
        progress: show it, as a line every few seconds where there is neither a notebook nor a terminal; None: only in those.
        clock: seconds.
    """

    def __init__(self, progress: bool | None = None, clock: Clock = time.monotonic) -> None:
        self._wanted, self._clock = progress, clock
        self._progress = AuditProgress(0, 0, clock=clock)
        self._bar: Progress | None = None
        self._output: _NotebookOutput | None = None
        self._last = clock()

    def warn(self, text: str) -> None:
        """Warn the caller of robaudit."""
        warn_caller(text)

    def begin(self, total: int, done: int) -> None:
        """Start the bar."""
        if done < total and self._wanted is not False:
            if (shell := _notebook()) is not None:
                self._output = _NotebookOutput(shell, self._clock)
                self._bar = _bar(self._output.console, self._clock)
            elif sys.stderr.isatty():
                self._bar = _bar(Console(file=sys.stderr), self._clock)
                self._bar.start()
        self._progress, self._last = AuditProgress(total, done, self._bar, self._clock), self._clock()
        self._show(force=True)

    def doing(self, what: str) -> None:
        """Say what is computed."""
        self._progress.doing(what)
        self._show()

    def working(self, share: float) -> None:
        """Move the bar."""
        self._progress.working(share)
        self._show()

    def advance(self, samples: int) -> None:
        """Count samples."""
        self._progress.advance(samples)
        self._show()

    def end(self) -> None:
        """Remove the bar; a notebook keeps one line."""
        if self._output is not None and self._bar is not None:
            self._output.replace(self._progress.line())
        elif self._bar is not None:
            self._bar.stop()
        self._bar = self._output = None

    def _show(self, *, force: bool = False) -> None:
        if self._output is not None and self._bar is not None:
            self._output.show(self._bar, force=force)
        elif self._wanted and self._bar is None and self._clock() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = self._clock()
            sys.stderr.write(f"auditing: {self._progress.line()}\n")


class _NotebookOutput:
    """One output of a notebook's cell, which is updated in place; rich draws it, and no widgets are needed."""

    def __init__(self, display: Any, clock: Clock) -> None:
        self.console = Console(
            file=io.StringIO(), width=_WIDTH, force_terminal=True, force_jupyter=False, color_system="truecolor", record=True
        )
        self._clock, self._last = clock, float("-inf")
        self._handle: Any = None
        self._display = display

    def show(self, bar: Progress, *, force: bool) -> None:
        """Draw the bar, at most twice a second."""
        if not force and self._clock() - self._last < _SECONDS_BETWEEN:
            return
        self._last = self._clock()
        self.console.print(bar.get_renderable(), end="")
        self._put(self.console.export_html(inline_styles=True, code_format=_PRE))

    def replace(self, line: str) -> None:
        """Show a line instead."""
        self.console.print(line, highlight=False, markup=False, end="")
        self._put(self.console.export_html(inline_styles=True, code_format=_PRE))

    def _put(self, html: str) -> None:
        shown = {"text/html": html, "text/plain": ""}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _bar(console: Console, clock: Clock) -> Progress:
    """The bar of an audit: what is computed, how far it is, and the time left."""
    samples = TextColumn("{task.fields[samples]}  {task.fields[rate]}", markup=False)
    return progress_bar(console, clock, TextColumn("{task.description}", markup=False), BarColumn(bar_width=30), samples)


def warn_caller(text: str) -> None:
    """A RobauditWarning at the first line outside robaudit.

    It becomes an exception only for those who ask for that by its name (``-W error::robaudit.RobauditWarning``): an audit of hours does
    not end because all warnings count as errors; then the warning is written to standard error.
    """
    try:
        warnings.warn(printable(text), RobauditWarning, stacklevel=_depth())
    except RobauditWarning:
        if any(action == "error" and category is RobauditWarning for action, _, category, *_ in warnings.filters):
            raise
        sys.stderr.write(f"robaudit warning: {printable(text)}\n")


def _depth() -> int:
    """The stacklevel, for the function that calls this one, of the first frame outside robaudit."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("robaudit", "contextlib"):
        frame, level = frame.f_back, level + 1
    return level


def _notebook() -> Any:
    """IPython's ``display`` in a notebook; None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    return display if shell is not None and hasattr(shell, "kernel") else None
