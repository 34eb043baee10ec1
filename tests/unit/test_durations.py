"""Durations are read as people write them, and nonsense is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.errors import RobauditError
from robaudit.progress import parse_duration


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
    assert parse_duration(written) == meant


@given(st.text(max_size=12))
def test_anything_else_is_refused_in_one_line(written: str) -> None:
    with contextlib.suppress(RobauditError):
        found = parse_duration(written)
        assert 0 < found <= 1e8
        assert written.strip()[-1].lower() in "hmsn"
