"""Columns of numbers give back what went in, however many different ones there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.stats import summary as summary_module
from robaudit.stats.summary import Column

NUMBERS = st.sampled_from([0.0, 0.5, 1.0, math.nan]) | st.floats(-1e9, 1e9)


@given(st.lists(NUMBERS), st.integers(0, 6))
def test_what_went_in_comes_out(numbers: list[float], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary_module, "_MOST_CODES", most)
        column = Column()
        for number in numbers:
            column.append(math.nan if math.isnan(number) else number)
        assert len(column) == len(numbers)
        assert np.array_equal(column.numbers(), np.array(numbers, dtype=np.float64), equal_nan=True)


def test_alike() -> None:
    column = Column()
    assert column.alike
    for _ in range(3):
        column.append(math.nan)
        assert column.alike
    column.append(0.5)
    assert not column.alike
