"""The permutation null: exact against enumeration, calibrated, powerful, and with the intervals
that belong to its tests."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from robaudit.stats.class_differences import permutation_null


def test_p_values_are_those_of_all_permutations() -> None:
    values = np.array([0.0, 0.1, 0.2, 0.5, 0.7, 0.75, 0.9, 1.0])
    firsts = [list(first) for first in itertools.combinations(range(8), 3)]
    differences = np.array(
        [values[first].mean() - np.delete(values, first).mean() for first in firsts]
    )
    seen = values[:3].mean() - values[3:].mean()
    gap = np.mean(np.abs(differences) >= abs(seen) - 1e-12)
    n = 20_000
    null = permutation_null(values, np.array([3, 5]), n, seed=1)
    assert null.differences == pytest.approx([seen, -seen])
    # of two classes one difference is minus the other
    smallest = 2 * np.mean(np.minimum(differences, -differences) <= seen + 1e-12)
    assert abs(null.p_values[0] - smallest) <= 8 * math.sqrt(smallest / 2 / n) + 2 / n
    assert null.p_values[0] == pytest.approx(null.p_values[1])  # two classes: the same question
    assert abs(null.gap_p_value - gap) <= 4 * math.sqrt(gap * (1 - gap) / n) + 1 / n


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@given(
    st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), min_size=12, max_size=12),
    st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_an_interval_excludes_0_exactly_where_its_p_value_is_significant(
    alpha: float, drawn: list[float], seed: int
) -> None:
    values = np.sort(np.array(drawn)) if seed % 2 else np.array(drawn)
    null = permutation_null(values, np.array([2, 4, 6]), 199, seed, alpha)
    lower = null.differences - null.upper * null.scales
    upper = null.differences - null.lower * null.scales
    assert (((lower > 0) | (upper < 0)) == (null.p_values <= alpha)).all()
    gap = max(means := [values[:2].mean(), values[2:6].mean(), values[6:].mean()]) - min(means)
    assert (gap - null.critical > 0) == (null.gap_p_value <= alpha)


def test_calibrated_without_bias() -> None:
    """Values piled up at 1, small unequal classes: where Welch's t fails. p is uniform up to its
    grid and ties."""
    generator = np.random.default_rng(11)
    sizes = np.array([3, 5, 8, 20])
    tables = 400
    gap_p = []
    any_p = []
    for seed in range(tables):
        x = np.where(generator.random(36) < 0.5, 1.0, generator.beta(2, 1, 36))
        null = permutation_null(x, sizes, 199, seed)
        gap_p.append(null.gap_p_value)
        any_p.append(null.p_values.min())
    assert kstest(gap_p, "uniform").pvalue > 1e-4
    for p in (gap_p, any_p):
        assert (
            binomtest(int(np.sum(np.array(p) <= 0.05)), tables, 0.05, alternative="greater").pvalue
            > 1e-4
        )


def test_one_class_of_a_thousand_is_found() -> None:
    generator = np.random.default_rng(4)
    x = generator.beta(8, 1, 10_000)
    x[:10] = 0.0  # one class of ten that always fails
    null = permutation_null(x, np.full(1000, 10), 100, seed=0)
    assert null.p_values[0] == pytest.approx(2 / 101)
    assert np.sum(null.p_values <= 0.05) == 1


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_constant_values_are_no_evidence(value: float) -> None:
    null = permutation_null(np.full(12, value), np.array([4, 8]), 200, seed=0)
    assert null.p_values.tolist() == [1.0, 1.0]
    assert null.gap_p_value == 1.0
    assert null.critical == pytest.approx(0.0, abs=1e-9)
