"""What did the sessions of a run say, and when? A log file in the run folder, beside what the user is told."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from robaudit.progress import Listener
from robaudit.remaining import Clock, Standing
from robaudit.text import printable

NAME = "log.txt"
_HOW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
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
        self._file: int | None = None  # a descriptor, kept: should the folder be replaced, the log of another is not written to
        self._opened = False
        self._waiting: list[str] = []
        self._standing = Standing(0, 0, clock)
        self._last = clock()

    def open(self, folder: Path) -> None:
        """Begin to write into a run folder, what was said before included."""
        self.close()
        self._opened = True
        with contextlib.suppress(OSError):
            self._file = os.open(folder / NAME, _HOW, 0o644)
        waiting, self._waiting = self._waiting, []
        self._append(waiting)

    def close(self) -> None:
        """Write into no run folder any more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def write(self, text: str) -> None:
        """A line for the log alone."""
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {printable(text)}\n"
        if not self._opened:
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
        if self._file is not None and lines:
            try:
                os.write(self._file, "".join(lines).encode("utf-8", "backslashreplace"))
            except OSError:
                self.close()
