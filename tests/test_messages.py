"""The files of tests/messages."""

from __future__ import annotations

import pytest

from tests import golden


@pytest.mark.parametrize("room", [path.stem for path in sorted(golden.MESSAGES.glob("*.txt"))])
def test_every_message_has_a_test(room: str) -> None:
    assert [test for test in golden.read(room) if not golden.exists(room, test)] == []


def test_dots_stand_for_anything() -> None:
    assert golden.fits("a: is damaged (no header); repair it", "a: is damaged ([...]); repair it")
    assert not golden.fits("a: is damaged (no header)", "a: is damaged ([...]); repair it")
    assert golden.fits("a*b [1]", "a*b [1]")
