"""How far is an audit, how long will the rest take, and how do people write that?"""

from __future__ import annotations

import time
from collections.abc import Callable

from robaudit.durations import duration_text

_MINUTE, _HOUR = 60.0, 3600.0

Clock = Callable[[], float]


class Remaining:
    """Foretells the end of some work from the shares of it that are done.

    Its speed is the mean over the time so far, in which a moment counts the more the later it was (weight t: the second half of the
    time has three quarters). So it follows a machine that gets busy, and steps of unequal speed do not lead it astray.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._start = self._last = clock()
        self.share = self.speed = 0.0  # done, in [0, 1]; shares a second

    def reached(self, share: float) -> None:
        """So much is done now; it never gets less."""
        now = self._clock()
        share = min(share, 1.0)
        if not share > self.share or now <= self._last:
            return
        before, after = self._last - self._start, now - self._start
        old = (before / after) ** 2  # of the weights, whose integral is t^2 / 2
        self.speed = old * self.speed + (1.0 - old) * (share - self.share) / (after - before)
        self.share, self._last = share, now

    def seconds(self) -> float | None:
        """Until the end; None as long as nothing is done.

        Between two steps the time runs down, but to no less than half: a step may take longer than those before it.
        """
        if not self.share:
            return None
        left = (1.0 - self.share) / self.speed
        return max(left / 2, left - (self._clock() - self._last))


class Standing:
    """Where an audit stands: what a bar, a line or a log says of it.

    Args:
        total: samples.
        done: of them, on disk when this session began.
        clock: seconds.
    """

    def __init__(self, total: int, done: int, clock: Clock = time.monotonic) -> None:
        self.total, self.done, self._before = total, done, done
        self._work = Remaining(clock)
        self._told = False

    def working(self, share: float) -> None:
        """So much of this session's work is done."""
        self._told = True
        self._work.reached(share)

    def advance(self, samples: int) -> None:
        """So many more samples are on disk. Who never says what share of the work that is, is taken to mean all alike."""
        self.done += samples
        if not self._told and self._before < self.total:
            self._work.reached((self.done - self._before) / (self.total - self._before))

    @property
    def filled(self) -> float:
        """How full a bar is, in [0, 1]: earlier sessions' samples, and this one's share of the rest."""
        if self.done >= self.total:
            return 1.0
        return (self._before + self._work.share * (self.total - self._before)) / self.total

    def rate(self) -> str:
        """Samples in a second of this session; empty before the first is on disk."""
        return rate_text(self._work.speed * (self.total - self._before)) if self.done > self._before and self._work.speed else ""

    def left(self) -> str:
        """The time left; empty when there is none, or nothing to foretell it from."""
        seconds = self._work.seconds()
        if seconds is None or self.done >= self.total:
            return ""
        about = "about " if self.done == self._before else ""
        return f"{about}{duration_text(seconds)} left"

    def line(self) -> str:
        """As in ``128 of 1000 samples, 12.3/s, 71 s left``."""
        return ", ".join(part for part in (f"{self.done} of {self.total} samples", self.rate(), self.left()) if part)


def rate_text(per_second: float) -> str:
    """A rate to three figures: ``1,234/s``, ``12.3/s``, ``4.2/min``, ``1.8/h``."""
    if per_second >= 999.5:
        return f"{per_second:,.0f}/s"
    for factor, unit in ((1.0, "s"), (_MINUTE, "min")):
        if per_second * factor >= 1.0:
            return f"{per_second * factor:.3g}/{unit}"
    return f"{per_second * _HOUR:.2g}/h"
