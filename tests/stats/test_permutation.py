"""The permutation null: exact against enumeration, calibrated, powerful; Holm against its definition."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from robaudit.stats import classes as classes_module
from robaudit.stats.classes import BLOCK, holm, permutation_null


def brute_force_holm(p: list[float], alpha: float) -> list[bool]:
    """Holm's procedure as he states it: step down until the first that is kept."""
    rejected = [False] * len(p)
    for step, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[index] > alpha / (len(p) - step):
            break
        rejected[index] = True
    return rejected


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.5))
def test_holm_adjusts_as_the_procedure_rejects(p: list[float], alpha: float) -> None:
    adjusted = holm(np.array(p))
    steps = [alpha / k for k in range(1, len(p) + 1)]
    if not any(math.isclose(value, step, rel_tol=1e-9) for value in p for step in steps):
        assert (adjusted <= alpha).tolist() == brute_force_holm(p, alpha)
    assert np.all(adjusted >= np.array(p))
    assert np.all(adjusted <= 1.0)


def test_p_values_are_those_of_all_permutations() -> None:
    values = np.array([0.0, 0.1, 0.2, 0.5, 0.7, 0.75, 0.9, 1.0])
    means = np.array([values[list(first)].mean() for first in itertools.combinations(range(8), 3)])
    deviation = np.abs(means - values.mean())
    exact = np.mean(deviation >= abs(values[:3].mean() - values.mean()) - 1e-12)
    n = 20_000
    null = permutation_null(values, np.array([3, 5]), n, seed=1)
    assert abs(null.p_values[0] - exact) <= 4 * math.sqrt(exact * (1 - exact) / n) + 1 / n
    assert null.p_values[0] == pytest.approx(null.p_values[1])  # two classes: the same question
    assert null.gap_p_value == pytest.approx(null.p_values[0])


def test_the_result_is_a_function_of_the_seed_and_not_of_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    values, sizes = np.random.default_rng(0).random(40), np.array([10, 30])
    first, again = (permutation_null(values, sizes, 500, seed=5) for _ in range(2))
    assert first.gap_mean == again.gap_mean
    np.testing.assert_array_equal(first.p_values, again.p_values)
    monkeypatch.setattr(classes_module, "BLOCK", 400)
    blocked = permutation_null(values, sizes, 500, seed=5)
    p = first.gap_p_value
    assert abs(blocked.gap_p_value - p) <= 4 * math.sqrt(2 * p * (1 - p) / 500)


def test_calibrated_without_bias() -> None:
    """Values piled up at 1, small unequal classes: where Welch's t fails. p is uniform up to its grid and ties."""
    generator = np.random.default_rng(11)
    sizes = np.array([3, 5, 8, 20])
    tables = 400
    gap_p, class_p, holm_hits = [], [], 0
    for seed in range(tables):
        x = np.where(generator.random(36) < 0.5, 1.0, generator.beta(2, 1, 36))
        null = permutation_null(x, sizes, 199, seed)
        gap_p.append(null.gap_p_value)
        class_p.append(null.p_values[0])
        holm_hits += bool(np.any(holm(null.p_values) <= 0.05))
    for p in (gap_p, class_p):
        assert kstest(p, "uniform").pvalue > 1e-4
        assert binomtest(int(np.sum(np.array(p) <= 0.05)), tables, 0.05, alternative="greater").pvalue > 1e-4
    assert binomtest(holm_hits, tables, 0.05, alternative="greater").pvalue > 1e-4


@pytest.mark.parametrize("kind", ["beta", "ones", "binary"])
def test_the_moment_tail_does_not_claim_more_than_many_shuffles(kind: str) -> None:
    generator = np.random.default_rng(2)
    x = {
        "beta": generator.beta(4, 1, 300),
        "ones": np.where(generator.random(300) < 0.95, 1.0, generator.random(300)),
        "binary": (generator.random(300) < 0.97).astype(float),
    }[kind]
    order = np.argsort(x)
    values = np.concatenate((x[order[:2]], generator.permutation(x[order[2:]])))  # the two worst share the first class
    sizes = np.array([6, 94, 200])
    few, many = permutation_null(values, sizes, 200, seed=1), permutation_null(values, sizes, 100_000, seed=2)
    assert many.p_values[0] / 3 <= few.p_values[0] <= 0.06  # 200 shuffles see next to none; the tail errs by a factor of 3 at most


def test_the_tail_resolves_a_thousand_classes() -> None:
    generator = np.random.default_rng(4)
    x = generator.beta(8, 1, 10_000)
    x[:10] = 0.0  # one class of ten that always fails
    null = permutation_null(x, np.full(1000, 10), 100, seed=0)
    assert holm(null.p_values)[0] <= 0.01
    assert np.sum(holm(null.p_values) <= 0.05) == 1


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_constant_values_are_no_evidence(value: float) -> None:
    null = permutation_null(np.full(12, value), np.array([4, 8]), 200, seed=0)
    assert null.p_values.tolist() == [1.0, 1.0]
    assert null.gap_p_value == 1.0
    assert null.gap_q95 == pytest.approx(0.0, abs=1e-12)


def test_memory_is_bounded_whatever_the_number_of_images_and_shuffles() -> None:
    x = np.random.default_rng(0).beta(4, 1, 50_000)
    tracemalloc.start()
    permutation_null(x, np.full(100, 500), 100, seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 8 * BLOCK  # the shuffled block, and small change
