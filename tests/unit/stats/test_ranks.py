"""Rank correlation is scipy's, with ties and values that are not finite."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from robaudit.stats.ranks import rank_correlation


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_scipys_with_ties(pairs: list[tuple[int, int]]) -> None:
    a, b = ([float(x) for x in side] for side in zip(*pairs, strict=True))
    found = rank_correlation(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found is None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


def test_rank_correlation_leaves_nan_out() -> None:
    assert rank_correlation([1, math.nan, 2, 3], [1, 5, 2, math.inf]) == 1
    assert rank_correlation([1, math.nan], [1, 2]) is None
