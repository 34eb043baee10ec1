"""Probabilities of normal vectors: each row alone, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robaudit.methods.average_case.mvn import mvn_cdf
from tests.unit.methods.average_case.test_mvn import gram, limits
from tests.unit.numerics.test_rowwise import assert_each_row_alone


def mixed(k: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Problems of all kinds: regular and singular, common and rare, with duplicates, infinite
    limits and NaN."""
    random = torch.Generator().manual_seed(seed)

    def pick(*choices: float) -> float:
        return choices[int(torch.randint(len(choices), (1,), generator=random))]

    upper = []
    correlation = []
    for row in range(rows):
        rank = int(pick(1, 2, max(1, k // 2), max(1, k - 1), k, k + 5, 3 * k + 20))
        z = limits(1, k, seed + row, mean=pick(-3, -1, 0, 1, 1.5, 2, 3, 4, 6, 9))
        r = gram(1, k, rank, seed + row, shift=pick(0.0, 0.3, 0.7, 2.0))
        if pick(0, 0, 0, 1) and k > 2:
            r[0, 0] = r[0, 1].clone()
            r[0, :, 0] = r[0, :, 1].clone()
            r[0, 0, 0] = r[0, 0, 1] = r[0, 1, 0] = 1.0
        z[0, k // 2] = pick(*[float(z[0, k // 2])] * 8, math.inf, -math.inf, math.nan)
        upper.append(z)
        correlation.append(r)
    return torch.cat(upper), torch.cat(correlation)


@given(
    k=st.sampled_from([1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 20, 32, 33, 40]),
    rows=st.integers(2, 24),
    seed=st.integers(0, 10**6),
    tolerance=st.sampled_from([1e-3, 3e-3, 9e-5]),  # single, and the last one double precision
)
@settings(max_examples=10, deadline=None)
def test_a_probability_has_the_same_bits_whatever_stands_beside_it(
    k: int, rows: int, seed: int, tolerance: float
) -> None:
    assert_each_row_alone(
        lambda z, r: mvn_cdf(z, r, tolerance=tolerance), *mixed(k, rows, seed), seed=seed
    )


@pytest.mark.parametrize("options", [{}, {"truncation": 0.0}], ids=str)
def test_the_same_bits_with_many_variables(options: dict[str, float]) -> None:
    z, r = mixed(99, 16, seed=5)
    assert_each_row_alone(lambda z, r: mvn_cdf(z, r, **options), z, r)  # type: ignore[arg-type]
