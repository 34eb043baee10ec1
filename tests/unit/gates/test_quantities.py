"""Each quantity against numbers reckoned by hand, for these images and for the population."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import bdtr, betaincinv, ndtri, stdtrit

from robaudit.gates.decide import Decision, decide
from robaudit.numerics.intervals import mean_interval, weighted_share
from robaudit.quantities import Interval
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.stats.summary import summary_of
from tests.unit.engine.tools import known
from tests.unit.gates.tools import gate, row, run_of, votes

KEPT = [100, 90, 80, 60, 30, 100, 95, 85, 70, 10]
LABELS = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


@pytest.fixture(scope="module")
def run() -> Run:
    """Ten images of two classes with 100 votes each."""
    return run_of(votes(KEPT, 100, LABELS), names=["cat", "dog"])


def one(run: Run, text: str, **options: Any) -> Decision:
    (found,) = decide(run, [gate(text)], **options)
    return found


def exact(k: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    return float(betaincinv(k, n - k + 1, tail)), float(betaincinv(k + 1, n - k, 1 - tail))


def ends(found: Decision) -> tuple[float, float]:
    return known(found.estimate.lower), known(found.estimate.upper)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_mean_of_equal_draws_pools_the_votes(run: Run, confidence: float) -> None:
    found = one(run, "mean >= 0.7", confidence=confidence)
    assert found.estimate.value == pytest.approx(0.72)
    assert ends(found) == pytest.approx(exact(720, 1000, confidence))
    assert (found.estimate.method, found.estimate.covers, found.confidence) == (
        "clopper-pearson:pooled",
        "measurement",
        confidence,
    )
    assert (found.gate.estimator, found.gate.level) == ("mc", 0.1)


def test_mean_of_unequal_draws_weighs_the_votes(run: Run) -> None:
    found = one(run_of([*run.rows, *votes([40], 50)]), "mean >= 0.7", confidence=0.99)
    assert found.estimate.method == "weighted votes:pooled"
    expected = weighted_share([sum(KEPT), 40], [1000, 50], [1 / 100, 1 / 50], 0.99)
    assert ends(found) == pytest.approx(expected)


def test_mean_of_values_without_votes_is_mover(run: Run) -> None:
    rows = [replace(each, votes=None) for each in run.rows]
    found = one(run_of(rows), "mean >= 0.7")
    distance = math.sqrt(sum((r.value - (r.lower or 0)) ** 2 for r in rows)) / 10
    assert found.estimate.method == "mover"
    assert found.estimate.value - ends(found)[0] == pytest.approx(distance)
    wide = one(run_of(rows), "mean >= 0.7", confidence=0.99)
    assert wide.estimate.value - ends(wide)[0] == pytest.approx(
        distance * ndtri(0.995) / ndtri(0.975)
    )


def test_mean_over_the_population_is_student_s(run: Run) -> None:
    found = one(run, "mean >= 0.7", population=True)
    assert ends(found) == pytest.approx(mean_interval(np.array(KEPT) / 100, 0, 1))
    assert found.estimate.covers == "population"


def test_median_by_ranks(run: Run) -> None:
    """It lies halfway between the 5th and the 6th value, and half of the error goes to each. Half
    of that goes to intervals that all images keep at once; they are nearer than the ends of the
    ranks that two misses leave."""
    found = one(run, "median >= 0.5")
    assert found.estimate.value == pytest.approx(0.825)
    each = 0.025 / 2 / (2 * 10)
    lower = (betaincinv(80, 21, each) + betaincinv(85, 16, each)) / 2
    upper = (betaincinv(81, 20, 1 - each) + betaincinv(86, 15, 1 - each)) / 2
    assert ends(found) == pytest.approx((lower, upper), rel=1e-6)


@pytest.mark.parametrize("population", [False, True])
def test_the_summary_has_the_numbers_of_the_gates(population: bool) -> None:
    """Also where rows have an approximation and votes."""
    fit: dict[str, Any] = {
        "interval": Interval.parse("jackknife:approximate"),
        "estimator": "logit_gaussian",
    }
    fits = [
        replace(
            found,
            value=found.value / 2,
            lower=0.0,
            upper=1.0,
            votes=Votes(known(found.votes).counts, split=0),
            **fit,
        )
        for found in votes(KEPT, 100, LABELS)
    ]
    for rows in (votes(KEPT, 100, LABELS), fits):
        run = run_of(rows)
        (group,) = summary_of(run)
        for text, found in (
            ("mean >= 0.5", group.mean),
            ("median >= 0.5", group.median),
            ("p05 >= 0.5", group.p05),
        ):
            decision = one(run, text, population=population)
            shown = (
                (known(found.population.lower), known(found.population.upper))
                if population
                else (found.measured.lower, found.measured.upper)
            )
            assert (decision.estimate.value, *ends(decision)) == pytest.approx(
                (found.value, *map(known, shown))
            )
        decision = one(run, "share_below(t=0.5) <= 0.5", population=population)
        assert decision.estimate.value == known(group.below_half).value


def test_the_share_of_a_single_image_has_a_lower_end_of_zero() -> None:
    found = one(run_of(votes([0], 100)), "share_below(t=0.5) >= 0.5", population=True)
    assert ends(found) == (0.0, 1.0)


def test_p05_between_two_far_values_lies_between_their_bounds() -> None:
    """Between the 5th (300 of 1000 votes) and the 6th value (999), at 95 % of the way."""
    found = one(run_of(votes([300] * 5 + [999] * 95, 1000)), "p05 >= 0.9")
    assert found.estimate.value == pytest.approx(0.96405)
    assert found.verdict == "pass"
    lower, upper = ends(found)
    assert 0.94 < lower < found.estimate.value < upper < 0.97


def test_median_of_images_without_votes_by_ranks() -> None:
    """Of 5 intervals 2 or more miss with a chance below a quarter of the error, of 6 3 or more.
    That all of them hold at once is nearer for the 6th value."""
    rows = [row(i, i / 10, i / 10 - 0.04, i / 10 + 0.04) for i in range(10)]
    each = 0.025 / 4
    assert 1 - bdtr(1, 5, 0.025) < each < 1 - bdtr(1, 6, 0.025)
    wide = 0.04 * stdtrit(3, 1 - each / 10) / stdtrit(3, 0.975)
    assert ends(one(run_of(rows), "median >= 0.5")) == pytest.approx(
        ((0.26 + 0.5 - wide) / 2, (0.64 + 0.4 + wide) / 2)
    )


def test_p05_of_few_images_has_no_lower_end_over_the_population(run: Run) -> None:
    found = one(run, "p05 >= 0.03", population=True)
    assert ends(found)[0] == 0.0
    assert found.estimate.value == pytest.approx(0.19)
    assert found.verdict == "inconclusive"
    assert found.more is not None


def test_share_below_counts_whole_intervals(run: Run) -> None:
    found = one(run, "share_below(t=0.5) <= 0.2")
    assert found.estimate.value == pytest.approx(0.2)
    assert ends(found)[0] == pytest.approx(0.2)  # of two even the widest intervals are below it
    assert ends(found)[1] == pytest.approx(0.3)  # and of seven above it
    assert ends(one(run, "share_below(t=0.5) <= 0.2", population=True))[1] > 0.5


def test_worst_class_and_gap_take_all_classes_at_once(run: Run) -> None:
    found = one(run, "worst_class >= 0.7")
    assert found.estimate.value == pytest.approx(0.72)
    ordinary = run_of(
        votes([100, 90, 80, 60, 30, 100, 95, 85, 90, 70], 100, LABELS), names=["cat", "dog"]
    )
    found = one(ordinary, "worst_class >= 0.7")
    low = exact(360, 500, 0.975)
    high = exact(440, 500, 0.975)
    assert (found.estimate.value, *ends(found)) == pytest.approx((0.72, low[0], low[1]))
    assert [(part.index, part.name, part.images) for part in found.classes] == [
        (0, "cat", 5),
        (1, "dog", 5),
    ]
    assert found.classes[1].estimate.lower == pytest.approx(high[0])
    assert found.about == "these 5 images of class cat"
    gap = one(ordinary, "class_gap <= 0.1")
    assert (gap.estimate.value, *ends(gap)) == pytest.approx(
        (0.16, high[0] - low[1], high[1] - low[0])
    )
    spread = one(ordinary, "class_gap <= 0.1", population=True)
    assert ends(spread)[0] == 0.0
    assert (gap.about, spread.about) == (
        "these 5 images of class cat and 5 of class dog",
        "images like these 5 of class cat and 5 of class dog",
    )
    assert spread.classes[0].estimate.lower == pytest.approx(
        mean_interval([1, 0.9, 0.8, 0.6, 0.3], 0, 1, 0.975)[0]
    )


def test_classes_are_predictions_without_labels() -> None:
    rows = votes([90, 80], 100, [None, None])
    rows += [row(7, 0.5, 0.4, 0.6, label=None, correct=None, predicted=3)]
    found = one(run_of(rows), "worst_class >= 0.5")
    assert [(part.index, part.images) for part in found.classes] == [(3, 1), (0, 2)]


def test_accuracy_is_exact_for_these_images(run: Run) -> None:
    rows = [*run.rows[:9], row(9, 0.1, 0.05, 0.2, label=1, predicted=0, correct=False)]
    found = one(run_of(rows), "accuracy >= 0.9")
    assert (
        found.estimate.value,
        found.estimate.lower,
        found.estimate.upper,
        found.estimate.method,
        found.verdict,
    ) == (
        0.9,
        0.9,
        0.9,
        "exact",
        "pass",
    )
    assert found.gate.estimator is None
    assert ends(one(run_of(rows), "accuracy >= 0.9", population=True)) == pytest.approx(
        exact(9, 10)
    )


def test_noisy_accuracy_pools_the_votes_for_the_labels(run: Run) -> None:
    found = one(run, "noisy_accuracy >= 0.5")
    assert (found.estimate.value, *ends(found)) == pytest.approx((0.72, *exact(720, 1000)))
    unequal = run_of([*run.rows, *votes([40], 50)])
    assert one(unequal, "noisy_accuracy >= 0.5").estimate.method == "weighted votes:pooled"
    assert ends(one(unequal, "noisy_accuracy >= 0.5", population=True))[0] < 0.6


def rare(
    values: list[float], bounds: list[tuple[float | None, float | None]] | None = None
) -> list[Row]:
    near = bounds or [(v - 0.1, v + 0.1) for v in values]
    kind: dict[str, Any] = {
        "quantity": "log10_p_fail",
        "estimator": "splitting",
        "interval": Interval.parse("lognormal:4 repeats"),
    }
    return [row(i, v, *near[i], label=i % 2, **kind) for i, v in enumerate(values)]


def test_where_lower_is_better_the_bad_end_is_meant() -> None:
    run = run_of(rare([-2.0, -3.0, -4.0, -5.0, -6.0, -7.0]))
    found = one(run, "p05 <= -2")
    assert found.estimate.value == pytest.approx(np.quantile([-2, -3, -4, -5, -6, -7], 0.95))
    assert "the bad end is the high end" in found.evidence
    found = one(run, "worst_class <= -3")
    assert found.estimate.value == pytest.approx(-4.0)
    assert [part.value for part in found.classes] == [-4.0, -5.0]
    assert ends(found)[0] < -4.0 < ends(found)[1]
    found = one(run, "share_below(t=-4.5) <= 0.6")
    assert found.estimate.value == pytest.approx(0.5)
    assert ends(found) == (0.5, 0.5)
    assert one(run, "class_gap <= 3").estimate.value == pytest.approx(1.0)


def test_an_image_without_a_lower_bound_leaves_that_side_open() -> None:
    run = run_of(rare([-2.0, -3.0, -12.0], [(-2.1, -1.9), (-3.1, -2.9), (None, -11.0)]))
    found = one(run, "mean <= -5")
    assert ends(found)[0] == -math.inf
    assert found.verdict == "pass"
    assert one(run, "mean >= -6").verdict == "inconclusive"
    assert one(run, "mean >= -6", population=True).verdict == "inconclusive"


def test_a_population_has_no_mean_on_the_side_where_its_range_has_no_end() -> None:
    run = run_of(rare([-3.0 + i / 1000 for i in range(30)]))
    found = one(run, "mean <= -3.1", population=True)
    assert (ends(found)[0], found.verdict, found.more) == (-math.inf, "inconclusive", None)
    assert "median and p05 have one" in found.evidence
    assert one(run, "mean <= -2.5", population=True).verdict == "pass"
    assert ends(one(run, "worst_class <= -3.1", population=True))[0] == -math.inf
    assert ends(one(run, "class_gap <= 3", population=True)) == (0.0, math.inf)
    assert one(run, "median <= -3.1", population=True).verdict == "fail"
    assert "median and p05" not in one(run, "mean <= -3.1").evidence


def test_classes_of_a_population_share_the_error() -> None:
    """Eight classes have .05/8 each; five values at 1 have the bound of Clopper and Pearson."""
    found = one(
        run_of(votes([100] * 40, 100, list(range(8)) * 5)), "worst_class >= 0.5", population=True
    )
    lower, upper = ends(found)
    assert (lower, upper) == pytest.approx(((0.05 / 8 / 2) ** (1 / 5), 1.0))
    assert found.estimate.method == "simultaneous over 8 classes, Gaffke's bounds over images"


def test_images_without_a_label_are_in_no_class_and_that_is_said() -> None:
    rows = votes([99] * 5 + [5] * 94, 100, [0] * 5 + [None] * 94)
    rows.append(row(99, math.nan, label=None, correct=None))
    assert (
        "95 of 100 images have no label and are in no class"
        in one(run_of(rows), "worst_class >= 0.8").evidence
    )
    assert "no class" not in one(run_of(rows), "mean >= 0.8").evidence


def test_a_gap_sets_no_class_against_itself() -> None:
    """Class 0 is hardly known, class 1 well: the gap is at most that of one to the other."""
    rows = [
        row(0, 0.5, 0.1, 0.9, label=0),
        *(row(i, 0.5, 0.49, 0.51, label=1) for i in range(1, 5)),
    ]
    parts = {part.index: part for part in one(run_of(rows), "worst_class >= 0").classes}
    (low, high), (least, most) = (
        (float(parts[i].estimate.lower or 0), float(parts[i].estimate.upper or 0)) for i in (0, 1)
    )
    assert ends(one(run_of(rows), "class_gap <= 0.9")) == pytest.approx(
        (0.0, max(high - least, most - low))
    )
    assert high - least < high - low


def test_images_without_a_value_may_have_any(run: Run) -> None:
    rows = [*votes([100] * 8, 100, [0, 1] * 4), *(row(8 + i, math.nan, label=1) for i in range(2))]
    broken = run_of(rows)
    lower = float(betaincinv(800, 1, 0.025))
    found = one(broken, "mean >= 0.9")
    assert found.estimate.value == 1.0
    assert ends(found) == pytest.approx((0.8 * lower, 1.0))
    assert found.verdict == "inconclusive"
    assert "2 of 10 images have no finite value" in found.evidence
    assert one(broken, "share_below(t=0.5) <= 0.1").verdict == "inconclusive"
    assert ends(one(broken, "p05 >= 0.1"))[0] == 0.0
    assert one(broken, "worst_class >= 0.9").verdict == "inconclusive"
    assert one(broken, "mean >= 0.95", population=True).verdict == "inconclusive"


def test_images_that_stopped_by_themselves_count_with_their_ends() -> None:
    rows = [
        row(i, 0.8, 0.7, 0.85, interval=Interval.parse("confidence-sequence")) for i in range(20)
    ]
    found = one(run_of(rows), "mean >= 0.75")
    assert (found.estimate.method, found.verdict, found.more) == (
        "mean of intervals",
        "inconclusive",
        None,
    )
    assert ends(found) == pytest.approx((0.7, 0.85))
    assert "stopped adaptively" in found.evidence


def test_sequences_promise_both_sides_together_only() -> None:
    """Each side of theirs may miss with .05, so that more of them are discounted than of other
    intervals; they are never stretched less."""
    sure = [row(i, 0.8, 0.7, 0.81) for i in range(20)]
    lean = [
        row(i, 0.8, 0.7, 0.85, interval=Interval.parse("confidence-sequence")) for i in range(20)
    ]
    assert ends(one(run_of(sure), "share_below(t=0.9) >= 0.5"))[0] == 1.0
    assert ends(one(run_of(lean), "share_below(t=0.9) >= 0.5"))[0] == pytest.approx(19 / 20)
    assert ends(one(run_of(lean), "mean >= 0.75", confidence=0.8)) == pytest.approx((0.7, 0.85))


def test_the_share_of_a_population_is_corrected_for_images_that_look_like_it() -> None:
    """r is at least Clopper-Pearson's end of 20 of 40; of the images that are not below t, .025
    look like it: s >= (r - .025)/.975."""
    rows = [row(i, v, v - 0.01, v + 0.01) for i, v in enumerate([0.3] * 20 + [0.7] * 20)]
    low = exact(20, 40)[0]
    share = (low - 0.025) / 0.975
    assert ends(one(run_of(rows), "share_below(t=0.5) <= 0.5", population=True)) == pytest.approx(
        (share, 1 - share)
    )
