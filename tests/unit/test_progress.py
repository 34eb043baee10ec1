"""How far an audit is and how long the rest takes: right at a steady speed, soon right after a
change, and in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.progress import AuditProgress, duration_text, rate_text
from tests.clock import Clock

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


def seconds_left(progress: AuditProgress) -> float:
    """The time left as it is written."""
    number, unit = re.findall(r"([\d.]+) (s|min|h|days)", progress.left())[0]
    return float(number) * UNITS[unit]


def test_nothing_is_predicted_from_nothing() -> None:
    clock = Clock()
    progress = AuditProgress(100, 0, clock=clock)
    clock.now += 5
    progress.working(0.0)
    progress.working(float("nan"))
    assert progress.line() == "0 of 100 samples"


@given(total=st.floats(20, 1e6), steps=st.lists(st.floats(0.1, 1.0), min_size=2, max_size=10))
def test_a_steady_speed_is_right_whatever_the_steps(total: float, steps: list[float]) -> None:
    clock = Clock(0.0)
    progress = AuditProgress(1000, 0, clock=clock)
    done = 0.0
    for step in steps[:-1]:
        done += step / sum(steps)
        clock.now = min(done, 1.0) * min(total, 600.0)
        progress.working(done)
        left = (1.0 - done) * min(total, 600.0)
        if left > 1.0:
            # as it is rounded
            assert seconds_left(progress) == pytest.approx(left, rel=0.06, abs=1.5)


def test_a_speed_that_changes_is_soon_followed() -> None:
    """Half the speed from the middle of the work on, which is an hour away: ten minutes later the
    first half is forgotten."""
    clock = Clock(0.0)
    progress = AuditProgress(1000, 0, clock=clock)
    for second in range(1, 3601):
        clock.now = second
        progress.working(second / 7200)
    assert seconds_left(progress) == pytest.approx(3600, rel=0.05)
    for second in range(1, 701):
        clock.now = 3600 + second
        progress.working(0.5 + second / 14400)
    assert seconds_left(progress) == pytest.approx(7200 - 700, rel=0.05)


def test_a_line_says_what_is_known() -> None:
    clock = Clock()
    progress = AuditProgress(1000, 200, clock=clock)
    assert progress.line() == "200 of 1000 samples"
    clock.now += 10
    progress.working(0.1)
    assert progress.line() == "200 of 1000 samples, about 90 s left"
    clock.now += 10
    progress.working(0.2)
    progress.advance(150)
    assert progress.line() == "350 of 1000 samples, 8/s, 80 s left"
    clock.now += 80
    progress.working(1.0)
    progress.advance(650)
    assert progress.line() == "1000 of 1000 samples, 8/s"


def test_the_time_left_goes_by_the_work_and_the_count_by_the_disk() -> None:
    """Samples on disk that cost little do not make the rest look cheap."""
    clock = Clock()
    progress = AuditProgress(100, 0, clock=clock)
    clock.now += 10
    progress.working(0.02)
    progress.advance(50)
    assert progress.line() == "50 of 100 samples, 12/min, 8.2 min left"


@pytest.mark.parametrize("done", [0, 5])
def test_nothing_to_do(done: int) -> None:
    assert AuditProgress(done, done, clock=Clock()).line() == f"{done} of {done} samples"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1 s"),
        (71.2, "71 s"),
        (99.4, "99 s"),
        (99.6, "1.7 min"),
        (120, "2 min"),
        (126, "2.1 min"),
        (597, "10 min"),
        (725, "12 min"),
        (6000, "1.7 h"),
        (12000, "3.3 h"),
        (35900, "10 h"),
        (97200, "27 h"),
        (282_764, "3.3 days"),
        (520_000, "6 days"),
        (2_000_000, "23 days"),
        (1e300, "over 1000 days"),
        (float("inf"), "over 1000 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1234.4, "1,234/s"),
        (999.7, "1,000/s"),
        (999.2, "999/s"),
        (12.34, "12.3/s"),
        (1.0, "1/s"),
        (0.5, "30/min"),
        (0.07, "4.2/min"),
        (0.0005, "1.8/h"),
    ],
)
def test_rates(rate: float, text: str) -> None:
    assert rate_text(rate) == text
