"""How far an audit is and how long the rest takes: exact at a steady speed, soon right after a change, and in words."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.durations import duration_text
from robaudit.remaining import Remaining, Standing, rate_text
from tests.clock import Clock

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


def test_nothing_is_foretold_from_nothing() -> None:
    clock = Clock()
    work = Remaining(clock)
    clock.now += 5
    work.reached(0.0)
    work.reached(float("nan"))
    assert work.seconds() is None


@given(total=st.floats(0.01, 1e7), steps=st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40))
def test_a_steady_speed_is_exact_whatever_the_steps(total: float, steps: list[float]) -> None:
    clock = Clock(0.0)
    work = Remaining(clock)
    for done in itertools.accumulate(steps):
        share = done / sum(steps)
        clock.now = share * total
        work.reached(share)
        assert work.seconds() == pytest.approx(total - clock.now, rel=1e-6, abs=1e-6 * total)


def test_a_speed_that_changes_is_soon_followed() -> None:
    """Half the speed from the middle of the work on: a plain mean would say 1.5 times too little at first, and 1.25 times later."""
    clock = Clock(0.0)
    work = Remaining(clock)
    for second in range(1, 51):
        clock.now = second
        work.reached(second / 100)
    for second in range(1, 51):
        clock.now = 50 + second
        work.reached(0.5 + second / 200)
    assert work.seconds() == pytest.approx(50 * 0.01 / 2 / 0.00625)  # the true 50 s; the speed .01 a quarter of the weight, .005 the rest
    assert work.seconds() == pytest.approx(50.0, rel=0.21)


def test_steps_of_unequal_speed_do_not_lead_astray() -> None:
    """Cheap and dear steps in turn, as the estimators of a chunk are."""
    clock = Clock(0.0)
    work = Remaining(clock)
    for step in range(200):
        clock.now += 1 if step % 2 else 9
        work.reached((step + 1) / 200)
        if step >= 20:
            assert work.seconds() == pytest.approx(1000 - clock.now, rel=0.1, abs=4.5)  # half of what two steps differ by


def test_the_time_runs_down_between_two_steps_to_no_less_than_half() -> None:
    clock = Clock(0.0)
    work = Remaining(clock)
    clock.now = 10
    work.reached(0.5)
    for now, left in ((10, 10), (12, 8), (15, 5), (16, 5), (1000, 5)):
        clock.now = now
        assert work.seconds() == pytest.approx(left)


def test_it_never_gets_less_and_never_more_than_all() -> None:
    clock = Clock(0.0)
    work = Remaining(clock)
    for now, share, held in ((1, 0.4, 0.4), (2, 0.3, 0.4), (3, 7.0, 1.0), (3, 0.1, 1.0)):
        clock.now = now
        work.reached(share)
        assert work.share == held
    assert work.seconds() == 0.0


def test_two_calls_in_one_tick_lose_nothing() -> None:
    clock = Clock(0.0)
    work = Remaining(clock)
    work.reached(0.1)
    clock.now = 10
    work.reached(0.25)
    work.reached(0.4)
    clock.now = 20
    work.reached(0.5)
    assert work.seconds() == pytest.approx(20.0)


def test_a_line_says_what_is_known() -> None:
    clock = Clock()
    standing = Standing(1000, 200, clock)
    assert (standing.line(), standing.filled) == ("200 of 1000 samples", 0.2)
    clock.now += 10
    standing.working(0.1)
    assert standing.line() == "200 of 1000 samples, about 90 s left"
    assert standing.filled == pytest.approx(0.28)
    clock.now += 10
    standing.working(0.2)
    standing.advance(150)
    assert standing.line() == "350 of 1000 samples, 8/s, 80 s left"
    standing.advance(650)
    clock.now += 80
    standing.working(1.0)
    assert standing.line() == "1000 of 1000 samples, 8/s"
    assert standing.filled == 1.0


def test_the_bar_goes_by_the_work_and_the_numbers_by_the_disk() -> None:
    """Samples on disk that cost little do not make the rest look cheap."""
    clock = Clock()
    standing = Standing(100, 0, clock)
    clock.now += 10
    standing.working(0.02)
    clock.now += 10
    standing.advance(50)
    assert standing.filled == pytest.approx(0.02)
    assert standing.left() == "8 min left"


def test_who_never_says_the_share_counts_samples() -> None:
    clock = Clock()
    standing = Standing(60, 20, clock)
    clock.now += 10
    standing.advance(10)
    assert standing.line() == "30 of 60 samples, 1/s, 30 s left"
    assert standing.filled == pytest.approx(0.5)


@pytest.mark.parametrize("done", [0, 5])
def test_nothing_to_do(done: int) -> None:
    standing = Standing(done, done, Clock())
    assert (standing.line(), standing.filled) == (f"{done} of {done} samples", 1.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1 s"),
        (71.2, "71 s"),
        (99.4, "99 s"),
        (99.6, "1 min 40 s"),
        (120, "2 min"),
        (126, "2 min 10 s"),
        (596, "10 min"),
        (725, "12 min"),
        (6000, "1 h 40 min"),
        (12000, "3 h 20 min"),
        (35800, "10 h"),
        (97200, "27 h"),
        (282_764, "3 days 6 h"),
        (520_000, "6 days"),
        (2_000_000, "23 days"),
        (1e300, "over 1000 days"),
        (float("inf"), "over 1000 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(1.0, 8.6e7))
def test_durations_are_right_to_six_percent(seconds: float) -> None:
    parts = re.findall(r"(\d+) (s|min|h|days)", duration_text(seconds))
    assert 1 <= len(parts) <= 2
    assert sum(int(number) * UNITS[unit] for number, unit in parts) == pytest.approx(seconds, rel=0.06, abs=0.5)


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
