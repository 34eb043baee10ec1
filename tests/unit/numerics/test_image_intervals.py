"""One interval of a mean over measured images: the same wherever it is used, and of the coverage
that it names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robaudit.numerics.image_intervals import (
    MeasuredImages,
    measured_mean,
    normal_scale,
    population_mean,
)
from robaudit.numerics.intervals import clopper_pearson, weighted_share
from robaudit.quantities import Interval, IntervalKind
from robaudit.runs.rows import Row
from robaudit.runs.table import Columns
from tests.rows import class_bias
from tests.unit.engine.tools import known
from tests.unit.gates.tools import row, votes

LEVELS = (0.6, 0.8, 0.95, 0.99)


def by_hand(kind: str) -> list[Row]:
    return [
        row(i, v, v - 0.04, v + 0.03, interval=Interval.parse(kind))
        for i, v in enumerate((0.5, 0.7, 0.8, 0.9))
    ]


BETWEEN_ROUNDS = [*votes([8, 7, 8], 8), *votes([0, 0, 0, 16, 15, 16, 12], 16)[3:]]
"""Three images have 8 votes, four have 16."""

ROWS = {
    "clopper-pearson:pooled": votes([90, 80, 70, 60], 100),
    "mover": by_hand("jackknife"),
    "mean of intervals": by_hand("confidence-sequence"),
}


def test_the_distances_scale_as_a_normal_errors_and_those_of_sequences_never_shrink() -> None:
    for method, narrowed in (("mover", normal_scale(0.8)), ("mean of intervals", 1.0)):
        images = Columns.from_rows(ROWS[method]).images(0.0, 1.0)
        value = images.values.mean()
        usual = measured_mean(images, 0.95)[0]
        low = measured_mean(images, 0.8)[0]
        assert value - low == pytest.approx(narrowed * (value - usual))


def test_errors_that_images_may_share_add() -> None:
    """Two images of chains have their distances as they are, two others theirs in quadrature."""
    rows = [*by_hand("chains")[:2], *by_hand("lognormal")[2:]]
    images = Columns.from_rows(rows).images(0.0, 1.0)
    assert images.method == "mean of intervals"
    lower, upper = measured_mean(images, 0.95)
    mean = images.values.mean()
    # half of the images each: .04, and .04 / sqrt 2
    assert mean - lower == pytest.approx((0.04 + 0.04 / 2**0.5) / 2)
    assert upper - mean == pytest.approx((0.03 + 0.03 / 2**0.5) / 2)
    everywhere = Columns.from_rows(by_hand("chains")).images(0.0, 1.0)
    assert measured_mean(everywhere, 0.95) == pytest.approx((mean - 0.04, mean + 0.03))


@pytest.mark.parametrize("kind", ["lognormal", "chains"])
def test_a_bias_of_all_chains_does_not_average_out(kind: str) -> None:
    """A thousand images whose chains lag by 1 %, which each interval holds: a mean whose errors
    average out leaves the truth behind."""
    n = 1000
    rows = [
        row(i, 0.5 * 0.99, 0.5 * 0.98, 0.5 * 1.02, interval=Interval.parse(kind)) for i in range(n)
    ]
    lower, upper = measured_mean(Columns.from_rows(rows).images(0.0, 1.0), 0.95)
    assert (lower <= 0.5 <= upper) == (kind == "chains")


def test_the_population_is_bounded_by_the_ends_of_shared_errors() -> None:
    chains = Columns.from_rows(by_hand("chains")).images(0.0, 1.0)
    apart = Columns.from_rows(by_hand("lognormal")).images(0.0, 1.0)
    lower, upper = population_mean(chains, 0.95)
    without = population_mean(apart, 0.95)
    assert lower < without[0]
    assert upper > without[1]


@pytest.mark.parametrize("confidence", LEVELS)
def test_mover_covers_at_every_confidence(confidence: float) -> None:
    """Independent normal errors of known and very different sizes: as often as it says, not more
    and not less."""
    g = np.random.default_rng(4)
    repeats = 2000
    sizes = np.linspace(0.001, 0.05, 20)
    truth = g.uniform(0.3, 0.7, 20)
    wide = 1.959964 * sizes
    held = 0
    for _ in range(repeats):
        x = truth + g.normal(0.0, sizes)
        lower, upper = measured_mean(MeasuredImages(x, x - wide, x + wide, 0.0, 1.0), confidence)
        held += lower <= truth.mean() <= upper
    assert held / repeats == pytest.approx(
        confidence, abs=3.5 * (confidence * (1 - confidence) / repeats) ** 0.5
    )


@pytest.mark.slow
def test_the_class_intervals_of_a_bias_report_hold_together() -> None:
    """A few images carry the mean of each of 100 equal classes: a class that drew none of them
    looks sure, and differs from no other."""
    g = np.random.default_rng(3)
    repeats = 15
    wrong = 0
    rows = [row(i, 0.0, label=i % 100) for i in range(10_000)]
    for seed in range(repeats):
        values = np.where(g.random(len(rows)) < 0.05, 1.0, 0.03)
        made = [replace(one, value=float(value)) for one, value in zip(rows, values, strict=True)]
        classes = class_bias(made, permutations=100, seed=seed).classes
        ends = [(known(one.difference).lower, known(one.difference).upper) for one in classes]
        wrong += any(
            lower is None or upper is None or not lower <= 0.0 <= upper for lower, upper in ends
        )
    assert wrong / repeats <= 0.05 + 3.0 * (0.95 * 0.05 / repeats) ** 0.5


# --- different numbers of votes


def test_votes_of_different_numbers_are_pooled_with_weights() -> None:
    images = Columns.from_rows(BETWEEN_ROUNDS).images(0.0, 1.0)
    assert images.method == "weighted votes:pooled"
    trials = [3 * 8, 4 * 16]
    expected = weighted_share([23, 59], trials, [1 / 8, 1 / 16], 0.9)
    assert measured_mean(images, 0.9) == pytest.approx(expected)
    lower, upper = measured_mean(images, 0.95)
    apart = measured_mean(replace(images, draws=None), 0.95)
    assert upper - lower < apart[1] - apart[0]


def test_a_selection_of_equal_votes_is_pooled_as_equal_votes() -> None:
    images = Columns.from_rows(BETWEEN_ROUNDS).images(0.0, 1.0).chosen(np.arange(3), 0)
    assert images.method == "clopper-pearson:pooled"
    low, high = clopper_pearson(23, 24)
    assert measured_mean(images, 0.95) == (float(low), float(high))


def test_pairs_of_different_numbers_are_not_pooled() -> None:
    rows = []
    for one in BETWEEN_ROUNDS:
        counted = known(one.votes)
        paired = replace(counted, split=counted.counts[0] % 2)
        rows.append(replace(one, votes=paired, interval=Interval(IntervalKind.ANTITHETIC)))
    assert Columns.from_rows(rows).images(0.0, 1.0).method == "mover"
    assert Columns.from_rows(rows[:3]).images(0.0, 1.0).method == "antithetic pairs:pooled"


@pytest.mark.parametrize("rare", [0.0002, 0.01, 0.3])
def test_a_run_between_rounds_covers(rare: float) -> None:
    """500 images, of which 200 have 16 votes and the others 8; a tenth fails ten times as often."""
    g = np.random.default_rng(7)
    repeats = 2000
    draws = np.repeat([16, 8], [200, 300])
    truth = 1 - np.where(np.arange(500) % 10 == 0, min(1.0, 10 * rare), rare)
    held = 0
    for _ in range(repeats):
        shares = g.binomial(draws, truth) / draws
        images = MeasuredImages(shares, shares, shares, 0.0, 1.0, draws=draws)
        lower, upper = measured_mean(images, 0.95)
        held += lower <= truth.mean() <= upper
    assert held / repeats >= 0.95 - 3.0 * (0.95 * 0.05 / repeats) ** 0.5
