"""Gates on the scores of radii that are bounds."""

from __future__ import annotations

import pytest

from tests.radius_rows import found, radius
from tests.rows import summarise
from tests.unit.stats.test_censored import LENGTHS, decided


@pytest.mark.parametrize("population", [False, True])
def test_scores_of_upper_bounds_pass_from_above_only(population: bool) -> None:
    """As a mean of the same rows: the true radii may be smaller."""
    many = [found(i, 2.0 + i / 100, 1.0 + i / 50) for i in range(60)]
    one = decided(many, "r_m(norm=l2) >= 1", population=population)
    assert (one.verdict, one.estimate.lower) == ("inconclusive", 0.0)
    assert one.estimate.value == pytest.approx(2.295)
    assert "upper bounds" in one.evidence
    for text, verdict in (
        ("r_m <= 4", "pass"),
        ("r_nu >= 0.1", "inconclusive"),
        ("r_nu >= 9", "fail"),
    ):
        assert decided(many, text, population=population).verdict == verdict, text
    for text in ("relative_variation <= 0.9", "r_squared >= 0.1", "easy_less_hard >= 0"):
        assert decided(many, text, population=population).verdict == "inconclusive", text


def test_scores_of_exact_radii() -> None:
    exact = [radius(i, 2.0 + i / 100, 1.0 + i / 50) for i in range(60)]
    one = decided(exact, "r_m >= 2")
    assert (one.verdict, one.exact) == ("pass", True)
    over = decided(exact, "r_m >= 2.295", population=True)
    (group,) = summarise(exact, LENGTHS)
    assert (over.verdict, over.estimate.bounds) == ("inconclusive", group.mean.population.bounds), (
        "one number has one interval"
    )
    assert decided(exact, "easy_less_hard_r_m >= 0").verdict == "pass"
