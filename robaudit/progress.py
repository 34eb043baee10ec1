"""The progress of an audit, and the text of durations and rates."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from robaudit.errors import RobauditError
from robaudit.settings import BUDGET

# Seconds.
_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0
_LONGEST_SHOWN = 1000 * _DAY  # beyond it a prediction is only "over 1000 days"
_LONGEST_BUDGET = 1e8  # about three years: more is a slip
_DURATION = re.compile(
    r"(?:(\d{1,9}(?:\.\d{1,9})?)h)?(?:(\d{1,9}(?:\.\d{1,9})?)m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?",
    re.ASCII,
)
_SECONDS_BETWEEN_UPDATES = 0.5
AUDITING = "auditing"
"""The activity that is shown until an estimator is named."""
SECONDS_BETWEEN_LINES = 30.0
"""Seconds between lines of progress without a terminal."""
_NARROW = 50  # columns; a narrower terminal has no room for counts beside the bar
# Columns of the activity's name, and of everything beside it.
_NARROWEST_NAME = 12
_WIDEST_NAME = 80
_BESIDE_NAME = 42
# Seconds over which the speed of an audit is averaged. Rich's default is 30 seconds, which a single
# chunk may take.
_SPEED_WINDOW = 600.0

Clock = Callable[[], float]


class Listener:
    """Callbacks for the notes, warnings and progress of an audit; the base class ignores them."""

    def note(self, text: str) -> None:
        """Receive information of interest."""

    def warn(self, text: str) -> None:
        """Receive a warning about something suspicious."""

    def doing(self, what: str) -> None:
        """Receive the current activity: a stage of the start, or an estimator at a noise level."""

    def begin(self, total: int, done: int) -> None:
        """The audit of ``total`` samples starts; ``done`` of them are already on disk."""

    def round(self, draws: int, most: int, done: int) -> None:
        """A round starts, after which all samples have ``draws`` of ``most`` copies (0: no
        estimator takes copies in rounds); ``done`` samples have them already."""

    def found(self, estimate: str, gate: str) -> None:
        """Receive the estimate after a round, and the state of the first gate, if there is one."""

    def working(self, share: float) -> None:
        """Receive the share of the session's work that is done, by expected cost; called often,
        also between writes."""

    def advance(self, samples: int) -> None:
        """Receive the number of further samples on disk in this round."""

    def end(self) -> None:
        """The audit is over, finished or not."""

    def stop_asked(self) -> bool:
        """Whether the audit should stop after the current part, with a KeyboardInterrupt."""
        return False


class AuditProgress:
    """The progress of an audit, for a bar, a line or a log; rich computes the speed and the time
    left.

    The bar follows the work, so that it also moves between writes; the numbers count the samples on
    disk.

    Args:
        total: samples.
        done: samples on disk when this session began.
        display: the rich progress bar, with the fields ``samples`` and ``rate``; hidden by default.
        clock: seconds.
        action: shown until :meth:`doing` names an activity.
        unit: what the numbers count.
    """

    def __init__(
        self,
        total: int,
        done: int,
        display: Progress | None = None,
        clock: Clock = time.monotonic,
        *,
        action: str = AUDITING,
        unit: str = "samples",
    ) -> None:
        self.total = total
        self.done = done
        self._at_start = done
        self._before = done
        self._what = ""
        self._copies = ""
        self._found = ""
        self._is_last_round = True
        self._unit = unit
        self._clock = clock
        self._last = float("-inf")
        self._display = display or Progress(
            disable=True, get_time=clock, speed_estimate_period=_SPEED_WINDOW
        )
        self._id = self._display.add_task(
            action, total=total, completed=done, samples=self._samples(), rate=""
        )
        # Rich measures the speed from the first advance on, so the start of the audit counts.
        self._display.advance(self._id, 0)
        self._task = next(task for task in self._display.tasks if task.id == self._id)

    def doing(self, what: str) -> None:
        """Set the current activity."""
        self._what = what
        self._display.update(self._id, description=self._found or what)

    def round(self, draws: int, most: int, done: int) -> None:
        """Start a round: the numbers count its samples."""
        self.done = done
        self._before = done
        self._is_last_round = draws == most
        self._copies = f"{draws:,} of {most:,} copies" if most > 1 else ""
        self._display.update(self._id, samples=self._samples(), rate="")

    def found(self, estimate: str, gate: str) -> None:
        """Set the estimate after a round, and the state of a gate; the bar shows them in place of
        the activity."""
        after = f"{estimate} after {self._copies}" if self._copies else estimate
        self._found = "; ".join(filter(None, [after, gate])) if estimate else ""
        self._display.update(self._id, description=self._found or self._what)

    def working(self, share: float) -> None:
        """Set the share of the session's work that is done; it never decreases."""
        completed = self._at_start + min(share, 1.0) * (self.total - self._at_start)
        now = self._clock()
        # Batches may take milliseconds: an update for each would slow the audit.
        is_due = completed >= self.total or now - self._last >= _SECONDS_BETWEEN_UPDATES
        if completed > self._task.completed and is_due:
            self._last = now
            self._display.update(self._id, completed=completed, rate=self.rate())

    def advance(self, samples: int) -> None:
        """Count further samples on disk."""
        self.done += samples
        if self.is_done:
            self._display.update(self._id, completed=self.total)
        self._display.update(self._id, samples=self._samples(), rate=self.rate())

    @property
    def is_done(self) -> bool:
        """Whether all samples are on disk, in the last round."""
        return self._is_last_round and self.done >= self.total

    @property
    def share(self) -> float:
        """The share of all work that is done, from 0 to 1."""
        return self._task.completed / self.total if self.total else 1.0

    def rate(self) -> str:
        """Samples per second of this session; empty before the first is on disk, and in rounds, in
        which a sample is a part of one."""
        speed = self._task.speed
        if self._copies:
            return ""
        return rate_text(speed) if self.done > self._before and speed else ""

    def left(self) -> str:
        """The time left; empty when the audit is done, or when its speed is unknown."""
        seconds = self._task.time_remaining
        if seconds is None or self.is_done:
            return ""
        # Before the first samples are on disk, it rests on the expected cost alone.
        about = "about " if self.done == self._before else ""
        return f"{about}{duration_text(seconds)} left"

    def line(self) -> str:
        """The progress on one line: ``128 of 1000 samples, 12.3/s, 71 s left (mc at sigma
        0.05)``."""
        activity = f" ({self._what})" if self._what and not self.is_done else ""
        parts = [self._found, self.counted(), self.rate(), self.left()]
        return ", ".join(filter(None, parts)) + activity

    def counted(self) -> str:
        """The number of samples on disk: ``8 of 1,000 copies: 128 of 500 samples``."""
        copies = f"{self._copies}: " if self._copies else ""
        return f"{copies}{self.done} of {self.total} {self._unit}"

    def _samples(self) -> str:
        """The number of samples on disk, in a fixed width; in rounds without a unit, for which a
        line has no room."""
        unit = "" if self._copies else f" {self._unit}"
        return f"{self.done:>{len(str(self.total))}}/{self.total}{unit}"


