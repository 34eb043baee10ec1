"""Error curves and their summaries: goldens, ends that leave them open, and what cannot be summed
up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import strategies as st

from robaudit.errors import RunError
from robaudit.methods.radius.curves import (
    CUTOFF,
    CurveKind,
    ValueRelation,
    asr,
    curve_changes,
    curves_of,
    ends_at,
    gamma_at_half,
)
from robaudit.methods.radius.curves import ams as ams_of
from robaudit.numerics.image_intervals import Floats
from robaudit.stats.bootstrap import REPLICATES, weights
from tests.curve_rows import attacked, curves_run, fading, noise_rows, noisy, pictured
from tests.golden import Golden
from tests.levels import sigma
from tests.radius_rows import found as radius_found
from tests.unit.engine.tools import known

SHARES = st.floats(0, 1)


def ams(errors: Sequence[float] | Floats, step: float) -> float:
    """Of a curve that ends with its last point."""
    return float(ams_of(np.asarray(errors), len(errors) - 1, step))


# --- the sums


@pytest.mark.parametrize(
    ("errors", "step", "expected"),
    [
        ([0.02, 0.1, 0.4, 0.8, 1], 0.32, 0.7008),
        ([0, 0, 0, 1], 0.025, 0.0625),
        ([1.0], 0.32, 0.0),
        ([0.0, 1.0], 0.32, 0.16),
    ],
)
def test_asr(errors: Sequence[float], step: float, expected: float) -> None:
    assert asr(errors, step) == pytest.approx(expected, abs=1e-12)


def test_ams_golden() -> None:
    assert ams([0.02, 0.1, 0.4, 0.7, 0.88], 0.32) == pytest.approx(0.61404039, abs=5e-9)


def test_ams_is_never_negative() -> None:
    """A curve that ends below where it began would sum up to less than no noise at all."""
    assert ams([0.6, 0.8, 0.2], 0.32) == 0.0
    run = curves_run(noise_rows([[3, 4, 3], [4, 4, 4], [0, 1, 0]], wrong=(0, 1)))
    summary = curves_of(run)[CurveKind.NOISE].summary
    assert (summary.value, summary.relation, known(summary.estimate).lower) == (
        0.0,
        ValueRelation.AT_LEAST,
        0.0,
    )


def test_ams_where_nothing_rises() -> None:
    assert math.isnan(ams([0.1, 0.1, 0.05], 0.32))
    assert ams([1.0, 1.0], 0.32) == 0.0, "nothing is classified correctly without noise"
    assert math.isnan(ams([0.0], 0.32))


@pytest.mark.parametrize(
    ("errors", "classes", "expected"),
    [
        ([0.02, 0.5, 0.87, 0.9], 10, 2),
        ([0.02, 0.5, 0.8699], 10, -1),
        ([0.95, 0.1, 0.9], 10, 2),
        ([0.1, 0.47], 2, 1),
        ([0.5], 10, -1),
    ],
)
def test_the_rule_that_ends_a_noise_curve(
    errors: Sequence[float], classes: int, expected: int
) -> None:
    """The first error of at least (C - 1) / C - .03; the clean one does not count."""
    assert ends_at(np.array(errors), classes) == expected
    assert CUTOFF == 0.03


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        ([1.0, 0.8, 0.2, 0.0], 0.75 - 0.25 * 0.5),
        ([1.0, 0.5, 0.2, 0.0], 0.75),
        ([0.9, 0.4, 0.9, 0.1], 1 - 0.25 * 0.8),
        ([0.4, 0.9, 0.1, 0.0], math.inf),
        ([0.9, 0.8, 0.7, 0.5], -math.inf),
        ([0.6, 0.6, 0.6, 0.4], 0.5 - 0.25 * 0.5),
    ],
)
def test_gamma(accuracy: Sequence[float], expected: float) -> None:
    assert float(
        gamma_at_half(np.array([1.0, 0.75, 0.5, 0.25]), np.array(accuracy))
    ) == pytest.approx(expected)


# --- from rows


def test_an_adversarial_curve() -> None:
    """Four images: misclassified, changed in the first, the third and the third ball."""
    run = curves_run(
        [attacked(0, 5, correct=False), attacked(1, 1), attacked(2, 3), attacked(3, 3)]
    )
    curve = curves_of(run)[CurveKind.L2]
    assert curve.places.tolist() == [0.0, 0.32, 0.64, 0.96]
    assert curve.errors.tolist() == [0.25, 0.5, 0.5, 1.0]
    assert curve.summary.value == pytest.approx(asr(curve.errors, 0.32))
    assert curve.summary.value == pytest.approx(0.32 * (0 + 0.5 + 2.5 + 2.5) / 4)
    assert curve.summary.relation is ValueRelation.IS
    assert (curve.images, curve.unlabelled, curve.draws) == (4, 0, 0)


def test_images_that_nothing_changes_count_as_the_cap() -> None:
    run = curves_run([attacked(0, 1), attacked(1, 2), attacked(2, 0, cap=4), attacked(3, 0, cap=4)])
    curve = curves_of(run)[CurveKind.L2]
    assert curve.errors.tolist() == [0, 0.25, 0.5, 0.5, 0.5]
    summary = curve.summary
    assert summary.relation is ValueRelation.AT_LEAST
    assert summary.value == pytest.approx(0.32 * (0.5 + 1.5 + 4 + 4) / 4)
    assert known(summary.estimate).upper == math.inf
    assert known(known(summary.estimate).lower) < known(summary.value)


def test_a_misclassified_image_is_an_error_from_the_start_whether_attacks_succeed_or_not() -> None:
    for row in (attacked(0, 4, correct=False), attacked(0, 0, cap=9, correct=False)):
        curve = curves_of(curves_run([row, attacked(1, 2)]))[CurveKind.L2]
        assert curve.errors.tolist() == [0.5, 0.5, 1.0]
        assert curve.summary.relation is ValueRelation.IS


def test_one_image_has_no_intervals() -> None:
    run = curves_run([attacked(0, 2), *noise_rows([[1], [5]]), noisy(0, fading(1.0), 0)])
    for curve in curves_of(run).values():
        assert curve.summary.value is not None
        assert (known(curve.summary.estimate).lower, known(curve.summary.estimate).upper) == (
            None,
            None,
        )
        assert np.array_equal(curve.lower, curve.errors)


def test_images_without_a_label_are_left_out(golden: Golden) -> None:
    run = curves_run([attacked(0, 2), attacked(1, 4), attacked(2, 1, labelled=False)])
    curve = curves_of(run)[CurveKind.L2]
    assert (curve.images, curve.unlabelled) == (2, 1)
    assert curve.errors[-1] == 1
    with pytest.raises(RunError) as caught:
        curves_of(curves_run([attacked(0, 2, labelled=False)]))
    golden(caught.value)


def test_a_noise_curve() -> None:
    """It ends at the first error of 87 % or more."""
    rows = noise_rows([[0, 1, 0, 1], [2, 3, 1, 2], [5, 5, 4, 4], [5, 5, 5, 5]])
    curve = curves_of(curves_run(rows))[CurveKind.NOISE]
    expected = [0, 2 / 20, 8 / 20, 18 / 20, 1.0]
    assert np.allclose(curve.errors, expected)
    assert curve.used == 4, "the error of .9 ends it, and the clean point is one"
    assert curve.summary.value == pytest.approx(ams(expected[:4], 0.32))
    assert curve.summary.relation is ValueRelation.IS
    assert curve.draws == 5


def test_errors_are_relative_to_the_label() -> None:
    """A misclassified image whose copies all go to its label adds no error under noise."""
    rows = [noisy(0, sigma(0.32), 5, correct=False), noisy(1, sigma(0.32), 0)]
    curve = curves_of(curves_run(rows))[CurveKind.NOISE]
    assert curve.errors.tolist() == [0.5, 0.5]


def test_a_noise_curve_that_never_comes_near_chance() -> None:
    rows = noise_rows([[0, 1], [2, 3]])
    curve = curves_of(curves_run(rows))[CurveKind.NOISE]
    assert curve.summary.relation is ValueRelation.AT_LEAST
    assert curve.summary.value == pytest.approx(ams([0, 0.1, 0.5], 0.32))
    assert curve.used == 3
    flat = curves_of(curves_run(noise_rows([[0, 0], [0, 0]])))[CurveKind.NOISE].summary
    assert flat.value is None
    assert flat.why == "noise up to sigma 0.64 adds no errors"


def test_a_linear_curve() -> None:
    rows = [
        noisy(i, fading(share), right)
        for share, right in ((0.25, 5), (0.5, 4), (0.75, 1), (1.0, 0))
        for i in range(3)
    ]
    curve = curves_of(curves_run(rows))[CurveKind.LINEAR]
    assert curve.places.tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert np.allclose(curve.errors, [0, 0, 0.2, 0.8, 1.0])
    assert curve.summary.value == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("wrong", "right", "value", "relation"),
    [(True, 0, 1.0, ValueRelation.AT_LEAST), (False, 5, 0.5, ValueRelation.AT_MOST)],
)
def test_an_accuracy_that_does_not_cross_one_half(
    wrong: bool, right: int, value: float, relation: ValueRelation
) -> None:
    rows = [noisy(i, fading(0.5), right, correct=not wrong) for i in range(3)]
    summary = curves_of(curves_run(rows))[CurveKind.LINEAR].summary
    assert (summary.value, summary.relation) == (value, relation)
    assert (
        0
        <= known(known(summary.estimate).lower)
        <= value
        <= known(known(summary.estimate).upper)
        <= 1
    )


def test_the_intervals_are_those_of_the_bootstrap_by_brute_force() -> None:
    """Each replicate: the images drawn, the whole curve made of them, and its sum."""
    balls = [1, 1, 2, 3, 4, 6, 2, 2]
    rows = [attacked(i, ball, correct=i != 3) for i, ball in enumerate(balls)]
    lost = [[0, 1, 0, 1, 2, 0, 0, 3], [2, 3, 1, 2, 5, 4, 1, 5], [5, 5, 4, 4, 5, 5, 3, 5], [5] * 8]
    found = curves_of(curves_run([*rows, *noise_rows(lost, wrong=(3,))]))
    drawn = np.concatenate([*weights(8)]).astype(int)
    assert len(drawn) == REPLICATES
    attacks = []
    noises = []
    for one in drawn:
        images = np.repeat(np.arange(8), one)
        errors = [np.mean([i == 3 or balls[i] <= j for i in images]) for j in range(7)]
        attacks.append(asr(errors, 0.32))
        noise = [
            np.mean(images == 3),
            *(np.mean([of_level[i] / 5 for i in images]) for of_level in lost),
        ]
        end = next(j for j, error in enumerate(noise) if j and error >= 0.87 - 1e-9)
        noises.append(ams(noise[: end + 1], 0.32))
    for kind, values in ((CurveKind.L2, attacks), (CurveKind.NOISE, noises)):
        ranked = np.sort(values)
        summary = found[kind].summary
        assert known(summary.estimate).lower == pytest.approx(
            ranked[math.ceil(0.025 * REPLICATES - 1e-9) - 1]
        )
        assert known(summary.estimate).upper == pytest.approx(
            ranked[math.ceil(0.975 * REPLICATES - 1e-9) - 1]
        )


# --- which rows


def test_all_curves_of_a_run_and_a_choice_of_them() -> None:
    run = pictured()
    assert list(curves_of(run)) == list(CurveKind)
    assert list(curves_of(run, estimators=["mc"])) == [CurveKind.NOISE, CurveKind.LINEAR]
    document = curves_of(run)[CurveKind.L2].document()
    assert document["summary"]["relation"] == ">="
    assert document["summary"]["upper"] is None


def test_levels_that_are_no_grid_make_no_noise_curve(golden: Golden) -> None:
    rows = [noisy(0, sigma(level), 3) for level in (0.1, 0.25)]
    with pytest.raises(RunError) as caught:
        curves_of(curves_run(rows))
    golden(caught.value)
    assert CurveKind.NOISE in curves_of(
        curves_run([noisy(0, sigma(level), 3) for level in (0.1, 0.2, 0.3)])
    )


def test_other_noise_and_other_radii_are_no_curves(golden: Golden) -> None:
    with pytest.raises(RunError) as caught:
        curves_of(
            curves_run([radius_found(0, 1.0), noisy(0, sigma(0.1), 5)], {"gaussian": "laplace"})
        )
    golden(caught.value)


# --- two runs


def test_curves_of_two_runs_differ_on_the_images_that_both_have() -> None:
    base, new = (
        [attacked(i, at + k, correct=i != 0) for i, at in enumerate((1, 1, 2, 3, 4))]
        for k in (0, 1)
    )
    changes = curve_changes(curves_run(base), curves_run(new[1:]))
    (change,) = changes.values()
    assert change.images == 4
    assert change.estimate.value == pytest.approx(0.32)
    assert (change.estimate.lower, change.estimate.upper, change.p_value) == pytest.approx(
        (0.32, 0.32, 0.001)
    ), "paired: all images differ alike"
    same = curve_changes(curves_run(base), curves_run(base))[CurveKind.L2]
    assert (same.estimate.value, same.estimate.lower, same.estimate.upper, same.p_value) == (
        0.0,
        0.0,
        0.0,
        1.0,
    )


def test_a_noise_curve_that_does_not_end_opens_its_difference() -> None:
    ended = curves_run(noise_rows([[0, 1, 0], [3, 3, 2], [5, 5, 5]]))
    early = curves_run(noise_rows([[0, 1, 0], [1, 1, 0], [2, 1, 1]]))
    change = curve_changes(ended, early)[CurveKind.NOISE]
    assert change.estimate.upper == math.inf, "the new curve may rise at any later level"
    assert known(change.estimate.lower) < change.estimate.upper
