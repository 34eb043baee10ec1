"""Rows with a known bias, error and order give just those."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import CONFIDENCE, NO_INTERVAL, P_ROBUST, Quantity
from robaudit.runs.rows import Row
from robaudit.stats.summary import Share, share
from robaudit.validation.deviations import compare, covers, root_mean_square, variance
from tests.rows import ROW as PLAIN
from tests.unit.engine.tools import known

DRAWS = 10_000
LOG_FAILURE = Quantity(
    "log10_p_fail", "log10 of a probability", -300.0, 0.0, higher_is_better=False
)
ROW = replace(
    PLAIN,
    lower=None,
    upper=None,
    std_error=None,
    flips_to=None,
    forwards=65,
    backwards=9,
    interval=NO_INTERVAL,
)


def rows(values: list[float], **columns: Any) -> list[Row]:
    return [
        replace(ROW, sample_id=str(i), value=value, **columns) for i, value in enumerate(values)
    ]


def truths(values: list[float], draws: int = DRAWS) -> list[Share]:
    return [share(round(value * draws), draws) for value in values]


def test_a_constant_shift_is_bias_and_nothing_else() -> None:
    known = [0.2, 0.5, 0.7, 1.0]
    found = compare(rows([p - 0.08 for p in known]), truths(known, 10**8), P_ROBUST, 2.0)
    assert found.error is not None
    assert found.error.bias == pytest.approx(-0.08)
    assert found.error.bias_error == pytest.approx(0, abs=1e-12)
    assert found.error.rmse == pytest.approx(0.08, rel=1e-6)
    assert found.rank == 1
    assert (found.seconds, found.forwards, found.backwards, found.coverage) == (0.5, 65, 9, None)


def test_the_references_own_noise_is_taken_out() -> None:
    """Values that are exact, against references of 400 draws: 2,000 images leave an RMSE of zero
    within 4 standard errors."""
    rng = np.random.default_rng(5)
    n = 400
    p = rng.uniform(0.05, 0.95, 2000)
    drawn = [share(int(k), n) for k in rng.binomial(n, p)]
    squares = [(truth.value - x) ** 2 for truth, x in zip(drawn, p, strict=True)]
    correction = float(np.mean([variance(truth) for truth in drawn]))
    error = float(np.std(squares)) / math.sqrt(len(squares))
    assert abs(float(np.mean(squares)) - correction) < 4 * error
    assert correction > 20 * error, "without it the test would fail"
    assert root_mean_square(squares, correction)[0] < math.sqrt(4 * error)


def test_rmse_has_an_error_and_is_never_a_root_of_a_negative_number() -> None:
    rmse, error = root_mean_square([0.01, 0.03], 0.0)
    assert rmse == pytest.approx(math.sqrt(0.02))
    assert error == pytest.approx(math.sqrt(0.02 + 0.01) - math.sqrt(0.02))
    assert root_mean_square([1e-6, 1e-6], 1.0) == (0, 0)
    assert root_mean_square([0.25], 0.0) == (0.5, None)


def test_the_error_of_the_rmse_is_one_standard_error() -> None:
    """Of normal differences the RMSE scatters by 1 / sqrt(2 n)."""
    d2 = np.random.default_rng(3).normal(0, 0.1, (2000, 200)) ** 2
    rmse, error = np.array([root_mean_square(row, 0.0) for row in d2]).T
    scatter = float(rmse.std(ddof=1))
    assert scatter == pytest.approx(0.1 / math.sqrt(400), rel=4 / math.sqrt(2 * 2000))
    assert float(error.mean()) == pytest.approx(scatter, rel=0.1)


def test_images_are_touched_if_the_reference_kept_some_and_lost_some() -> None:
    assert (
        compare(rows([1.0, 1.0, 0.0, 0.5]), truths([1.0, 0.9999, 0.0, 0.5]), P_ROBUST, 1.0).touched
        == 2
    )


def test_other_quantities_are_compared_by_rank_only() -> None:
    known = [0.9, 0.99, 0.999]
    found = compare(
        rows([-1, -2, -3], quantity="log10_p_fail", lower=-4.0, upper=0.0),
        truths(known),
        LOG_FAILURE,
        1.0,
    )
    assert (found.error, found.coverage, found.rank) == (None, None, 1)
    assert (
        compare(rows([0.1, 0.2, 0.3], quantity="confidence"), truths(known), CONFIDENCE, 1.0).rank
        == 1
    )


def test_an_interval_covers_an_exact_reference_if_it_lies_inside() -> None:
    for reference, inside in ((0.41, True), (0.59, True), (0.39, False), (0.61, False)):
        assert covers(0.5, (0.4, 0.6), reference, (reference, reference)) is inside
    assert covers(0.5, (0.5, 0.5), 0.5, (0.5, 0.5))


@pytest.mark.parametrize("p", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("draws", [1000, 10_000])
def test_coverage_of_exact_intervals_stays_nominal_against_a_noisy_reference(
    p: float, draws: int
) -> None:
    """2,000 Clopper-Pearson intervals of 1,000 draws, the reference as coarse as themselves or ten
    times the draws."""
    rng = np.random.default_rng(11)
    n = 1000
    cases = 2000
    k = rng.binomial(n, p, cases)
    r = rng.binomial(draws, p, cases)
    (lower, upper) = clopper_pearson(k, n)
    (low, high) = clopper_pearson(r, draws)
    held = sum(
        covers(
            k[i] / n,
            (float(lower[i]), float(upper[i])),
            r[i] / draws,
            (float(low[i]), float(high[i])),
        )
        for i in range(cases)
    )
    assert held / cases >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / cases)
    assert held < cases, "a rule that accepts everything would pass, too"


def test_intervals_that_are_too_narrow_do_not_cover() -> None:
    rng = np.random.default_rng(2)
    n = 1000
    cases = 500
    k = rng.binomial(n, 0.5, cases)
    r = rng.binomial(DRAWS, 0.5, cases)
    narrow = [
        replace(ROW, sample_id=str(i), value=x / n, lower=x / n - 0.005, upper=x / n + 0.005)
        for i, x in enumerate(k)
    ]
    coverage = compare(narrow, [share(int(x), DRAWS) for x in r], P_ROBUST, 1.0).coverage
    assert coverage is not None
    assert coverage.total == cases
    assert known(coverage.estimate.upper) < 0.6
