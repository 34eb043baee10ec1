"""The columns of a run give back its rows, in whatever order they come and however few bytes they
take."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robaudit.quantities import Interval
from robaudit.results import Certificate
from robaudit.runs.rows import Row
from robaudit.runs.table import Columns, ResultTable
from tests.levels import sigma
from tests.unit.gates.tools import row, votes

NUMBERS = st.sampled_from([0.0, -0.0, 0.5, 1.0, 300.0, math.nan, math.inf]) | st.floats(-1e9, 1e9)


@given(st.lists(NUMBERS, min_size=1))
@example([0.0, -0.0] * 1000)
def test_numbers_come_back(numbers: list[float]) -> None:
    """Also of more rows than are converted at a time."""
    columns = Columns.from_rows(
        row(i, number, certificate=Certificate(alpha=number)) for i, number in enumerate(numbers)
    )
    finite = np.where(np.isinf(numbers), np.nan, numbers)  # a certificate has no infinite number
    for found, expected in ((columns.values, numbers), (columns.alpha, finite)):
        assert np.array_equal(found, np.array(expected), equal_nan=True)
        assert np.array_equal(
            np.signbit(found[found == 0]), np.signbit([one for one in numbers if one == 0])
        )
    assert columns.names == [str(i) for i in range(len(numbers))]
    assert (
        len(columns.finite) == len(numbers) - columns.not_finite == sum(map(math.isfinite, numbers))
    )
    assert columns.finite.not_finite == columns.not_finite


def test_rows_of_an_image_need_not_come_together() -> None:
    rows = [row(i, i / 10, **at.document()) for at in (sigma(0.2), sigma(0.1)) for i in (2, 0, 1)]
    frame = ResultTable.from_rows(rows)
    assert [key.at for key in frame] == [sigma(0.2), sigma(0.1)]
    assert list(frame.ids) == ["2", "0", "1"]
    for columns in frame.values():
        assert (columns.names, columns.values.tolist()) == (["2", "0", "1"], [0.2, 0.0, 0.1])


def _ends(one: Row) -> tuple[float, float]:
    (lower,), (upper,) = Columns.from_rows([one]).ends
    return float(lower), float(upper)


@pytest.mark.parametrize(
    ("interval", "lower", "upper", "expected"),
    [
        ("by hand", 0.4, 0.6, (0.4, 0.6)),
        ("by hand", None, 0.6, (-math.inf, 0.6)),
        ("by hand", 0.4, None, (0.4, math.inf)),
        ("upper bound", 0.0, 0.5, (-math.inf, 0.5)),
        ("upper bound", None, None, (-math.inf, 0.5)),
        ("lower bound", None, None, (0.5, math.inf)),
        ("censored", None, None, (0.5, math.inf)),
        ("censored", 0.0, None, (-math.inf, math.inf)),
    ],
)
def test_ends(
    interval: str, lower: float | None, upper: float | None, expected: tuple[float, float]
) -> None:
    assert _ends(row(0, 0.5, lower, upper, interval=Interval.parse(interval))) == expected


def test_rows_without_an_interval_have_no_ends() -> None:
    assert all(map(math.isnan, _ends(row(0, 0.5))))


def test_votes_take_the_place_of_approximations() -> None:
    counted = votes([7, 10], 10)
    approximate = [
        replace(
            one, value=0.55, lower=0.5, upper=0.6, interval=Interval.parse("jackknife:approximate")
        )
        for one in counted
    ]
    by_votes = Columns.from_rows(approximate).by_votes()
    plain = Columns.from_rows(counted)
    for name in ("values", "lower", "upper", "share_draws", "hits"):
        assert getattr(by_votes, name).tolist() == getattr(plain, name).tolist()
    assert by_votes.approximate == 0
    assert Columns.from_rows(approximate).share_draws.tolist() == [0, 0]
    assert by_votes.share_draws.tolist() == plain.share_draws.tolist() == [10, 10]
