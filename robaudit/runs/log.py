"""The log of a run: the notes, warnings and progress of its sessions, with the time, in a file of
the run folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from robaudit.progress import AuditProgress, Clock, Listener
from robaudit.text import printable

NAME = "log.txt"
# A log.txt of a stranger must not lead elsewhere (a link) or block the audit (a pipe).
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_SECONDS_BETWEEN_LINES = 60.0  # of progress within a step


class Logged(Listener):
    """A listener that writes everything to the run's log and passes it on to another listener.

    Each message is a line that begins with the time (UTC). Every session appends to the log. If the
    disk refuses it, the audit goes on without it: the log is not a result.

    Args:
        listener: receives everything, too.
        clock: seconds.
    """

    def __init__(self, listener: Listener, clock: Clock = time.monotonic) -> None:
        self._listener = listener
        self._clock = clock
        # Stays open: if the folder is replaced, nothing goes to the log of another run.
        self._file: int | None = None
        # An audit checks model and data before it may write to the folder: until then its lines
        # wait in memory.
        self._opened = False
        self._waiting_lines: list[str] = []
        self._progress = AuditProgress(0, 0, clock=clock)
        self._last_progress_line = clock()

    def open(self, folder: Path) -> None:
        """Start writing to a run folder, beginning with the lines so far."""
        self.close()
        self._opened = True
        with contextlib.suppress(OSError):
            self._file = os.open(folder / NAME, _FLAGS, 0o644)
        waiting_lines = self._waiting_lines
        self._waiting_lines = []
        self._append(waiting_lines)

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def write(self, text: str) -> None:
        """Write a line to the log only."""
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {printable(text)}\n"
        if self._opened:
            self._append([line])
        else:
            self._waiting_lines.append(line)

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Record in the log that Ctrl-C or SIGTERM ended the block."""
        # Other ends are errors, which the command prints, or a kill, which leaves no line.
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as error:
            self.write("interrupted" if isinstance(error, KeyboardInterrupt) else "terminated")
            raise

    def note(self, text: str) -> None:
        """Pass on a note."""
        self.write(f"note: {text}")
        self._listener.note(text)

    def warn(self, text: str) -> None:
        """Pass on a warning."""
        self.write(f"warning: {text}")
        self._listener.warn(text)

    def doing(self, what: str) -> None:
        """Pass on the current activity; the log has it in the lines of progress."""
        self._progress.doing(what)
        self._listener.doing(what)

    def begin(self, total: int, done: int) -> None:
        """Pass on that the audit starts."""
        self._progress = AuditProgress(total, done, clock=self._clock)
        self._last_progress_line = self._clock()
        self.write(f"auditing {total} samples, {done} already on disk")
        self._listener.begin(total, done)

    def round(self, draws: int, most: int, done: int) -> None:
        """Pass on that a round starts."""
        self._progress.round(draws, most, done)
        self._listener.round(draws, most, done)

    def found(self, estimate: str, gate: str) -> None:
        """Pass on the estimate after a round; the log gets a line."""
        self.write(f"so far: {'; '.join(filter(None, [estimate, gate]))}")
        self._progress.found(estimate, gate)
        self._listener.found(estimate, gate)

    def working(self, share: float) -> None:
        """Pass on progress between writes; the log gets at most one line a minute."""
        self._progress.working(share)
        if self._clock() - self._last_progress_line >= _SECONDS_BETWEEN_LINES:
            self._write_progress(self._progress.line())
        self._listener.working(share)

    def advance(self, samples: int) -> None:
        """Pass on that more samples are on disk; the log gets a line if there are any."""
        self._progress.advance(samples)
        if samples:
            self._write_progress(self._progress.counted())
        self._listener.advance(samples)

    def end(self) -> None:
        """Pass on that the audit is over."""
        self._listener.end()

    def stop_asked(self) -> bool:
        """Whether the listener asks to stop after the current part."""
        return self._listener.stop_asked()

    def _write_progress(self, text: str) -> None:
        """Write a line of progress, from which the next minute counts."""
        self._last_progress_line = self._clock()
        self.write(text)

    def _append(self, lines: list[str]) -> None:
        """Append lines to the file, if it is open."""
        if self._file is None or not lines:
            return
        try:
            # One write with O_APPEND and no buffer: a kill loses no line that was written.
            os.write(self._file, "".join(lines).encode("utf-8", "backslashreplace"))
        except OSError:
            self.close()
