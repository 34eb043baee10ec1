"""The overall summary: golden values, grouping, and what is left out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from robaudit.errors import NothingLeftError, RunError
from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.quantities import NO_INTERVAL, Interval, IntervalKind, Quantity
from robaudit.report.numbers import ends
from robaudit.results import Votes
from robaudit.runs.rows import Row
from tests.golden import Golden
from tests.rows import ROW as PLAIN_ROW
from tests.rows import class_bias, summarise
from tests.unit.engine.tools import known

ROW = replace(PLAIN_ROW, lower=0.4, upper=0.97, std_error=0.13, votes=Votes((8, 2)))


def counted(votes: tuple[int, ...], label: int | None, predicted: int, name: str = "a") -> Row:
    """A row of mc."""
    value = votes[predicted] / sum(votes)
    lower, upper = map(float, clopper_pearson(votes[predicted], sum(votes)))
    error = math.sqrt(value * (1 - value) / sum(votes))
    correct = None if label is None else label == predicted
    return replace(
        ROW,
        sample_id=name,
        label=label,
        predicted=predicted,
        correct=correct,
        value=value,
        lower=lower,
        upper=upper,
        std_error=error,
        votes=Votes(votes),
    )


MC = [
    counted((8, 2), 0, 0),
    counted((3, 7), 0, 1),
    counted((10, 0), 0, 0),
    counted((4, 6), None, 0),
]


def test_what_stays_right_and_what_is_repaired() -> None:
    (group,) = summarise([*MC, counted((5, 5), 1, 0), counted((9, 1), 1, 0)])
    noisy = known(group.noisy_accuracy)
    assert (noisy.images, noisy.right) == (5, 2)
    right = np.array([0.8, 1.0])
    wrong = np.array([0.3, 0.5, 0.1])
    for share, shares in ((noisy.stays_right, right), (noisy.repaired, wrong)):
        assert known(share).value == pytest.approx(shares.mean())
        assert known(share).bounds == pytest.approx(mean_interval(shares, 0.0, 1.0))
    written = group.document()["noisy_accuracy"]
    assert written["right"] == 2
    assert written["stays_right"]["value"] == pytest.approx(0.9)
    (all_right,) = summarise(MC[:1])
    assert known(all_right.noisy_accuracy).repaired is None


def test_golden_values() -> None:
    (group,) = summarise(MC)
    values = np.array([0.8, 0.7, 1.0, 0.4])
    assert (group.images, group.not_finite, group.with_interval, group.noted) == (4, 0, 4, 0)
    assert group.mean.value == pytest.approx(0.725)
    assert (
        known(group.mean.population.lower),
        known(group.mean.population.upper),
    ) == mean_interval(values, 0.0, 1.0)
    assert group.mean.measurement_error == pytest.approx(math.sqrt((0.16 + 0.21 + 0.24) / 10) / 4)
    assert (group.mean.measured.lower, group.mean.measured.upper) == pytest.approx(
        tuple(map(float, clopper_pearson(29, 40)))
    )
    assert group.mean.measured.method == "clopper-pearson:pooled"
    assert group.median.value == pytest.approx(0.75)
    assert group.p05.value == pytest.approx(np.quantile(values, 0.05))
    assert group.minimum == 0.4
    assert (
        known(group.below_half).count,
        known(group.below_ninety).count,
        known(group.below_half).total,
    ) == (1, 3, 4)


def test_accuracy_under_noise_is_against_the_label() -> None:
    (group,) = summarise(MC)
    assert (known(group.clean_accuracy).count, known(group.clean_accuracy).total) == (2, 3)
    noisy = known(group.noisy_accuracy)
    assert noisy.images == 3
    assert noisy.value == pytest.approx((0.8 + 0.3 + 1.0) / 3)
    assert noisy.std_error == pytest.approx(math.sqrt((0.16 + 0.21) / 10) / 3)
    assert (noisy.measured.lower, noisy.measured.upper) == pytest.approx(
        tuple(map(float, clopper_pearson(21, 30)))
    )
    (without,) = summarise([replace(MC[0], votes=Votes((20, 0), lost=30))])
    assert known(without.noisy_accuracy).value == pytest.approx(0.4), (
        "copies without a class count against it"
    )


def test_under_noise_that_does_the_same_every_time_the_accuracy_on_these_images_is_exact() -> None:
    once = [
        replace(counted(votes, 0, 0), lower=p, upper=p, interval=Interval(IntervalKind.EXACT))
        for votes, p in (((1, 0), 1.0), ((0, 1), 0.0))
    ]
    (group,) = summarise(once * 2)
    assert group.noisy_accuracy is not None
    assert (group.noisy_accuracy.measured.lower, group.noisy_accuracy.measured.upper) == (0.5, 0.5)
    assert (
        known(group.noisy_accuracy.population.lower)
        < 0.5
        < known(group.noisy_accuracy.population.upper)
    )
    (group,) = summarise(once[:1] * 3)
    assert (
        ends(known(group.noisy_accuracy).measured.lower, known(group.noisy_accuracy).measured.upper)
        == "[1.000, 1.000]"
    )


def test_without_labels_there_is_no_accuracy() -> None:
    (group,) = summarise([replace(row, label=None, correct=None) for row in MC])
    assert group.clean_accuracy is None
    assert group.noisy_accuracy is None


def test_without_votes_the_rows_intervals_are_pooled_and_never_without_width() -> None:
    (group,) = summarise([replace(counted((10, 0), 0, 0), votes=None)] * 3)
    assert group.mean.measured.method == "mover"
    assert group.mean.measured.lower == pytest.approx(1 - (1 - 0.025**0.1) / math.sqrt(3))
    assert group.mean.measurement_error == 0.0


def test_unequal_numbers_of_draws_are_pooled_with_weights() -> None:
    (group,) = summarise([counted((8, 2), 0, 0), counted((800, 200), 0, 0)])
    assert group.mean.measured.method == "weighted votes:pooled"
    assert group.noisy_accuracy is not None
    assert group.noisy_accuracy.measured == group.mean.measured


def test_votes_that_stopped_when_they_had_seen_enough_are_not_pooled() -> None:
    """Even where all stopped at the same number: it depended on what they saw."""
    rows = [
        replace(counted((16, 0), 0, 0, name), interval=Interval.parse("confidence-sequence"))
        for name in "abc"
    ]
    (group,) = summarise(rows)
    assert group.mean.measured.method == "mean of intervals"
    assert group.mean.measurement_error is None
    assert group.noisy_accuracy is None


def test_antithetic_votes_are_not_pooled_as_independent_draws() -> None:
    """32 pairs that agree are worth 32 draws: the errors and intervals say so."""
    paired = replace(
        counted((48, 16), 0, 0),
        interval=Interval.parse("jackknife:approximate"),
        votes=Votes((48, 16), split=0),
    )
    (group,) = summarise([paired, paired])
    assert group.mean.measured.method == "antithetic pairs:pooled"
    assert group.mean.measurement_error == pytest.approx(math.sqrt(2 * 0.1875 / 32) / 2)
    assert group.noisy_accuracy is not None
    assert group.noisy_accuracy.value == 0.75
    assert group.noisy_accuracy.std_error == pytest.approx(group.mean.measurement_error)
    ends = group.noisy_accuracy.measured.lower, group.noisy_accuracy.measured.upper
    assert ends == pytest.approx(tuple(map(float, clopper_pearson(48, 64))))


def test_accuracy_under_noise_needs_the_votes_of_every_labelled_image() -> None:
    (group,) = summarise([counted((8, 2), 0, 0), replace(counted((7, 3), 0, 0), votes=None)])
    assert group.noisy_accuracy is None
    (group,) = summarise([counted((8, 2), 0, 0), replace(counted((7, 3), None, 0), votes=None)])
    assert group.noisy_accuracy is not None


def test_estimators_without_interval_claim_none() -> None:
    taylor = replace(
        ROW,
        estimator="taylor",
        lower=None,
        upper=None,
        std_error=None,
        votes=None,
        interval=NO_INTERVAL,
    )
    (group,) = summarise([taylor, taylor])
    assert (
        group.mean.measured.method,
        group.mean.measured.lower,
        group.mean.measurement_error,
    ) == ("none", None, None)
    assert (group.with_interval, group.median.measured.lower) == (0, None)


def test_groups_keep_the_order_of_the_spec_and_are_never_pooled() -> None:
    kinds = [("taylor", 0.2), ("mc", 0.1), ("taylor", 0.1), ("mc", 0.2)]
    rows = [
        replace(ROW, sample_id=name, estimator=estimator, level=level)
        for name in "ab"
        for estimator, level in kinds
    ]
    rows.append(replace(rows[0], quantity="confidence"))
    keys = [group.key for group in summarise(rows)]
    assert [(key.estimator, key.at.level) for key in keys] == [*kinds, ("taylor", 0.2)]
    assert keys[-1].quantity == "confidence"


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    (group,) = summarise([ROW, replace(ROW, value=math.nan), replace(ROW, value=math.inf)])
    assert (group.images, group.not_finite, group.mean.value) == (1, 2, 0.8)
    assert group.below_ninety is not None
    assert (group.below_ninety.count, group.below_ninety.total) == (1, 1)
    assert (
        known(group.mean.population.lower),
        known(group.mean.population.upper),
    ) == pytest.approx((0.025 * 0.8, 1 - 0.025 * 0.2))
    with pytest.raises(NothingLeftError):
        summarise([replace(ROW, value=math.nan)])


def test_a_foreign_quantity_needs_its_description_and_may_be_unbounded(golden: Golden) -> None:
    rows = [
        replace(ROW, quantity="regret", value=value, lower=None, upper=None) for value in (1.0, 3.0)
    ]
    with pytest.raises(RunError) as error:
        summarise(rows)
    golden(error.value)
    (group,) = summarise(
        rows, {"regret": Quantity("regret", "nats", 0.0, math.inf, higher_is_better=False)}
    )
    assert 0.0 < known(group.mean.population.lower) < 1.0
    assert known(group.mean.population.upper) > 3.0
    assert known(group.median.population.upper) == math.inf
    assert group.document()["median"]["upper"] is None
    assert not group.quantity.higher_is_better


def test_intervals_of_percentiles_cover() -> None:
    """The 5th percentile is the last of eleven images alike: the largest of eleven lower ends is
    often above it."""
    repeats = 40
    true = np.array([0.3] * 11 + [0.9] * 190)
    low = 0
    high = 0
    for seed in range(repeats):
        kept = np.random.default_rng(seed).binomial(50, true)
        (group,) = summarise(
            [counted((k, 50 - k), 0, 0, str(i)) for i, k in enumerate(kept.tolist())]
        )
        low += known(group.p05.measured.lower) > 0.3
        high += known(group.p05.measured.upper) < 0.3
    assert max(low, high) <= repeats * 0.025 + 4 * math.sqrt(repeats * 0.025 * 0.975)


def test_approximations_count_by_the_votes_of_their_copies() -> None:
    """As in gates: the approximation is biased, and its interval does not say by how much."""
    votes = [counted((k, 96 - k), 0, 0, str(k)) for k in (90, 80, 60, 96)]
    fits = [
        replace(
            row,
            value=0.5,
            lower=0.4,
            upper=0.6,
            interval=Interval.parse("jackknife:approximate"),
            estimator="logit_gaussian",
        )
        for row in votes
    ]
    (plain,) = summarise(votes)
    (group,) = summarise(fits)
    assert (group.by_votes, group.approximate, group.with_interval) == (4, 0, 4)
    assert replace(group, key=plain.key, by_votes=0) == plain
    biased = class_bias(fits, permutations=100)
    exact = class_bias(votes, permutations=100)
    assert (biased.by_votes, biased.classes) == (4, exact.classes)
    without = [replace(row, votes=None, estimator="mmse") for row in fits]
    (group,) = summarise(without)
    assert (group.mean.value, group.by_votes, group.approximate) == (0.5, 0, 4)
