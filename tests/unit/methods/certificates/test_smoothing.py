"""Certified radii against tables, the worst case by quadrature, and exact coverage."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtrc
from scipy.stats import binom, laplace, norm, uniform

from robaudit.engine.votes import next_look
from robaudit.methods.certificates.smoothing import (
    BOX,
    EARLY,
    GAUSSIAN,
    LAPLACE,
    Question,
    fewest_draws,
    largest_radius,
    needed,
    p_lower,
)

ALPHA = 0.001
THEOREMS = {"gaussian": GAUSSIAN, "box": BOX, "laplace": LAPLACE}
LAWS = {"gaussian": norm(), "box": uniform(-1, 2), "laplace": laplace(scale=math.sqrt(0.5))}
"""Noise of level 1 on a value."""


@pytest.mark.parametrize(
    ("k", "n", "p", "radius"),
    [
        (100_000, 100_000, 0.99993092, 3.811457),
        (10_000, 10_000, None, 3.198578),
        (99_000, 100_000, None, 2.290000),
        (90_000, 100_000, None, 1.264845),
        (600, 1000, None, 0.128379),
    ],
)
def test_goldens(k: int, n: int, p: float | None, radius: float) -> None:
    bound = float(p_lower(k, n, ALPHA))
    assert p is None or bound == pytest.approx(p, abs=5e-9)
    assert GAUSSIAN.radius(bound, 1.0) == pytest.approx(radius, abs=5e-7)


@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("n", [10, 50, 1000])
def test_the_bound_covers_exactly(alpha: float, n: int) -> None:
    k = np.arange(n + 1)
    bounds = p_lower(k, n, alpha)
    for p in (0.01, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999):
        assert binom.pmf(k, n, p)[bounds > p].sum() <= alpha * (1 + 1e-9)


@pytest.mark.parametrize(
    ("k", "n", "alpha"), [(-1, 5, 0.1), (6, 5, 0.1), (1, 0, 0.1), (1, 2, 0.0), (1, 2, 1.0)]
)
def test_impossible_counts(k: int, n: int, alpha: float) -> None:
    with pytest.raises(ValueError, match="p_lower: needs"):
        p_lower(k, n, alpha)


@pytest.mark.parametrize("name", THEOREMS)
@given(p=st.floats(0.5000001, 0.9999), level=st.floats(1e-3, 10))
def test_radius_and_probability_are_inverse(name: str, p: float, level: float) -> None:
    theorem = THEOREMS[name]
    assert theorem.probability(theorem.radius(p, level), level) == pytest.approx(p, abs=1e-9)
    assert theorem.radius(p, level) == pytest.approx(level * theorem.radius(p, 1.0))
    assert (
        theorem.radius(p, level) > 0 == theorem.radius(0.5, level) == theorem.radius(1 - p, level)
    )


def least_share(name: str, shift: tuple[float, float], p: float, cells: int = 400) -> float:
    """The smallest P[x + shift + e in A] over all sets A in the plane with P[x + e in A] = p, by
    the lemma of Neyman and Pearson.

    The plane is cut into cells of equal probability under e; A takes those first that the shift
    makes rarest.
    """
    law = LAWS[name]
    e = law.ppf((np.arange(cells) + 0.5) / cells)
    ratio = [law.pdf(e - s) / law.pdf(e) for s in shift]  # of the density of the shifted noise
    cheapest = np.sort(np.multiply.outer(*ratio).ravel()) / cells**2
    return float(cheapest[: round(p * cells**2)].sum())


@pytest.mark.parametrize("name", THEOREMS)
@pytest.mark.parametrize("p", [0.6, 0.98])
def test_no_set_loses_its_majority_within_the_radius_and_one_does_at_it(
    name: str, p: float
) -> None:
    """Quadrature with cells of probability 1/400 on each axis: a share is off by one cell or so of
    each axis."""
    theorem = THEOREMS[name]
    slack = 2 / 400
    radius = theorem.radius(p, 1.0)
    for angle in np.linspace(0, math.pi / 2, 5):
        direction = np.array([math.cos(angle), math.sin(angle)])
        unit = direction / np.linalg.norm(direction, {"l1": 1, "l2": 2}[theorem.norm])
        shares = [least_share(name, tuple(r * radius * unit), p) for r in (0.3, 0.7, 1.0)]
        assert all(share >= 0.5 - slack for share in shares)
        assert shares == sorted(shares, reverse=True)
        if angle == 0 or theorem is GAUSSIAN:
            assert shares[-1] == pytest.approx(0.5, abs=slack), "the theorem is tight"
            assert least_share(name, tuple(1.1 * radius * unit), p) < 0.5


def test_the_fewest_draws() -> None:
    assert fewest_draws(ALPHA) == 10
    assert fewest_draws(0.05) == 5
    assert fewest_draws(ALPHA, 1.0) is None
    for alpha, p in product((0.001, 0.05, 0.4), (0.5, 0.7, 0.999, 0.99999)):
        n = fewest_draws(alpha, p)
        assert n is not None
        assert p_lower(n, n, alpha) > p
        assert n == 1 or p_lower(n - 1, n - 1, alpha) <= p


@pytest.mark.parametrize("name", THEOREMS)
@given(n=st.integers(10, 3000), share=st.floats(0.01, 1.3))
def test_what_a_radius_needs_is_the_smallest_count(name: str, n: int, share: float) -> None:
    theorem = THEOREMS[name]
    radius = share * largest_radius(theorem, 0.5, n, ALPHA)
    if not radius or share == 1.0:  # the largest radius itself is met to rounding
        return
    k = needed(theorem, 0.5, radius, n, ALPHA)
    certified = [
        theorem.radius(float(p), 0.5) >= radius for p in p_lower(np.arange(n + 1), n, ALPHA)
    ]
    assert k == (certified.index(True) if any(certified) else None)


def outcomes(question: Question, p: float) -> tuple[float, float, float]:
    """Exactly: the chance of yes, of a reported bound above p, and the mean number of draws, by
    following the counts from look to look."""
    # of the images still open, by draws kept
    weight = np.ones(1)
    draws = 0
    yes = wrong = spent = 0.0
    while weight.sum() > 0:
        then = next_look(draws, question.draws)
        weight = np.convolve(weight, binom.pmf(np.arange(then - draws + 1), then - draws, p))
        draws = then
        kept = np.arange(len(weight), dtype=np.float64)
        stop, bound, radius = question.analyse(kept, draws)
        assert np.all(radius[bound > 0.5] > 0)
        yes += weight[stop & (radius >= question.radius)].sum()
        wrong += weight[stop & (bound > p)].sum()
        spent += draws * weight[stop].sum()
        weight = np.where(stop, 0.0, weight)
        weight[weight < 1e-14] = 0.0
    return yes, wrong, spent


QUESTIONS = [
    Question(GAUSSIAN, 0.25, 0.45, 1000, ALPHA),
    Question(LAPLACE, 0.5, 0.2, 300, 0.05),
]


@pytest.mark.parametrize(
    "question", QUESTIONS, ids=lambda one: f"{one.radius} {one.draws} {one.alpha}"
)
def test_questions_exactly(question: Question) -> None:
    """False answers, bounds above the truth, answers that n draws would have given, and draws."""
    threshold = question.theorem.probability(question.radius, question.level)
    odds = np.array([-2.0, -1e-9, 0.3, 3.0])
    p = 1 / (1 + (1 - threshold) / threshold * np.exp(-odds))
    found = [outcomes(question, one) for one in p.tolist()]
    for one, (yes, wrong, spent) in zip(p.tolist(), found, strict=True):
        assert wrong <= question.alpha * (1 + 1e-9)
        assert one >= threshold or yes <= question.alpha
        assert spent <= question.draws
        certain = bdtrc(question.needed - 1, question.draws, one)  # the last draw says yes
        assert yes >= certain - EARLY * question.alpha - 1e-4
    assert found[0][2] < 0.1 * question.draws, "hopeless images stop at once"
    assert found[-1][2] < 0.5 * question.draws, "easy ones early"
    assert found[-1][0] > 1 - 1e-3


def test_a_bound_depends_on_its_own_count_alone() -> None:
    question = QUESTIONS[0]
    kept = np.arange(300, 401, dtype=np.float64)
    whole = question.analyse(kept, 400)
    for i, k in enumerate(kept.tolist()):
        for all_of_them, alone in zip(whole, question.analyse(np.array([k]), 400), strict=True):
            assert all_of_them[i] == alone[0]