def audit_bar(console: Console, clock: Clock, action: str = AUDITING) -> Progress:
    """A bar that fits the terminal, redrawn several times a second.

    It shows the activity, the samples on disk, the speed and the time left; a narrow terminal has
    room for the audit's action and the time alone.
    """
    bar = BarColumn(bar_width=None, table_column=Column(min_width=4, max_width=40, ratio=1))
    columns: list[ProgressColumn] = [TextColumn(action), bar]
    if console.width >= _NARROW:
        width = max(_NARROWEST_NAME, min(_WIDEST_NAME, console.width - _BESIDE_NAME))
        name = Column(width=width, no_wrap=True)
        # A minimum, so that the bar keeps its width when the rate changes.
        rate = Column(min_width=8, no_wrap=True)
        columns = [
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False, table_column=name),
            bar,
            TextColumn("{task.fields[samples]}"),
            TextColumn("{task.fields[rate]}", table_column=rate),
        ]
    return Progress(
        *columns,
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        refresh_per_second=5,
        speed_estimate_period=_SPEED_WINDOW,
        get_time=clock,
        transient=True,
    )


def parse_duration(text: str, where: str = BUDGET.words) -> float:
    """The seconds of a duration such as 90s, 10m, 2h, 1h30m, 1.5h or 2m30s.

    Args:
        text: what the user wrote.
        where: the option, for the message.

    Raises:
        RobauditError: it is not a duration, is zero, or is longer than about three years.
    """
    match = _DURATION.fullmatch(text.strip().lower().replace("min", "m"))
    total = 0.0
    if match is not None:
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        total = hours * _HOUR + minutes * _MINUTE + seconds
    if not 0 < total <= _LONGEST_BUDGET:
        raise RobauditError(
            f"{where} {text}", "is not a duration", "give one such as 90s, 10m, 2h or 1h30m"
        )
    return total


def duration_text(seconds: float) -> str:
    """A duration to two figures: ``71 s``, ``4.2 min``, ``12 min``, ``3.3 h``, ``27 h``, ``3.3
    days``."""
    if not seconds < _LONGEST_SHOWN:  # also for NaN
        return f"over {_LONGEST_SHOWN / _DAY:.0f} days"
    if seconds < 99.5:  # rounded, it has two figures
        return f"{max(1.0, seconds):.0f} s"
    # Up to 72 of a unit: "65 min" says more than "1.1 h", and "50 h" more than "2.1 days".
    if seconds < 72 * _MINUTE:
        number = seconds / _MINUTE
        unit = "min"
    elif seconds < 72 * _HOUR:
        number = seconds / _HOUR
        unit = "h"
    else:
        number = seconds / _DAY
        unit = "days"
    return f"{number:.0f} {unit}" if number >= 9.95 else f"{number:.2g} {unit}"


def rate_text(per_second: float) -> str:
    """A rate to three figures: ``1,234/s``, ``12.3/s``, ``4.2/min``, ``1.8/h``."""
    if per_second >= 999.5:  # three figures would become 1e+03
        return f"{per_second:,.0f}/s"
    # The smallest unit of time in which the number is at least 1.
    if per_second >= 1.0:
        return f"{per_second:.3g}/s"
    if per_second * _MINUTE >= 1.0:
        return f"{per_second * _MINUTE:.3g}/min"
    return f"{per_second * _HOUR:.2g}/h"
