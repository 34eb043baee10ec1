"""What did the sessions of a run say, and when? A log file in the run folder, beside what the user is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from robaudit.progress import Listener
from robaudit.remaining import Clock, Standing
from robaudit.text import printable

NAME = "log.txt"
_SECONDS_BETWEEN_LINES = 60.0  # about a part that is still being computed


class Logged:
    """A listener that passes everything on and keeps it in the run's log, a line each with the time (UTC).

    The log is appended to, session after session; it is no result, and a disk that refuses it costs nothing but the log.

    Args:
        listener: who else hears it.
        clock: seconds.
    """

    def __init__(self, listener: Listener, clock: Clock = time.monotonic) -> None:
        self._listener, self._clock = listener, clock
        self._path: Path | None = None
        self._waiting: list[str] = []
        self._standing = Standing(0, 0, clock)
        self._last = clock()

    def open(self, folder: Path) -> None:
        """Begin to write into a run folder, what was said before included."""
        self._path = folder / NAME
        waiting, self._waiting = self._waiting, []
        self._append(waiting)

    def write(self, text: str) -> None:
        """A line for the log alone."""
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {printable(text)}\n"
        if self._path is None:
            self._waiting.append(line)
        else:
            self._append([line])

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Keep in the log that Ctrl-C, or a request to end, ended what is within."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as error:
            self.write("interrupted" if isinstance(error, KeyboardInterrupt) else "terminated")
            raise

    def note(self, text: str) -> None:
        """Something worth knowing."""
        self.write(f"note: {text}")
        self._listener.note(text)

    def warn(self, text: str) -> None:
        """Something suspicious."""
        self.write(f"warning: {text}")
        self._listener.warn(text)

    def begin(self, total: int, done: int) -> None:
        """The audit starts."""
        self._standing, self._last = Standing(total, done, self._clock), self._clock()
        self.write(f"auditing {total} samples, {done} on disk already")
        self._listener.begin(total, done)

    def working(self, share: float) -> None:
        """So much of this session's work is done; a line a minute, while nothing gets to the disk."""
        self._standing.working(share)
        if self._clock() - self._last >= _SECONDS_BETWEEN_LINES:
            self._tell(self._standing.line())
        self._listener.working(share)

    def advance(self, samples: int) -> None:
        """So many more samples are on disk: a line, if it is any."""
        self._standing.advance(samples)
        if samples:
            self._tell(f"{self._standing.done} of {self._standing.total} samples")
        self._listener.advance(samples)

    def end(self) -> None:
        """The audit is over."""
        self._listener.end()

    def stop_asked(self) -> bool:
        """Whether to stop after this part."""
        return self._listener.stop_asked()

    def _tell(self, text: str) -> None:
        self._last = self._clock()
        self.write(text)

    def _append(self, lines: list[str]) -> None:
        if self._path is None or not lines:
            return
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(lines)
        except OSError:
            self._path = None
            self._waiting = []
