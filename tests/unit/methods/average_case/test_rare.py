"""`splitting` on small networks whose failure probability is known, and where it is a trap, a tie
or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from robaudit.methods.average_case import splitting
from robaudit.methods.average_case.splitting import Splitting
from robaudit.quantities import IntervalKind
from robaudit.results import Result
from tests.unit.engine.tools import SHAPE, curved, linear, weights, work_on

SIGMA = 0.3
BETA = float(norm.isf(1e-6))
BETA_TWO = float(norm.isf(5e-7))
BALL = float(chi2.isf(1e-6, 24))


def clean(first: int = 0) -> Tensor:
    """The image that :func:`work_on` makes."""
    return torch.rand(first + 1, *SHAPE, generator=torch.Generator().manual_seed(7))[first]


def around(score: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Three classes; the noise z (n, 24) of the first image fails to class 2 where score(z) >=
    0."""
    centre = clean()

    def logits(x: Tensor) -> Tensor:
        s = score(((x - centre) / SIGMA).flatten(1))
        return torch.stack([torch.zeros_like(s), torch.full_like(s, -50.0), s], dim=1)

    return logits


HALF = around(lambda z: z[:, 3] - BETA)
TWO_SIDED = around(lambda z: z[:, 3].abs() - BETA_TWO)
OUTSIDE = around(lambda z: (z + 0.01).square().sum(1) - BALL)


def one(
    estimator: Splitting,
    network: Callable[[Tensor], Tensor],
    *,
    seed: int = 0,
    sigma: float = SIGMA,
) -> Result:
    (estimate,) = estimator.estimate(work_on(network, images=1, sigma=sigma, seed=seed))
    return estimate


def near(estimate: Result, p: float, errors: float = 3.0) -> bool:
    assert estimate.std_error is not None
    return abs(estimate.value - math.log10(p)) < errors * estimate.std_error


@pytest.mark.parametrize("network", [HALF, TWO_SIDED, OUTSIDE])
def test_splitting_measures_one_in_a_million(network: Callable[[Tensor], Tensor]) -> None:
    found = one(Splitting(particles=200), network)
    assert near(found, 1e-6)
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower < -6 < found.upper < found.lower + 1.5
    assert (found.flips_to, found.backwards, found.note, found.interval.text) == (
        2,
        0,
        "",
        "lognormal:4 repeats",
    )
    assert 0.2 < found.numbers["acceptance"] < 0.4
    assert {f"log10_p_{i}" for i in range(4)} < set(found.numbers)


def test_a_linear_network() -> None:
    """p by the closed form, on images whose failures are rare and on others."""
    network = linear(2)
    sigma = 0.15
    u = weights(network)[0] - weights(network)[1]
    batch = work_on(network, images=5, sigma=sigma)
    expected = norm.sf((batch.margins[:, 0] / (sigma * u.norm())).numpy())
    assert min(expected) < 1e-4 < 0.01 < max(expected)
    for estimate, p in zip(
        Splitting(particles=100, p_min=1e-30).estimate(batch), expected, strict=True
    ):
        assert near(estimate, p, 3.5)


def test_what_is_not_rare_has_the_binomial_interval() -> None:
    found = one(Splitting(particles=1000), around(lambda z: z[:, 3] - 0.5))
    assert found.interval.text == "clopper-pearson"
    assert near(found, float(norm.sf(0.5)))
    assert found.forwards == 4001


def test_repeats_that_differ_are_told() -> None:
    """Of 20 copies each, a standard deviation of ln p of 1.6 in theory; the interval reaches up
    further than down."""
    found = one(Splitting(particles=20), HALF)
    logs = [found.numbers[f"log10_p_{i}"] for i in range(4)]
    assert (
        found.note
        == f"repeats differ by a factor of {10 ** (max(logs) - min(logs)):.2g}: more repeats or "
        "particles would help"
    )
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower < -6 < found.upper
    assert found.upper - found.value > 2 * (found.value - found.lower)


def test_below_p_min_is_a_bound() -> None:
    found = one(Splitting(particles=50, p_min=1e-4), around(lambda z: z[:, 3] - 12))
    assert (found.value, found.upper, found.lower, found.std_error) == (-4.0, -4.0, None, None)
    assert found.note.startswith("p < 0.0001 in all 4 repeats: an upper bound")
    assert found.flips_to is None


def test_equal_scores_are_told() -> None:
    """A network in whole numbers."""
    found = one(Splitting(particles=200), around(lambda z: (2 * (z[:, 3] - 4)).floor() / 2))
    assert near(found, float(norm.sf(4.0)), 4.0)
    assert "equal scores" in found.note
    assert found.numbers["tied_levels"] > 0


def test_logits_that_are_not_finite_are_failures() -> None:
    found = one(
        Splitting(particles=1000),
        around(lambda z: torch.where(z[:, 3] > 0.5, math.nan, z[:, 2] - 9.0)),
    )
    assert near(found, float(norm.sf(0.5)))
    assert found.flips_to is None


@pytest.mark.bits
def test_rare_failures_are_the_same_in_any_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels deep, in other chunks, with other batches, and with fewer runs in lock-step."""

    def estimates(first: int, images: int, batch_size: int | None = None) -> list[Result]:
        return list(
            Splitting(particles=40, moves=3).estimate(
                work_on(curved(), images=images, first=first, sigma=0.03, batch_size=batch_size)
            )
        )

    whole = estimates(0, 6)
    assert min(e.value for e in whole) < -4
    assert [*estimates(0, 2), *estimates(2, 3), *estimates(5, 1)] == whole
    assert estimates(0, 6, 64) == whole
    monkeypatch.setattr(splitting, "HELD_BYTES", 4 * 40 * 24 * 3)
    assert estimates(0, 6) == whole


def test_of_equal_logits_the_first_has_the_class() -> None:
    """Two classes with the same weights, or none at all: the class stays, as mc has it, and no
    equality counts as a failure."""

    def twins(x: Tensor) -> Tensor:
        score = x.flatten(1)[:, :3].sum(1)
        return torch.stack([score, score, torch.full_like(score, -1e3)], dim=1)

    for network in (twins, lambda x: 0 * x.flatten(1)[:, :3]):
        found = one(Splitting(particles=20, p_min=1e-3), network)
        assert (found.interval.kind, found.flips_to) == (IntervalKind.UPPER_BOUND, None)
        assert found.value < -1
