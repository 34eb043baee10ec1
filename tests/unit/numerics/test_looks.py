"""The confidence of repeated looks: Pocock's constants, and the exact coverage of counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom

from robaudit.numerics import looks as looks_module
from robaudit.numerics.image_intervals import simultaneous
from robaudit.numerics.intervals import clopper_pearson
from robaudit.numerics.looks import confidence_of_each

Floats = NDArray[np.float64]

ROUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1000)
CONFIDENCES = (0.9, 0.95, 0.99)

some_looks = st.sets(st.integers(1, 300), min_size=1, max_size=8).map(sorted)
some_confidence = st.floats(0.05, 0.9999)


@pytest.mark.parametrize(
    ("number", "z"), [(1, 1.960), (2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413), (10, 2.555)]
)
def test_looks_at_equal_distances_have_pococks_constants(number: int, z: float) -> None:
    each = confidence_of_each(0.95, range(1, number + 1))
    assert -ndtri((1 - each) / 2) == pytest.approx(z, abs=5.1e-4)


def test_one_look_has_the_whole_error() -> None:
    assert confidence_of_each(0.95, [1000]) == 0.95


@given(some_confidence, some_looks)
def test_a_look_costs_no_more_than_bonferroni_says(confidence: float, looks: list[int]) -> None:
    each = confidence_of_each(confidence, looks)
    assert confidence <= each <= simultaneous(confidence, len(looks)) + 1e-15


@given(some_confidence, some_looks, st.integers(1, 300))
def test_a_further_look_never_narrows(confidence: float, looks: list[int], further: int) -> None:
    each = confidence_of_each(confidence, looks)
    assert confidence_of_each(confidence, sorted({*looks, further})) >= each - 1e-12


@given(some_confidence, some_looks, st.integers(2, 1000))
def test_only_ratios_of_looks_matter(confidence: float, looks: list[int], factor: int) -> None:
    each = confidence_of_each(confidence, looks)
    assert confidence_of_each(confidence, [factor * look for look in looks]) == each


@pytest.mark.parametrize("looks", [ROUNDS, (1, 10**6), (999, 1000), (1, 2, 3, 299, 300)])
@pytest.mark.parametrize("confidence", [0.1, 0.95, 1 - 1e-9])
def test_more_nodes_change_nothing(
    looks: Sequence[int], confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = confidence_of_each(confidence, looks)
    monkeypatch.setattr(looks_module, "_NODES", 100)
    monkeypatch.setattr(looks_module, "_NODES_PER_DEVIATION", 10.0)
    looks_module._confidence_of_each.cache_clear()
    assert confidence_of_each(confidence, looks) == pytest.approx(usual, abs=1e-12)
    looks_module._confidence_of_each.cache_clear()


@pytest.mark.parametrize("looks", [(), (0, 1), (8, 8), (8, 1)])
def test_looks_must_ascend(looks: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        confidence_of_each(0.95, looks)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_a_confidence_lies_inside_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        confidence_of_each(confidence, [1, 8])


# --- the exact coverage of Clopper-Pearson intervals


def intervals(looks: Sequence[int], confidence: float) -> list[tuple[Floats, Floats]]:
    """The Clopper-Pearson intervals of the counts 0 to n of each look, or of the first 1,000."""
    each = confidence_of_each(confidence, looks)
    return [clopper_pearson(np.arange(min(n, 1000) + 1), n, each) for n in looks]


def misses(looks: Sequence[int], ends: list[tuple[Floats, Floats]], p: float) -> float:
    """The probability that the interval of a count of draws with probability p misses p at any
    look, from the distribution of the counts whose intervals have held so far.

    The largest count in ``ends`` has an interval above p, or is the number of draws.
    """
    first = 0
    mass = np.ones(1)
    before = 0
    for n, (lower, upper) in zip(looks, ends, strict=True):
        # The ends rise with the count, so the intervals that hold are of neighbouring counts.
        least = int(np.searchsorted(upper, p, side="left"))
        most = int(np.searchsorted(lower, p, side="right")) - 1
        # Larger steps leave these counts, so they need not be known.
        steps = np.arange(min(n - before, most - first) + 1)
        mass = np.convolve(mass, binom.pmf(steps, n - before, p))
        kept_from = max(least, first)
        mass = mass[kept_from - first : most - first + 1]
        first = kept_from
        before = n
    return 1.0 - float(mass.sum())


def worst_miss(looks: Sequence[int], confidence: float, largest: float, points: int) -> float:
    """The largest probability of a miss for p on a grid up to ``largest``, and beside ends of the
    intervals, where the probability jumps."""
    ends = intervals(looks, confidence)
    jumps = np.concatenate([np.concatenate(pair) for pair in ends])
    jumps = np.unique(jumps[(jumps > 0) & (jumps < largest)])
    chosen = jumps[:: max(1, len(jumps) // points)]
    grid = np.geomspace(largest / 1e6, largest, points)
    rates = np.concatenate([grid, chosen * (1 - 1e-10), chosen * (1 + 1e-10)])
    return max(misses(looks, ends, p) for p in rates.tolist())


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize(
    "looks", [(1,), (1, 8), (1, 8, 10), (1, 8, 16, 20), ROUNDS], ids=lambda looks: str(looks[-1])
)
def test_counts_of_an_image_are_missed_no_more_often_than_stated(
    looks: Sequence[int], confidence: float
) -> None:
    # Counts of 1 - p mirror those of p.
    worst = worst_miss(looks, confidence, 0.5, 200)
    assert (1 - confidence) / 5 < worst <= 1 - confidence


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize(
    "looks", [(1,), (1, 8), (1, 8, 10), (1, 8, 16, 20), ROUNDS], ids=lambda looks: str(looks[-1])
)
def test_rare_counts_of_many_images_are_missed_no_more_often_than_stated(
    looks: Sequence[int], confidence: float
) -> None:
    """Sums over 500 images with up to 40 expected counts: nearly Poisson."""
    of_all = [500 * look for look in looks]
    worst = worst_miss(of_all, confidence, 40 / of_all[-1], 100)
    assert (1 - confidence) / 3 < worst <= 1 - confidence


@settings(max_examples=30)
@given(
    st.sampled_from((0.5, *CONFIDENCES)),
    st.sets(st.integers(1, 100), min_size=1, max_size=6).map(sorted),
    # SciPy's binomial probabilities overflow at the smallest numbers.
    st.just(0.0) | st.floats(1e-200, 1.0),
)
def test_counts_at_any_looks_are_missed_no_more_often_than_stated(
    confidence: float, looks: list[int], p: float
) -> None:
    assert misses(looks, intervals(looks, confidence), p) <= 1 - confidence + 1e-12
