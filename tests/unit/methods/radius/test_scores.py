"""Scores of radii: the formulas, linear models, what is left out, what censored images leave open,
and pairs of runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.errors import NothingLeftError, RunError
from robaudit.methods.radius.scores import (
    MEANINGS,
    Radii,
    Score,
    Scores,
    radii_of,
    score_changes,
    scores_of,
    weighted,
)
from robaudit.numerics.margins import ease
from robaudit.quantities import DIFFICULTY, TOLERANCE, Interval
from robaudit.results import CleanImage
from robaudit.runs.rows import Row
from robaudit.stats.bootstrap import REPLICATES, weights
from tests.golden import Golden
from tests.radius_rows import beyond, found, radius, row, run_of
from tests.unit.engine.tools import known

CENSORABLE = (Score.R_M, Score.R_NU, Score.SLOPE, Score.R_MARGIN)


def one(rows: list[Row]) -> Radii:
    (radii,) = radii_of(run_of(rows))
    return radii


def scores(rows: list[Row]) -> Scores:
    return scores_of(one(rows))


def value(given: Scores, score: Score) -> float:
    number = given.values[score].value
    assert number is not None, given.values[score].why
    return number


MIXED = [
    radius(0, 2.0, 4.0, 5.0),
    radius(1, 3.0, 3.0, 6.0),
    radius(2, 9.0, 2.0, 3.0, correct=False),
    radius(3, 0.5, -1.0, 0.25),
    radius(4, 1.0, 1.0, 2.0),
]


def test_formulas() -> None:
    """A misclassified image counts as 0 whatever its row says; a correct one with g <= 0 is in no
    ratio."""
    found_ = scores(MIXED)
    assert value(found_, Score.R_M) == pytest.approx((2 + 3 + 0 + 0.5 + 1) / 5)
    assert value(found_, Score.R_W) == 0
    assert value(found_, Score.R_W_CORRECT) == 0.5
    assert found_.radii.left_out == 1
    assert value(found_, Score.R_NU) == pytest.approx((2 / 4 + 3 / 3 + 0 + 1 / 1) / 4)
    assert value(found_, Score.MEDIAN_RATIO) == 1
    slope = (2 * 4 + 3 * 3 + 1) / (16 + 9 + 1)
    assert value(found_, Score.SLOPE) == pytest.approx(slope)
    rest = (2 - 4 * slope) ** 2 + (3 - 3 * slope) ** 2 + (1 - slope) ** 2
    assert value(found_, Score.R_SQUARED) == pytest.approx(1 - rest / 2)
    assert value(found_, Score.R_MARGIN) == pytest.approx(
        (2 / 5 + 3 / 6 + 0 + 0.5 / 0.25 + 1 / 2) / 5
    )


def test_halves_are_those_of_the_loss_and_the_middle_image_is_in_neither() -> None:
    found_ = scores(MIXED)  # from easy to hard: 0, 1 | 4 | 3, 2
    assert value(found_, Score.R_M_EASY) == 2.5
    assert value(found_, Score.R_M_HARD) == 0.25
    assert value(found_, Score.VARIATION_R_M) == pytest.approx(2.25 / 2.75)
    assert value(found_, Score.R_NU_EASY) == pytest.approx(0.75)
    assert value(found_, Score.R_NU_HARD) == 0
    assert value(found_, Score.VARIATION_R_NU) == 1


def test_the_label_sorts_misclassified_images_where_it_is_known() -> None:
    rows = [
        radius(0, 1.0, 2.0),
        radius(1, 4.0, 0.1),
        radius(2, 7.0, 3.0, correct=False),
        radius(3, 2.0, -3.0),
    ]
    of_label = [
        row(i, g, estimator="difficulty", quantity=DIFFICULTY.name, correct=i != 2)
        for i, g in enumerate((2.0, 0.1, -0.5, -3.0))
    ]
    spec = [{"name": "difficulty", "options": {"target": "label"}}]
    (last,) = radii_of(run_of(rows))
    (sorted_,) = radii_of(run_of([*rows, *of_label], spec))
    assert last.order.tolist() == [2.0, 0.1, -math.inf, -3.0]
    assert sorted_.order.tolist() == [2.0, 0.1, -0.5, -3.0]
    assert value(scores_of(last), Score.R_M_HARD) == 1
    assert value(scores_of(sorted_), Score.R_M_HARD) == 1
    assert sorted_.g.tolist() == [2.0, 0.1, 3.0, -3.0]  # of the class predicted, for the ratios


def test_difficulty_of_another_result() -> None:
    rows = [row(i, r) for i, r in enumerate((1.0, 2.0))]
    assert one(rows).without_difficulty == 2
    undefined = scores(rows)
    assert value(undefined, Score.R_M) == 1.5
    assert undefined.values[Score.R_NU].value is None
    assert (
        undefined.values[Score.R_NU].why
        == "the difficulty of 2 images is unknown: add difficulty to the estimators"
    )
    others = [
        row(i, 4.0, estimator="difficulty", quantity=DIFFICULTY.name, clean=CleanImage(8.0))
        for i in range(2)
    ]
    (known,) = radii_of(run_of([*rows, *others]))
    assert value(scores_of(known), Score.R_NU) == pytest.approx(1.5 / 4)
    assert value(scores_of(known), Score.R_MARGIN) == pytest.approx(1.5 / 8)


def test_golden_of_a_linear_model() -> None:
    """W = [[2, 0], [0, 1], [0, 0]], x = (1, .5): r2 = min (z_0 - z_j) / |w_0 - w_j|."""
    w = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    logits = w @ torch.tensor([1.0, 0.5], dtype=torch.float64)
    r2 = min(float((logits[0] - logits[j]) / (w[0] - w[j]).norm()) for j in (1, 2))
    ((g, margin),) = ease(logits[None], torch.tensor([0]))
    assert r2 == pytest.approx(0.67082039, abs=5e-9)
    assert g == pytest.approx(1.02592302, abs=5e-9)
    found_ = scores([radius(0, r2, g, margin)])
    assert value(found_, Score.R_NU) == pytest.approx(0.67082039 / 1.02592302, rel=1e-7)
    assert value(found_, Score.SLOPE) == pytest.approx(r2 / g)
    assert value(found_, Score.R_MARGIN) == pytest.approx(r2 / 1.5)
    # one image says nothing about others
    assert known(found_.values[Score.R_M].population).lower is None


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(4, 40), st.floats(0.1, 20))
def test_binary_logistic_regression(seed: int, images: int, norm: float) -> None:
    """r = g / |beta| for every correct image: R_nu = accuracy / |beta|, on easy and hard ones
    alike."""
    random = np.random.default_rng(seed)
    score = random.normal(size=images) * 3
    correct = random.random(images) < 0.8
    correct[:2] = True
    rows = [
        radius(i, abs(s) / norm, abs(s), correct=bool(c))
        for i, (s, c) in enumerate(zip(score, correct, strict=True))
    ]
    given_ = scores(rows)
    assert value(given_, Score.R_NU) == pytest.approx(correct.mean() / norm)
    assert value(given_, Score.R_MARGIN) == pytest.approx(correct.mean() / norm)
    assert value(given_, Score.MEDIAN_RATIO) == pytest.approx(1 / norm)
    assert value(given_, Score.SLOPE) == pytest.approx(1 / norm)
    assert value(given_, Score.R_SQUARED) == pytest.approx(1)
    right = scores_of(given_.radii.only_correct())
    assert value(right, Score.VARIATION_R_NU) == pytest.approx(0, abs=1e-12)
    assert known(right.values[Score.VARIATION_R_NU].population).upper == pytest.approx(0, abs=1e-12)


# --- censored images


def test_a_censored_image_leaves_what_it_enters_open_above() -> None:
    rows = [found(0, 1.0, 2.0), found(1, 2.0, 4.0), beyond(2, 3.0, 5.0)]
    given_ = scores(rows)
    for score in CENSORABLE:
        assert given_.values[score].at_least, score
        assert known(given_.values[score].population).upper == math.inf, score
    assert value(given_, Score.R_M) == 2
    assert not given_.values[Score.R_W_CORRECT].at_least  # the others are nearer
    assert value(given_, Score.MEDIAN_RATIO) == 0.5
    assert given_.values[Score.R_SQUARED].why == "undetermined: censored images"
    assert given_.radii.upper_bounds
    variation = given_.values[Score.VARIATION_R_M]
    assert known(variation.measured).lower == pytest.approx((3 - 1) / (3 + 1))
    assert known(variation.measured).upper == 1


def test_a_median_below_the_censored_ratios_is_known() -> None:
    rows = [radius(i, 1.0, 2.0) for i in range(3)] + [
        beyond(9, 30.0, 3.0, estimator="radius_exact:norm=l2", lower=None)
    ]
    median = scores(rows).values[Score.MEDIAN_RATIO]
    assert (median.value, known(median.measured).upper) == (0.5, 0.5)
    assert not median.at_least
    low = [radius(i, 1.0, 2.0) for i in range(3)] + [
        beyond(9, 0.1, 3.0, estimator="radius_exact:norm=l2", lower=None) for _ in range(4)
    ]
    assert scores(low).values[Score.MEDIAN_RATIO].at_least


def test_a_censored_image_that_is_misclassified_opens_nothing() -> None:
    given_ = scores([found(0, 1.0, 2.0), found(1, 2.0, 4.0), beyond(2, 3.0, 5.0, correct=False)])
    assert not any(given_.values[score].at_least for score in Score)
    assert value(given_, Score.R_M) == 1
    assert not given_.radii.censored.any()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 9), st.floats(-3, 9), st.booleans(), st.booleans()),
        min_size=2,
        max_size=12,
    )
)
def test_larger_radii_behind_the_cap_stay_within_what_is_known(
    images: list[tuple[float, float, bool, bool]],
) -> None:
    """Whatever the censored radii really are, the scores are between their measured ends."""
    capped = []
    whole = []
    for i, (r, g, correct, censored) in enumerate(images):
        make = beyond if censored else found
        capped.append(make(i, r, g, correct=correct))
        whole.append(found(i, r * 7 if censored else r, g, correct=correct))
    some = scores(capped)
    true = scores(whole)
    for score in Score:
        measured = some.values[score].measured
        real = true.values[score].value
        if measured is None or measured.bounds is None or real is None:
            continue
        assert measured.bounds[0] - 1e-9 <= real <= measured.bounds[1] + 1e-9, score


def test_replicates_with_censored_images_open_the_interval() -> None:
    """The median of ten ratios is known, but with six in ten of them below the cap, many replicates
    have a censored one in the middle."""
    rows = [found(i, 1.0 + i / 10, 2.0) for i in range(6)] + [
        beyond(9 + i, 3.0, 2.0) for i in range(4)
    ]
    median = scores(rows).values[Score.MEDIAN_RATIO]
    assert known(median.measured).upper == median.value == pytest.approx(0.725)
    assert known(median.population).upper == math.inf
    assert known(known(median.population).lower) < 0.7


def test_measured_radii_give_measured_scores() -> None:
    about: dict[str, Any] = {
        "quantity": TOLERANCE.name,
        "interval": Interval.parse("bisection"),
        "estimator": "noise_tolerance",
    }
    rows = [
        radius(i, r, 2.0, lower=r - 0.1, upper=r + 0.2, **about)
        for i, r in enumerate((1.0, 2.0, 3.0))
    ]
    given_ = scores(rows)
    assert given_.radii.measured
    mean = given_.values[Score.R_M]
    assert (mean.value, known(mean.measured).lower, known(mean.measured).upper) == pytest.approx(
        (2.0, 1.9, 2.2)
    )


# --- what is refused or not defined


def test_every_image_misclassified() -> None:
    given_ = scores([radius(i, 1.0, 2.0, correct=False) for i in range(3)])
    assert value(given_, Score.R_M) == value(given_, Score.R_NU) == value(given_, Score.R_W) == 0
    for score in (
        Score.R_W_CORRECT,
        Score.MEDIAN_RATIO,
        Score.SLOPE,
        Score.R_SQUARED,
        Score.VARIATION_R_M,
    ):
        assert given_.values[score].value is None
        assert given_.values[score].why == "every image is misclassified"


def test_runs_without_labels_or_radii(golden: Golden) -> None:
    with pytest.raises(RunError) as caught:
        radii_of(run_of([row(0, 1.0, label=None, correct=None)]))
    golden(caught.value)
    with pytest.raises(RunError) as caught:
        radii_of(run_of([row(0, 1.0, quantity="p_robust", estimator="mc")]))
    golden(caught.value)
    with pytest.raises(NothingLeftError) as nothing:
        radii_of(run_of([row(0, math.nan)]))
    golden(nothing.value)
    partly = one([radius(0, 1.0, 1.0), row(1, 2.0, label=None, correct=None), row(2, math.nan)])
    assert (partly.unlabelled, partly.not_finite, partly.ids) == (1, 1, ("0",))


def test_every_score_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Score)


# --- the bootstrap


def test_replicates_are_the_same_every_time_and_draw_as_many_images_of_all() -> None:
    blocks = list(weights(7))
    assert sum(map(len, blocks)) == REPLICATES
    assert all((block.sum(1) == 7).all() for block in blocks)
    assert all(abs(block.mean(0) - 1).max() < 0.15 for block in blocks)
    assert all(np.array_equal(a, b) for a, b in zip(blocks, weights(7), strict=True))


def test_scores_of_weights_are_those_of_repeated_images() -> None:
    """A replicate that draws images more than once is the run with those images in it as often."""
    random = np.random.default_rng(3)
    rows = [
        radius(i, float(r), float(g), correct=bool(c))
        for i, (r, g, c) in enumerate(
            zip(*random.random((2, 9)), random.random(9) < 0.7, strict=True)
        )
    ]
    radii = one(rows)
    drawn = next(weights(9))[:20]
    found_ = weighted(radii, drawn, radii.values, radii.values)
    for k, counts in enumerate(drawn):
        again = radii.chosen(np.repeat(np.arange(9), counts.astype(int)).tolist())
        whole = weighted(again, np.ones((1, 9)), again.values, again.values)
        for score, (values, _) in found_.items():
            assert values[k] == pytest.approx(whole[score][0][0], nan_ok=True, rel=1e-9), score


# --- two runs


def test_the_difference_of_two_runs_is_that_of_the_images_they_share() -> None:
    base = one([radius(i, 1.0 + i, 2.0) for i in range(6)])
    new = one([radius(i, 1.5 + i, 2.0) for i in range(2, 8)])
    change = score_changes(base, new)[Score.R_M]
    assert change.images == 4
    assert change.estimate.value == pytest.approx(0.5)
    # paired: all images differ alike
    assert (change.estimate.lower, change.estimate.upper, change.p_value) == pytest.approx(
        (0.5, 0.5, 0.001)
    )
    assert score_changes(base, base)[Score.R_M].p_value == 1.0
    assert score_changes(base.chosen([0]), new.chosen([3])) == {}


def test_p_values_are_those_of_the_intervals() -> None:
    """Under no difference, p <= .05 exactly where the interval excludes 0, which is about one time
    in twenty."""
    random = np.random.default_rng(8)
    small = 0
    for _ in range(20):
        values = random.normal(size=(2, 30)) + 5.0
        base, new = (one([radius(i, float(r), 2.0) for i, r in enumerate(side)]) for side in values)
        change = score_changes(base, new)[Score.R_M]
        assert (known(change.p_value) <= 0.05) == (
            known(change.estimate.lower) > 0 or known(change.estimate.upper) < 0
        )
        small += known(change.p_value) <= 0.05
    assert small <= 20 * 0.075 + 3 * math.sqrt(20 * 0.075)


def test_easy_less_hard_has_a_sign() -> None:
    easier = [radius(i, 4.0 - i, 8.0 - i) for i in range(4)]
    found_ = scores(easier)
    assert value(found_, Score.EASY_LESS_HARD_R_M) == pytest.approx(3.5 - 1.5)
    other = scores([radius(i, 1.0 + i, 8.0 - i) for i in range(4)])
    assert value(other, Score.EASY_LESS_HARD_R_M) == pytest.approx(1.5 - 3.5)
    open_ = scores([*(found(i, 4.0 - i, 8.0 - i) for i in range(3)), beyond(3, 1.0, 5.0)]).values[
        Score.EASY_LESS_HARD_R_M
    ]
    assert known(open_.measured).lower == -math.inf


def test_a_censored_image_opens_the_difference_on_its_side() -> None:
    base = one([found(i, 1.0 + i, 2.0 + i) for i in range(4)])
    new = one([*(found(i, 1.2 + i, 2.0 + i) for i in range(3)), beyond(3, 9.0, 5.0)])
    change = score_changes(base, new)[Score.R_M]
    assert change.estimate.upper == math.inf
    assert known(change.estimate.lower) > -math.inf
    other = score_changes(new, base)[Score.R_M]
    assert other.estimate.lower == -math.inf


def test_a_score_of_one_image_has_no_interval() -> None:
    alone = scores_of(one([radius(0, 1.0, 2.0)])).values
    assert all(
        score.population is None or not score.population.has_interval for score in alone.values()
    )
    ratios = scores_of(
        one([radius(0, 1.0, 2.0), *(radius(i, 1.0, 2.0, correct=False) for i in range(1, 5))])
    ).values
    assert known(ratios[Score.MEDIAN_RATIO].population).ends == (None, None)
    assert ratios[Score.MEDIAN_RATIO].value == 0.5
    assert known(ratios[Score.SLOPE].population).ends == (None, None)
    assert known(ratios[Score.R_M].population).lower is not None


def test_the_smallest_radius_differs_by_an_unknown_amount_where_it_is_censored() -> None:
    base = one([found(i, 1.0 + i, 2.0) for i in range(3)])
    new = one([beyond(i, 4.0, 2.0) for i in range(3)])
    change = score_changes(base, new)[Score.R_W_CORRECT]
    assert (change.estimate.value, change.estimate.lower, change.estimate.upper) == (
        3.0,
        3.0,
        math.inf,
    )
    change = score_changes(new, base)[Score.R_W_CORRECT]
    assert (change.estimate.lower, change.estimate.upper) == (-math.inf, -3.0)
    change = score_changes(base, base)[Score.R_W_CORRECT]
    assert (change.estimate.value, change.estimate.lower, change.estimate.upper) == (
        0.0,
        None,
        None,
    )
