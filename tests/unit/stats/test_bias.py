"""Class bias: golden values, what is tested and what is said."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.numerics.intervals import mean_interval
from robaudit.quantities import Quantity
from robaudit.runs.rows import Row
from robaudit.runs.table import Columns
from robaudit.stats import class_differences
from tests.golden import Golden
from tests.rows import ROW, class_bias
from tests.unit.engine.tools import known


def rows_of(classes: dict[int | None, list[float]]) -> list[Row]:
    """Rows with these values, by label, in turns."""
    rows = [
        (i, label, value) for label, values in classes.items() for i, value in enumerate(values)
    ]
    return [
        replace(ROW, sample_id=f"{label}-{i}", label=label, value=value)
        for i, label, value in sorted(rows, key=lambda r: r[0])
    ]


def planted(gap: float, classes: int = 10, each: int = 40, seed: int = 0) -> list[Row]:
    generator = np.random.default_rng(seed)
    return rows_of(
        {
            k: list(generator.beta(8, 2, each) - (gap if k == 3 else 0.0) * 0.8)
            for k in range(classes)
        }
    )


def test_golden_values() -> None:
    bias = class_bias(
        rows_of({0: [0.5, 0.7, 0.9, 1.0], 2: [0.1, 0.3], 5: [0.6]}),
        class_names=["cat", "dog", "cow"],
    )
    cat, cow, nameless = bias.classes
    assert [(one.index, one.name, one.images) for one in bias.classes] == [
        (0, "cat", 4),
        (2, "cow", 2),
        (5, None, 1),
    ]
    assert cat.mean.value == pytest.approx(0.775)
    assert (known(cat.mean.population.lower), known(cat.mean.population.upper)) == mean_interval(
        [0.5, 0.7, 0.9, 1.0], 0.0, 1.0
    )
    assert known(cat.difference).value == pytest.approx(0.575)
    assert known(cow.difference).value == pytest.approx(-0.575)
    # the interval of the three others reaches farther than the test
    everyone = [
        0.5,
        0.7,
        0.9,
        1.0,
        0.1,
        0.3,
        0.6,
    ]
    others = (mean_interval(everyone, 0.0, 1.0, 0.975)[1] - fmean(everyone)) * 7 / 3
    assert known(cat.difference).lower == pytest.approx(0.575 - others)
    assert cat.mean.measurement_error == pytest.approx(0.05 / 2)
    assert [q.value for q in (cat.q25, cat.median, cat.q75)] == pytest.approx([0.65, 0.8, 0.925])
    assert (known(cat.below).count, known(cow.below).count) == (2, 2)
    assert nameless.p_value is None
    assert (nameless.differs, nameless.difference) == (None, None)
    assert (known(bias.gap).least, known(bias.gap).most) == (2, 0)
    assert known(bias.gap).value == pytest.approx(0.575)


@pytest.mark.parametrize(("classes", "each"), [(2, 10), (10, 20)])
def test_equal_values_leave_room_on_both_sides(classes: int, each: int) -> None:
    """All robust: few images of a class, or of all others, do not show that none of their kind is
    less so."""
    bias = class_bias(rows_of({k: [1.0] * each for k in range(classes)}))
    for one in bias.classes:
        assert known(one.difference).value == 0.0
        assert (
            -0.5
            < known(known(one.difference).lower)
            < -0.01
            < 0.01
            < known(known(one.difference).upper)
            < 0.5
        )
    assert (known(bias.gap).value, known(known(bias.gap).estimate.lower)) == (0.0, 0.0)
    if classes == 2:  # ten ones of the class; all twenty, of which the others are half
        assert known(bias.classes[0].difference).lower == pytest.approx(0.0125**0.1 - 1)
        assert known(bias.classes[0].difference).upper == pytest.approx(2 * (1 - 0.0125**0.05))


def test_a_planted_gap_is_found_and_named() -> None:
    bias = class_bias(planted(0.25))
    assert bias.verdict == "significant"
    assert bias.gap is not None
    assert bias.gap.least == 3
    assert [one.index for one in bias.classes if one.differs == "lower"] == [3]
    assert 0.0 < known(bias.gap.estimate.lower) < 0.2 < known(bias.gap.estimate.upper)
    assert bias.gap.p_value == pytest.approx(1 / 2001)


@pytest.mark.parametrize("gap", [0.0, 0.06, 0.25])
def test_intervals_and_verdicts_say_the_same(gap: float) -> None:
    """Of classes and of the gap: an interval excludes 0 exactly where the test calls the difference
    significant."""
    for seed in range(3):
        bias = class_bias(planted(gap, classes=5, each=15, seed=seed), permutations=400)
        assert bias.gap is not None
        assert (
            (known(bias.gap.estimate.lower) > 0.0)
            == (bias.verdict == "significant")
            == (bias.gap.p_value <= 0.05)
        )
        assert known(bias.gap.estimate.lower) <= bias.gap.value <= known(bias.gap.estimate.upper)
        for one in bias.classes:
            lower = known(known(one.difference).lower)
            upper = known(known(one.difference).upper)
            assert lower <= known(one.difference).value <= upper
            assert one.differs == ("higher" if lower > 0 else "lower" if upper < 0 else "no")
            assert (known(one.p_value) <= 0.05) == (one.differs != "no")


def test_the_worst_of_many_equal_classes_is_noise() -> None:
    bias = class_bias(planted(0.0, classes=40, each=8), permutations=200)
    assert bias.gap is not None
    assert bias.gap.value > 0.1  # it looks bad
    assert bias.verdict == "not-significant"
    assert known(bias.gap.estimate.lower) == 0.0
    assert bias.gap.null_mean == pytest.approx(bias.gap.value, abs=bias.gap.critical)
    assert all(one.differs == "no" for one in bias.classes)


def test_simultaneous_intervals_hold_the_gap_together() -> None:
    """Over repeated samples of a population with unequal class means, the gap's interval holds the
    true gap (>= 95 %)."""
    generator = np.random.default_rng(8)
    means = (0.6, 0.8, 0.9)
    tables = 30
    held = 0
    for seed in range(tables):
        bias = class_bias(
            rows_of(
                {k: list(generator.beta(10 * m, 10 * (1 - m), 15)) for k, m in enumerate(means)}
            ),
            permutations=100,
            seed=seed,
        )
        held += (
            known(known(bias.gap).estimate.lower) <= 0.3 <= known(known(bias.gap).estimate.upper)
        )
    assert held / tables >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / tables)


def test_classes_are_labels_or_predictions() -> None:
    rows = [
        replace(row, predicted=1 - (row.label or 0))
        for row in rows_of({0: [0.1, 0.2], 1: [0.8, 0.9]})
    ]
    by_label = class_bias(rows)
    by_predicted = class_bias(rows, by="predicted")
    assert (known(by_label.gap).least, known(by_predicted.gap).least) == (0, 1)


def test_tests_are_of_the_groups_that_are_given() -> None:
    """A column of the data set has the same name after its values have changed."""
    rows = rows_of({0: [0.1, 0.12, 0.15, 0.2, 0.21, 0.3], 1: [0.8, 0.82, 0.85, 0.9, 0.91, 0.95]})
    columns = Columns.from_rows(rows)
    apart = {name: name[0] for name in columns.names}
    mixed = {name: str(i // 2 % 2) for i, name in enumerate(columns.names)}
    first, second = (
        class_differences.class_bias(columns, by="scanner", groups=groups)
        for groups in (apart, mixed)
    )
    assert known(first.gap).p_value < 0.05 < known(second.gap).p_value
    alone = class_bias(rows, groups=mixed)
    assert (second.gap, second.classes) == (alone.gap, alone.classes)


def test_samples_without_label_are_left_out_and_counted(golden: Golden) -> None:
    rows = [
        *rows_of({0: [0.1, 0.2], 1: [0.8, 0.9], None: [0.5, 0.6]}),
        replace(ROW, value=math.nan),
    ]
    assert class_bias(rows).left_out == 3
    with pytest.raises(NothingLeftError) as error:
        class_bias([replace(row, label=None) for row in rows])
    golden(error.value)


@pytest.mark.parametrize(
    "classes", [{0: [0.5, 0.6]}, {0: [0.5], 1: [0.9]}, {0: [0.5, 0.6], 1: [0.9]}]
)
def test_too_few_images_are_untested_and_said_so(classes: dict[int | None, list[float]]) -> None:
    bias = class_bias(rows_of(classes))
    assert (bias.verdict, bias.gap) == ("not-tested", None)
    assert all(one.p_value is None for one in bias.classes)


def test_where_lower_is_better_the_least_robust_class_is_the_highest() -> None:
    loss = Quantity("loss", "nats", 0.0, math.inf, higher_is_better=False)
    rows = [
        replace(row, quantity="loss") for row in rows_of({0: [1.0, 1.2, 1.1], 1: [7.0, 7.2, 7.1]})
    ]
    bias = class_bias(rows, quantity=loss)
    assert (known(bias.gap).least, known(bias.gap).most) == (1, 0)
    assert known(bias.gap).value == pytest.approx(6.0)


@pytest.mark.parametrize("options", [{"threshold": math.nan}, {"permutations": 10}])
def test_bad_options_are_named(options: dict[str, float], golden: Golden) -> None:
    with pytest.raises(RobauditError) as error:
        class_bias(planted(0.1), **options)
    golden(error.value)
