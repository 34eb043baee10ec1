"""The interval about the mean of a few estimates contains the truth however much they differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.numerics.intervals import log_mean
from tests.unit.engine.tools import known

CASES = 1000
LOG_P = -80.0
"""So low that no upper end is cut at p = 1."""


@pytest.mark.parametrize("n", [4, 10])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_lognormal_repeats_are_covered(n: int, spread: float) -> None:
    """Unbiased, E p = exp(LOG_P): 95 % hold it, 3 % lie below (2.3 to 2.9 % in 40,000 cases),
    within three standard errors."""
    draws = (
        LOG_P
        - spread**2 / 2
        + spread * np.random.default_rng([n, round(10 * spread)]).standard_normal((CASES, n))
    )
    found = [log_mean(row, [0.0] * n) for row in draws.tolist()]
    below = sum(known(one.estimate.upper) < LOG_P / math.log(10) for one in found)
    above = sum(known(one.estimate.lower) > LOG_P / math.log(10) for one in found)
    for misses, share in ((below, 0.03), (above, 0.025), (below + above, 0.05)):
        assert misses / CASES < share + 3 * math.sqrt(share * (1 - share) / CASES)


@given(logs=st.lists(st.floats(-60, 0), min_size=2, max_size=8), variance=st.floats(0, 0.5))
def test_never_narrower_than_students_t_and_theory(logs: list[float], variance: float) -> None:
    """Repeats that are not lognormal, as where some only bound p, keep Student's t about the value;
    and it always holds the value."""
    found = log_mean(logs, [variance] * len(logs))
    value = found.estimate.value
    (lower, upper) = known(found.estimate.bounds)
    assert 10**value == pytest.approx(np.exp(logs).mean(), rel=1e-9)
    assert found.spread == pytest.approx(np.std(logs, ddof=1), abs=1e-9)
    t = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}[len(logs)]
    least = (
        max(1.9599 * math.sqrt(variance), (t - 0.001) * found.spread)
        / math.sqrt(len(logs))
        / math.log(10)
    )
    assert lower <= value - least + 1e-9
    assert upper >= min(0.0, value + least) - 1e-9
    assert upper <= 0
    assert value <= 1e-12


def test_equal_repeats_have_the_ideal_error() -> None:
    found = log_mean([-20.0] * 4, [0.16] * 4)
    assert found.std_error == pytest.approx(0.2 / math.log(10))
    assert (found.estimate.above, found.estimate.below) == pytest.approx(
        [1.959964 * found.std_error] * 2
    )
