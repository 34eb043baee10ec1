"""Are durations read as people write them, and is nonsense refused?"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.errors import RobauditError
from robaudit.planning.durations import seconds, text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2m30s", 150),
        ("1h0m5s", 3605),
        (" 5M ", 300),
        ("3min", 180),
    ],
)
def test_examples(written: str, meant: float) -> None:
    assert seconds(written) == meant


@given(st.integers(1, 10**8))
def test_what_is_written_is_read_again(total: int) -> None:
    assert seconds(text(total)) == total


@pytest.mark.parametrize(("total", "written"), [(0.1, "0.1s"), (0.25, "0.25s"), (0.001, "0.001s"), (0.999, "1s"), (1.6, "2s")])
def test_below_a_second_it_is_not_zero(total: float, written: str) -> None:
    assert text(total) == written


@given(st.integers(0, 999), st.integers(0, 999), st.integers(1, 999))
def test_parts_add_up(hours: int, minutes: int, rest: int) -> None:
    assert seconds(f"{hours}h{minutes}m{rest}s") == 3600 * hours + 60 * minutes + rest


@given(st.text(max_size=12))
def test_anything_else_is_refused_in_one_line(written: str) -> None:
    with contextlib.suppress(RobauditError):
        found = seconds(written)
        assert 0 < found <= 1e8
        assert written.strip()[-1].lower() in "hmsn"


@pytest.mark.parametrize("written", ["", "10", "m", "-5m", "0s", "1m1h", "5 m 3 s", "1e3s", "nan", "infs", "9999999h", "٣m", "10m10m"])
def test_nonsense(written: str) -> None:
    with pytest.raises(RobauditError, match="is no duration; give one such as 90s, 10m, 2h or 1h30m"):
        seconds(written)
