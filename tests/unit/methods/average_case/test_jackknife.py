"""The jackknife interval: what it does with spread, with bias, and without groups."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm, t

from robaudit.methods.average_case.jackknife import jackknife, logit, logit_inverse
from robaudit.numerics.normal import normal_cdf
from tests.unit.engine.tools import build, curved, work_on


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize("bias", [-2.0, 0.5])
def test_a_bias_of_one_over_n_is_inside(bias: float) -> None:
    """y_n = y + b/n without any spread: the interval is from the estimate to the limit, exactly."""
    groups = 8
    limit = 0.7
    estimate = limit + bias / groups
    left_out = [values(norm.cdf(limit + bias / (groups - 1)))] * groups
    spread = jackknife(values(norm.cdf(estimate)), left_out, torch.special.ndtri, normal_cdf)
    ends = sorted((norm.cdf(limit), norm.cdf(estimate)))
    assert [float(spread.lower), float(spread.upper)] == pytest.approx(ends, abs=1e-9)


@pytest.mark.parametrize(
    ("scale", "inverse"), [(torch.special.ndtri, normal_cdf), (logit, logit_inverse)]
)
def test_of_a_mean_it_is_students_interval(scale: object, inverse: object) -> None:
    assert callable(scale)
    assert callable(inverse)
    y = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 0.3 + 0.5
    spread = jackknife(
        inverse(y.mean())[None],
        [inverse((y.sum() - y[j]) / 7)[None] for j in range(8)],
        scale,
        inverse,
    )
    half = t.ppf(0.975, 7) * float(y.std()) / math.sqrt(8)
    ends = [float(inverse(y.mean() - half)), float(inverse(y.mean() + half))]
    assert [float(spread.lower), float(spread.upper)] == pytest.approx(ends, rel=1e-9)


def test_a_single_group_says_nothing() -> None:
    for row in build("mmse", draws=2).estimate(work_on(curved())):
        assert (row.lower, row.upper, row.std_error, row.interval.text) == (
            None,
            None,
            None,
            "none",
        )


def test_the_ends_of_the_range_stay_finite() -> None:
    spread = jackknife(values(0.0, 1.0), [values(0.0, 1.0)] * 5, torch.special.ndtri, normal_cdf)
    assert spread.lower.tolist()[0] == 0.0
    assert spread.upper.tolist()[1] == 1.0
    assert float(spread.upper[0]) < 1e-12


@pytest.mark.parametrize("name", ["mmse", "mmse_mvs"])
def test_rows_say_that_they_are_approximate(name: str) -> None:
    labels = {
        row.interval.text
        for n in (10, 64)
        for row in build(name, draws=n).estimate(work_on(curved()))
    }
    assert labels == {"jackknife:approximate"}
