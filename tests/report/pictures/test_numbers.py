"""The numbers of the pictures are those of the summaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from robaudit.report.pictures.bias import BEST, WORST, classes_of
from robaudit.report.pictures.cost import costs
from robaudit.report.pictures.distribution import MOST_POINTS, band, distributions
from robaudit.report.pictures.groups import one_of
from scipy.stats import spearmanr

from robaudit.errors import NothingLeftError, RobauditError, RunError
from robaudit.quantities import CONFIDENCE, LOG10_P_FAIL, Interval
from robaudit.report.pictures.flagged import sized, worst_of
from robaudit.stats.agreement import MOST_DOTS, MOST_ESTIMATORS, agreement
from robaudit.stats.classes import class_bias
from robaudit.stats.flags import flag
from robaudit.stats.summary import summarise
from tests.levels import sigma
from tests.report.pictures.made import row, run, usual


def test_a_distribution_has_the_means_of_the_summary_and_its_own_shares() -> None:
    made = usual()
    summaries = {(one.key.estimator, one.key.at.level): one for one in summarise(made.rows, made.quantities)}
    found = distributions(made, threshold=0.9)
    assert [(one.estimator, [level.at.level for level in one.levels]) for one in found] == [
        ("mc", [0.05, 0.1]),
        ("logit_gaussian", [0.05, 0.1]),
    ]
    for one in found:
        for level in one.levels:
            summary = summaries[one.estimator, level.at.level]
            assert level.mean == summary.mean
            assert level.beyond == summary.below_ninety
            assert (level.box[0], level.box[2]) == (summary.p05.value, summary.median.value)
            assert level.shares == tuple((i + 1) / 40 for i in range(40))
            assert list(level.values) == sorted(level.values)
            for threshold in level.values:  # the curve is the share of images that are at a value or worse
                values = [r.value for r in made.rows if (r.estimator, r.at.level) == (one.estimator, level.at.level)]
                there = max(s for s, v in zip(level.shares, level.values, strict=True) if v <= threshold)
                assert there == sum(v <= threshold for v in values) / 40


def test_quantities_never_share_a_distribution_and_worse_comes_first() -> None:
    rows = [row(i, -float(i), estimator="splitting", quantity=LOG10_P_FAIL.name) for i in range(4)]
    rows += [row(i, 0.2 * i, estimator="softmax", quantity=CONFIDENCE.name) for i in range(4)]
    rare, score = distributions(run([*rows, row(9, math.nan, estimator="softmax", quantity=CONFIDENCE.name)]))
    assert (rare.quantity.name, rare.levels[0].values) == ("log10_p_fail", (-0.0, -1.0, -2.0, -3.0))
    assert rare.levels[0].beyond.count == 1  # above -0.3
    assert (score.quantity.name, score.levels[0].left_out, score.levels[0].images) == ("confidence", 1, 4)


def test_a_curve_of_many_images_is_thinned_to_its_ends_and_steps_between() -> None:
    values = np.random.default_rng(0).random(5000)
    (one,) = distributions(run(row(i, float(v)) for i, v in enumerate(values)))
    level = one.levels[0]
    ranked = np.sort(values)
    assert len(level.values) == MOST_POINTS
    assert (level.values[0], level.values[-1], level.shares[-1]) == (ranked[0], ranked[-1], 1.0)
    assert all(ranked[round(s * 5000) - 1] == v for s, v in zip(level.shares, level.values, strict=True))
    assert level.mean.value == pytest.approx(values.mean())


def test_the_band_holds_whole_curves() -> None:
    generator, n, repeats = np.random.default_rng(1), 50, 2000
    grid = np.arange(1, n + 1) / n
    values = np.sort(generator.random((repeats, n)), axis=1)  # uniform: the true curve is the diagonal
    off = np.maximum(np.abs(grid - values), np.abs(grid - 1 / n - values)).max(axis=1)
    missed = float((off > band(n)).mean())
    assert missed <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)
    assert band(1) == 1.0


def test_classes_are_those_of_the_bias_report_the_worst_first() -> None:
    made = usual(60, ("taylor", "mc"), (0.05, 0.1))
    found = classes_of(made, ("mc",), (0.05,))
    rows = [r for r in made.rows if (r.estimator, r.at.level) == ("mc", 0.05)]
    assert found.bias == class_bias(rows)
    means = [one.mean.value for one in found.first]
    assert means == sorted(means)
    assert (found.last, found.between, found.others) == ((), 0, 0)
    assert found.overall == summarise(rows)[0].mean


def test_of_many_classes_the_worst_and_the_best_are_shown() -> None:
    found = classes_of(run(row(i, i / 200, label=i // 2, predicted=0) for i in range(200)))
    assert [one.index for one in found.first] == list(range(WORST))
    assert [one.index for one in found.last] == list(range(100 - BEST, 100))
    assert found.between == 100 - WORST - BEST


def test_classes_are_predictions_without_labels_and_in_the_other_direction_the_largest_value_is_the_worst() -> None:
    rows = [row(i, -float(i % 3), label=None, predicted=i % 3, correct=None, quantity=LOG10_P_FAIL.name) for i in range(9)]
    found = classes_of(run(rows))
    assert found.bias.by == "predicted"
    assert [one.index for one in found.first] == [0, 1, 2]


def test_the_group_that_speaks_for_a_run() -> None:
    rows = [
        row(0, 0.9, estimator="softmax", quantity=CONFIDENCE.name, interval=Interval.parse("clopper-pearson")),
        row(0, 0.9, estimator="taylor"),
        row(0, 0.9, estimator="logit_gaussian", interval=Interval.parse("jackknife:approximate")),
        row(0, 0.9, estimator="mine", interval=Interval.parse("clopper-pearson"), level=0.2),
        row(0, 0.9, estimator="mine", interval=Interval.parse("clopper-pearson")),
    ]
    made = run(rows)
    chosen, others = one_of(made)
    assert (chosen.key.estimator, chosen.key.at, others) == ("mine", sigma(0.2), 4)
    chosen, others = one_of(made, ("taylor", "logit_gaussian"))
    assert (chosen.key.estimator, others) == ("logit_gaussian", 1)
    with pytest.raises(RunError, match="has no estimator nothing"):
        one_of(made, ("nothing",))


def test_of_several_noises_the_first_speaks_for_a_run() -> None:
    night = [row(0, 0.4, noise="night", level_name="photons", level=level) for level in (5.0, 100.0)]
    fog = [row(0, 0.9, noise="fog", level_name="severity", level=level) for level in (1.0, 5.0)]
    chosen, others = one_of(run([*night, *fog]))
    assert (str(chosen.key.at), others) == ("night photons 5", 3)
    chosen, _ = one_of(run([*fog, *night]))
    assert str(chosen.key.at) == "fog severity 5"


def test_the_worst_samples_are_those_of_flag_samples() -> None:
    made = usual(30, ("mc",), (0.1,))
    found = worst_of(made, 5, threshold=0.8)
    assert found.flagged == flag(made.rows, below=0.8, bottom=5)
    assert len(found.samples) == 5


def test_agreement_compares_two_by_two_what_both_have() -> None:
    made = usual(50, ("a", "b", "c", "d", "e"), (0.05, 0.1))
    found = agreement(made)
    assert (found.at, found.estimators, found.left, found.levels) == (sigma(0.1), ("a", "b", "c", "d"), ("e",), 2)
    assert len(found.drawn) == MOST_ESTIMATORS * (MOST_ESTIMATORS - 1) // 2
    values = {name: np.array([r.value for r in made.rows if (r.estimator, r.at.level) == (name, 0.1)]) for name in "abcd"}
    assert [(pair.across, pair.up) for pair in found.pairs if pair not in found.drawn] == [("a", "e")]
    for pair in found.drawn:
        assert pair.difference == pytest.approx((values[pair.up] - values[pair.across]).mean())
        assert pair.lower < pair.difference < pair.upper
        assert pair.rank == pytest.approx(spearmanr(values[pair.across], values[pair.up]).statistic)
        assert np.array_equal(pair.x[:, 0], values[pair.across])
    rows = [row(i, 0.1 * i, estimator=name) for i in range(6) for name in ("a", "b") if not (name == "b" and i == 3)]
    (pair,) = agreement(run(rows)).pairs
    assert (pair.images, pair.difference) == (5, 0.0)
    assert pair.rank == pytest.approx(1.0)
    assert np.isnan(pair.x[:, 1:]).all()


def test_agreement_draws_few_of_many_and_never_pools_quantities() -> None:
    values = np.random.default_rng(3).random(2000)
    found = agreement(run(row(i, float(v), estimator=name) for i, v in enumerate(values) for name in ("a", "b")))
    assert (found.pairs[0].images, len(found.pairs[0].x)) == (2000, MOST_DOTS)
    alone = run([row(0, 0.5), row(0, 0.5, estimator="softmax", quantity=CONFIDENCE.name)])
    with pytest.raises(NothingLeftError, match="no two estimators of one quantity"):
        agreement(alone)


def test_costs_are_means_over_images_and_widths_are_of_closed_intervals() -> None:
    rows = [row(i, 0.5, forwards=10 + i, backwards=2, lower=None if i == 3 else 0.5 - 0.1 * i, upper=0.5) for i in range(4)]
    rows += [row(i, 0.5, estimator="taylor") for i in range(4)]
    first, second = costs(run(rows, seconds={"clean": 9.0, "mc@gaussian:sigma=0.1": 2.0, "taylor@gaussian:sigma=0.1": 0.0}))
    assert (first.seconds, first.forwards, first.backwards, first.passes) == (0.5, 11.5, 2.0, 13.5)
    assert first.bounded == 3
    assert first.width == pytest.approx(0.1)
    assert (second.seconds, second.width, second.bounded) == (None, None, 0)


def test_images_keep_their_shape_and_pixels() -> None:
    small = np.linspace(-1, 2, 12, dtype=np.float32).reshape(1, 3, 4)
    big = sized(torch.from_numpy(small))
    assert big.shape == (96, 128, 3)
    assert big[0, 0].tolist() == [0, 0, 0]
    assert big[-1, -1].tolist() == [255, 255, 255]
    assert sized(torch.full((3, 300, 600), 0.5)).shape == (128, 256, 3)
    assert sized(torch.zeros(4, 200, 200)).shape == (200, 200, 3)


def test_a_kind_that_there_is_not_has_a_suggestion() -> None:
    from robaudit.report.pictures.kinds import inline_svg

    with pytest.raises(RobauditError, match="did you mean 'agreement'"):
        inline_svg("agrement", usual(4))
