"""Progress and warnings of an audit from Python: a bar in a notebook or on a terminal, and warnings
as Python's own."""

from __future__ import annotations

import sys
import time
import warnings
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import Progress

from robaudit.errors import RobauditWarning
from robaudit.progress import (
    AUDITING,
    SECONDS_BETWEEN_LINES,
    AuditProgress,
    Clock,
    Listener,
    audit_bar,
)
from robaudit.settings import in_python
from robaudit.text import printable

_SECONDS_BETWEEN = 0.5
"""Seconds between two drawings in a notebook."""


class PythonListener(Listener):
    """Shows progress where somebody can see it, and passes warnings on to Python's ``warnings``.

    Args:
        progress: show progress; outside notebooks and terminals it is a line every 30 seconds.
            None: only in notebooks and terminals.
        clock: seconds.
    """

    def __init__(self, progress: bool | None = None, clock: Clock = time.monotonic) -> None:
        self._wanted = progress
        self._clock = clock
        self._progress = AuditProgress(0, 0, clock=clock)
        self._bar: Progress | None = None
        # IPython's function, and the output that it made for this audit.
        self._display: Any = None
        self._handle: Any = None
        self._last = clock()

    def warn(self, text: str) -> None:
        """Warn the caller of robaudit."""
        warn_caller(in_python(text))

    def begin(self, total: int, done: int) -> None:
        """Start the bar."""
        # A finished run has nothing to show.
        if done < total and self._wanted is not False:
            self._display = _notebook()
            if self._display is None and sys.stderr.isatty():
                self._bar = audit_bar(Console(file=sys.stderr), self._clock)
                self._bar.start()
        self._progress = AuditProgress(total, done, self._bar, self._clock)
        self._last = self._clock()
        if self._display is not None:
            self._draw()

    def doing(self, what: str) -> None:
        """Say what is computed."""
        self._progress.doing(what)
        self._show()

    def round(self, draws: int, most: int, done: int) -> None:
        """Start a round."""
        self._progress.round(draws, most, done)

    def found(self, estimate: str, gate: str) -> None:
        """Show the estimate after a round."""
        self._progress.found(estimate, gate)
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
        if self._display is not None:
            # The line stays in the notebook as the record of the audit.
            self._draw(bar=False)
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._display = None

    def _show(self) -> None:
        """Show progress, unless it was shown a moment ago."""
        waited = self._clock() - self._last
        if self._display is not None:
            if waited >= _SECONDS_BETWEEN:
                self._draw()
            return
        # A bar draws itself.
        prints_lines = self._wanted and self._bar is None
        if prints_lines and waited >= SECONDS_BETWEEN_LINES:
            self._last = self._clock()
            sys.stderr.write(f"{AUDITING}: {self._progress.line()}\n")

    def _draw(self, *, bar: bool = True) -> None:
        """Draw the browser's own progress bar and a line in the cell's output, in place."""
        self._last = self._clock()
        line = self._progress.line()
        drawn = f'<progress value="{self._progress.share:.4f}"></progress> ' if bar else ""
        contents = {"text/html": f"<pre>{drawn}{escape(line)}</pre>", "text/plain": line}
        if self._handle is None:
            self._handle = self._display(contents, raw=True, display_id=True)
        else:
            self._handle.update(contents, raw=True)


def warn_caller(text: str) -> None:
    """Issue a RobauditWarning at the first line outside robaudit.

    It becomes an exception only if a filter names it (``-W error::robaudit.RobauditWarning``). A
    filter that makes all warnings errors does not end an audit of hours: the warning is then
    written to standard error.
    """
    # stacklevel: the warning is about the caller's line, and filters go by its module.
    try:
        warnings.warn(printable(text), RobauditWarning, stacklevel=_depth())
    except RobauditWarning:
        for action, _, category, *_ in warnings.filters:
            if action == "error" and category is RobauditWarning:
                raise
        sys.stderr.write(f"robaudit warning: {printable(text)}\n")


def _depth() -> int:
    """The stacklevel, for the function that calls this one, of the first frame outside robaudit."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        # contextlib: the wrapper of naming_arguments.
        if package not in ("robaudit", "contextlib"):
            break
        frame = frame.f_back
        level += 1
    return level


def _notebook() -> Any:
    """IPython's ``display`` in a notebook; None elsewhere."""
    # Not imported by anybody, so this is no notebook.
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    # IPython in a terminal has no kernel, and can display text only.
    return display if shell is not None and hasattr(shell, "kernel") else None
