"""The interval of a paired difference holds what it says, by enumeration and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln, xlogy

from robaudit.compare.difference import unpaired_difference
from robaudit.estimates import Estimate
from robaudit.numerics.intervals import antithetic_difference, antithetic_share, paired_difference
from tests.golden import Golden


@pytest.mark.parametrize("n", [1, 2, 5, 10, 20, 50])
def test_coverage_is_at_least_nominal_for_few_draws(n: int) -> None:
    """All tables of n draws, with their probabilities under many (p10, p01)."""
    lost, won = (table.ravel() for table in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    possible = lost + won <= n
    lost = lost[possible]
    won = won[possible]
    lower, upper = paired_difference(lost, won, n)
    ways = gammaln(n + 1) - gammaln(lost + 1) - gammaln(won + 1) - gammaln(n - lost - won + 1)
    for total in (0.002, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0):
        for share in np.linspace(0, 1, 21):
            a = total * share
            b = total * (1 - share)
            chance = np.exp(
                ways + xlogy(lost, a) + xlogy(won, b) + xlogy(n - lost - won, max(0.0, 1 - total))
            )
            held = (lower <= b - a + 1e-12) & (b - a <= upper + 1e-12)
            assert chance[held].sum() >= 0.95, (total, share)


def covered(
    repeats: int, p: float, rho: float, drop: float, images: int = 20, draws: int = 100
) -> int:
    """How often the pooled interval holds the true mean difference, for images whose probabilities
    differ."""
    rng = np.random.default_rng([round(1000 * p), round(1000 * rho) + 1000, round(1000 * drop)])
    base = np.clip(rng.beta(20 * p, 20 * (1 - p) + 0.05, images), 0, 1)
    new = np.clip(base - drop * rng.random(images), 0, 1)
    both = np.clip(
        base * new + rho * np.sqrt(base * (1 - base) * new * (1 - new)),
        np.maximum(0, base + new - 1),
        np.minimum(base, new),
    )
    cells = np.stack([both, base - both, new - both, 1 - base - new + both], axis=1).clip(0, 1)
    counts = rng.multinomial(
        draws, cells / cells.sum(1, keepdims=True), size=(repeats, images)
    ).sum(1)  # (repeats, 4)
    lower, upper = paired_difference(counts[:, 1], counts[:, 2], images * draws)
    truth = float((new - base).mean())
    return int(((lower <= truth) & (truth <= upper)).sum())


CASES = [
    (p, rho, drop)
    for p in (0.6, 0.9, 0.99, 0.999)
    for rho in (-0.2, 0.0, 0.5, 0.9)
    for drop in (0.0, 0.02)
]


@pytest.mark.parametrize("case", CASES[::5])
def test_coverage_of_correlated_draws(case: tuple[float, float, float]) -> None:
    repeats = 400
    assert covered(repeats, *case) >= repeats * 0.95 - 4 * math.sqrt(repeats * 0.95 * 0.05)


def test_no_discordant_draw_is_not_no_difference() -> None:
    lower, upper = paired_difference(0, 0, 10_000)
    assert -float(lower) == pytest.approx(math.log(2 / 0.05) / 10_000, rel=0.01)
    assert float(upper) == pytest.approx(-float(lower))


@pytest.mark.parametrize("wrong", [(-1, 0, 5), (3, 3, 5), (0, 0, 0)])
def test_refuses_impossible_counts(wrong: tuple[int, int, int], golden: Golden) -> None:
    with golden.raises(ValueError):
        paired_difference(*wrong)


def test_independent_measurements_add_in_quadrature() -> None:
    base = Estimate.measured(0.9, (0.87, 0.92), "mover")
    found = unpaired_difference(
        base, Estimate.measured(0.8, (0.76, 0.83), "mover"), same_generator=False
    )
    assert found.ends == pytest.approx(
        (-0.1 - math.hypot(0.04, 0.02), -0.1 + math.hypot(0.03, 0.03))
    )
    bounds = unpaired_difference(
        base, Estimate.measured(0.8, (0.76, 0.83), "mean of intervals"), same_generator=False
    )
    assert bounds.ends == pytest.approx((-0.16, -0.04))


PAIRS = [8, 16, pytest.param(32, marks=pytest.mark.slow)]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("p", [0.5, 0.6, 0.8, 0.9, 0.97, 0.99, 0.999])
def test_each_side_of_an_antithetic_share(pairs: int, p: float) -> None:
    """All tables of pairs that keep both, one and neither copy, however the two copies depend on
    each other."""
    both, neither = (
        table.ravel() for table in np.meshgrid(np.arange(pairs + 1), np.arange(pairs + 1))
    )
    possible = both + neither <= pairs
    both = both[possible]
    neither = neither[possible]
    split = pairs - both - neither
    lower, upper = antithetic_share(2 * both + split, split, 2 * pairs)
    ways = gammaln(pairs + 1) - gammaln(both + 1) - gammaln(neither + 1) - gammaln(split + 1)
    for agree in np.linspace(0, 1, 21):
        none = (1 - p) * agree
        one = 2 * (1 - p - none)
        if none + one <= 1:
            chance = np.exp(
                ways + xlogy(both, 1 - none - one) + xlogy(neither, none) + xlogy(split, one)
            )
            assert max(chance[lower > p + 1e-12].sum(), chance[upper < p - 1e-12].sum()) <= 0.025, (
                agree
            )


@pytest.mark.parametrize("pairs", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_each_side_of_an_antithetic_difference(pairs: int) -> None:
    """All tables of pairs that differ by -1, -1/2, 1/2 and 1."""
    tables = np.array([t for t in itertools.product(range(pairs + 1), repeat=4) if sum(t) <= pairs])
    lost, half_lost, half_won, won = tables.T
    lower, upper = antithetic_difference((half_lost, half_won), (lost, won), pairs)
    rest = pairs - tables.sum(1)
    ways = gammaln(pairs + 1) - gammaln(tables + 1).sum(1) - gammaln(rest + 1)
    for total in (0.02, 0.1, 0.3, 0.6, 1.0):
        for parts in itertools.product((0, 1, 3), repeat=4):
            if sum(parts):
                p = total * np.array(parts) / sum(parts)
                truth = float(p @ np.array([-1, -0.5, 0.5, 1]))
                chance = np.exp(ways + xlogy(tables, p).sum(1) + xlogy(rest, max(0.0, 1 - total)))
                assert (
                    max(chance[lower > truth + 1e-12].sum(), chance[upper < truth - 1e-12].sum())
                    <= 0.025
                ), p
