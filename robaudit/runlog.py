"""What did the sessions of a run say, and when? A log file in the run folder, beside what the user is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from robaudit.progress import Listener
from robaudit.text import printable

NAME = "log.txt"


class Logged:
    """A listener that passes everything on and keeps it in the run's log, a line each with the time (UTC).

    The log is appended to, session after session; it is no result, and a disk that refuses it costs nothing but the log.

    Args:
        listener: who else hears it.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._path: Path | None = None
        self._waiting: list[str] = []
        self._total = self._done = 0

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
        """Keep in the log that Ctrl-C ended what is within."""
        try:
            yield
        except KeyboardInterrupt:
            self.write("interrupted")
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
        self._total, self._done = total, done
        self.write(f"auditing {total} samples, {done} on disk already")
        self._listener.begin(total, done)

    def advance(self, samples: int) -> None:
        """So many more samples are on disk."""
        self._done += samples
        self.write(f"{self._done} of {self._total} samples")
        self._listener.advance(samples)

    def end(self) -> None:
        """The audit is over."""
        self._listener.end()

    def stop_asked(self) -> bool:
        """Whether to stop after this part."""
        return self._listener.stop_asked()

    def _append(self, lines: list[str]) -> None:
        if self._path is None or not lines:
            return
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(lines)
        except OSError:
            self._path = None
            self._waiting = []
