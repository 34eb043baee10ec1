"""Omitted variables of a normal probability take no more from it than `omitted_failures` says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.methods.average_case import logit_gaussian
from robaudit.methods.average_case.logit_gaussian import MarginFit, MarginStatistics, fit_margins
from robaudit.methods.average_case.mvn import mvn_cdf
from robaudit.methods.average_case.omitted import omitted_failures
from robaudit.numerics.normal import normal_cdf
from tests.unit.methods.average_case.test_mvn import gram, limits
from tests.unit.numerics.test_rowwise import assert_each_row_alone


def split(z: Tensor, r: Tensor, kept: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return z[:, :kept], r[:, :kept, :kept], z[:, kept:], r[:, :kept, kept:]


def test_one_omitted_variable_takes_its_part_exactly() -> None:
    z = limits(6, 7, seed=2)
    r = gram(6, 7, 30, seed=2)
    kept = split(z, r, 6)
    without, error = mvn_cdf(*kept[:2], tolerance=1e-5)
    whole, whole_error = mvn_cdf(z, r, tolerance=1e-5)
    part = omitted_failures(*kept)
    numerical = error + whole_error
    # It is three standard errors above an estimate from 1,024 points.
    assert bool((part >= without - whole - numerical).all())
    assert bool((part <= without - whole + numerical + 2e-3).all())


@pytest.mark.parametrize("rank", [5, 40])
def test_many_omitted_variables_take_less_than_said(rank: int) -> None:
    z = limits(8, 60, seed=3, mean=2.0).sort(1).values
    r = gram(8, 60, rank, seed=3)
    kept = split(z, r, 20)
    without, error = mvn_cdf(*kept[:2], tolerance=1e-4)
    whole, whole_error = mvn_cdf(z, r, tolerance=1e-4)
    most = omitted_failures(*kept)
    assert bool((without - whole <= most + error + whole_error).all())
    assert bool((most <= normal_cdf(-z[:, 20:]).sum(1) + 1e-2).all())


def correlated_margins(images: int, pairs: int, classes: int) -> Tensor:
    """Antithetic margins to many classes that mostly fail where the first few have failed."""
    generator = torch.Generator().manual_seed(4)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    draws = normal(images, pairs, 12)
    loading = normal(12, classes) * 0.2
    loading[0] += 1.0
    # a small even part: its mean has an error
    even = 0.02 * normal(images, pairs, classes) + 0.5 + torch.linspace(0, 1.0, classes)
    odd = draws @ loading
    return torch.stack([even + odd, even - odd], 2).flatten(1, 2)


def fitted(g: Tensor) -> tuple[list[MarginFit], Tensor]:
    statistics = MarginStatistics.from_margins(g)
    return fit_margins([statistics]), statistics.omitted


def test_the_stated_error_covers_the_omitted_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    g = correlated_margins(6, 48, 120)
    some, omitted = fitted(g)
    monkeypatch.setattr(logit_gaussian, "COMPETITIVE", 120)
    everything, nothing = fitted(g)
    assert nothing.tolist() == [0.0] * 6
    z = g.mean(1) / g.std(1)
    union_bound = normal_cdf(-z.sort(1).values[:, 64:]).sum(1)
    assert bool((union_bound > 1.0).all())
    assert bool((omitted < 0.01 * union_bound).all())
    for fit, whole in zip(some, everything, strict=True):
        plain = fit.value - fit.correction
        whole_plain = whole.value - whole.correction
        assert abs(plain - whole_plain) <= fit.error + whole.error


def test_omitted_classes_of_an_image_do_not_depend_on_other_images() -> None:
    assert_each_row_alone(
        lambda g: tuple(MarginStatistics.from_margins(g)), correlated_margins(5, 48, 120)
    )


def test_a_matrix_that_is_no_correlation_has_no_bound() -> None:
    impossible = torch.tensor([[[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]])
    one = torch.ones(1, 3, dtype=torch.float64)
    cross = torch.zeros(1, 3, 2, dtype=torch.float64)
    found = omitted_failures(one, impossible.double(), one[:, :2], cross)
    assert math.isnan(found.item())
