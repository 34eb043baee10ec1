"""Losses by q: the means of the summary, the images that flag-samples lists, and attacks that a
norm beats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import ttest_rel

from robaudit.errors import RunError
from robaudit.levels import NoiseLevel
from robaudit.methods.intermediate_q.losses_by_q import loss_changes, losses
from robaudit.methods.intermediate_q.losses_section import LossesSection
from robaudit.quantities import LOSS, P_ROBUST, Interval
from robaudit.report.sections import Entry, SectionRequest
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.golden import Golden
from tests.rows import flag, summarise
from tests.unit.report.pictures.made import row, run, usual


def loss(number: int, value: float, estimator: str = "qnorm_path:q=10", **fields: Any) -> Row:
    return row(number, value, estimator=estimator, quantity=LOSS.name, **fields)


def bounded(
    number: int, value: float, lower: float, estimator: str = "qnorm_path:q=10", **fields: Any
) -> Row:
    return loss(
        number,
        value,
        estimator,
        lower=lower,
        upper=2 * value - lower,
        interval=Interval.parse("chains:approximate"),
        **fields,
    )


def many(images: int, orders: Sequence[float], eps: Sequence[float]) -> Run:
    """Losses of two estimators that rise with q and with the noise, and of an attack that finds
    more."""
    rows = []
    for i in range(images):
        for level in eps:
            largest = (1 + 7 * i % images) * level
            at = {"noise": "uniform", "level_name": "eps", "level": level}
            for name, share in (("qnorm_path", 0.9), ("qnorm_mc", 0.8)):
                values = {f"{name}:q={q:g}": share * largest * q / (1 + q) for q in orders}
                rows += [bounded(i, value, 0.9 * value, one, **at) for one, value in values.items()]
            rows.append(
                loss(
                    i,
                    largest,
                    "adversarial_loss",
                    lower=largest,
                    interval=Interval.parse("lower bound"),
                    **at,
                )
            )
    return run(rows)


def test_means_are_those_of_the_summary_from_the_smallest_q_to_the_attack() -> None:
    given = many(20, (1000, 0.5, 10), (0.2, 0.1))
    found = losses(given)
    assert [one.at.level for one in found] == [0.1, 0.2]
    summaries = {
        (group.key.estimator, group.key.at): group
        for group in summarise(given.rows, given.quantities)
    }
    for one in found:
        assert {label: [result.q for result in curve] for label, curve in one.curves.items()} == {
            "qnorm_path": [0.5, 10, 1000],
            "qnorm_mc": [0.5, 10, 1000],
        }
        assert [(result.name, result.q, result.estimator) for result in one.attacks] == [
            ("adversarial_loss", math.inf, "adversarial_loss")
        ]
        assert len(one.results) == 7
        for result in one.results:
            assert result.summary == summaries[result.name, one.at]


def test_the_worst_images_are_those_of_flag_samples_at_the_largest_q() -> None:
    given = many(50, (1, 30), (0.1, 0.2))
    for one in losses(given, most=4):
        assert one.ranking[-1].name == "qnorm_path:q=30"
        rows = {
            name: [r for r in given.rows if (r.estimator, r.at) == (name, one.at)]
            for name in (result.name for result in one.results)
        }
        assert (
            one.worst == flag(rows["qnorm_path:q=30"], below=0.5, bottom=4, quantity=LOSS).samples
        )
        for result in one.results:
            values = {r.sample_id: r.value for r in rows[result.name]}
            assert result.worst == tuple(values[sample.id] for sample in one.worst)


def test_the_first_curve_with_the_largest_q_ranks_the_images() -> None:
    names = ("a:q=10", "b:q=10", "b:q=20", "c:q=20")
    (one,) = losses(run(loss(i, 1.0, name) for i in range(3) for name in names))
    assert one.ranking[-1].name == "b:q=20"
    assert list(one.curves) == ["a", "b", "c"]


def test_an_attack_is_beaten_where_a_whole_interval_lies_above_all_attacks() -> None:
    attacks = {"pgd": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "other": [0.5, 1.5, 0.5, 0.5, 0.5, 0.5]}
    rows = [
        loss(i, value, name) for name, values in attacks.items() for i, value in enumerate(values)
    ]
    rows += [
        bounded(0, 1.2, 1.1),  # beaten
        bounded(1, 1.2, 1.1),  # the other attack found more
        bounded(2, 1.2, 0.9),  # maybe
        loss(3, 1.2),  # beaten, by a value without an interval
        loss(4, 1.0 + 1e-8),  # rounding
        loss(5, 0.7),
        bounded(5, 1.2, 1.1, "qnorm_mc:q=3"),  # beaten, by one of two
        bounded(6, 9.0, 8.0),  # never attacked
    ]
    (one,) = losses(run(rows))
    assert (one.attacked, one.beaten) == (6, 3)
    (without,) = losses(run(r for r in rows if r.estimator not in attacks))
    assert (without.attacks, without.attacked, without.beaten) == ((), 0, 0)


def test_what_is_no_loss_by_q_makes_no_curve() -> None:
    assert losses(usual()) == ()
    assert losses(run([loss(0, 1.0, "adversarial_loss")])) == ()
    assert losses(run([row(0, 0.5, estimator="p:q=10", quantity=P_ROBUST.name)])) == ()
    assert (
        losses(
            run(
                [
                    loss(0, 1.0, "x:q=nan"),
                    loss(0, 1.0, "x:q=0"),
                    loss(0, 1.0, "x:q=-1"),
                    loss(0, math.nan),
                ]
            )
        )
        == ()
    )
    (one,) = losses(run([loss(0, 1.0), loss(0, 2.0, "qnorm_path:q=inf"), row(0, 0.5)]))
    assert ([result.name for result in one.attacks], one.attacked) == (["qnorm_path:q=inf"], 1)


def test_results_without_a_finite_value_are_counted_and_left_out() -> None:
    rows = [
        loss(i, math.nan if i == 3 else 1.0 + i, name)
        for i in range(5)
        for name in ("qnorm_path:q=1", "adversarial_loss")
    ]
    rows = [
        replace(r, value=math.nan) if (r.sample_id, r.estimator) == ("4", "adversarial_loss") else r
        for r in rows
    ]
    (one,) = losses(run(rows))
    assert [(result.summary.images, result.summary.not_finite) for result in one.results] == [
        (4, 1),
        (3, 2),
    ]
    assert [sample.id for sample in one.worst] == ["4", "2", "1", "0"]
    assert one.attacks[0].worst == (None, 3.0, 2.0, 1.0)


def test_levels_go_from_weak_to_strong_noise_by_noise() -> None:
    places = [
        ("night", "photons", 5.0),
        ("fog", "severity", 3.0),
        ("night", "photons", 100.0),
        ("fog", "severity", 1.0),
    ]
    found = losses(
        run(
            loss(0, 1.0, noise=noise, level_name=name, level=level) for noise, name, level in places
        )
    )
    assert [str(one.at) for one in found] == [
        "night photons 100",
        "night photons 5",
        "fog severity 1",
        "fog severity 3",
    ]


def test_a_choice_narrows_and_names_that_are_not_there_are_refused(golden: Golden) -> None:
    given = many(6, (1, 10), (0.1, 0.2))
    (one,) = losses(given, ("qnorm_mc:q=10",), (0.2,))
    assert (one.at, [result.name for result in one.results]) == (
        NoiseLevel("uniform", 0.2, one.at.name),
        ["qnorm_mc:q=10"],
    )
    assert losses(given, ("adversarial_loss",)) == ()
    with pytest.raises(RunError) as caught:
        losses(given, ("nothing",))
    golden(caught.value)


def test_mean_losses_of_two_runs_differ_on_the_images_that_both_have() -> None:
    base = run([loss(i, 1.0 + i % 3) for i in range(12)])
    new = run([loss(i, 1.5 + i % 3 + (i % 5) / 10) for i in range(2, 20)])
    (change,) = loss_changes(base, new).values()
    expected = ttest_rel(
        [1.5 + i % 3 + (i % 5) / 10 for i in range(2, 12)], [1.0 + i % 3 for i in range(2, 12)]
    )
    assert change.images == 10
    assert (change.estimate.value, *change.estimate.ends, change.p_value) == pytest.approx(
        (0.7, *expected.confidence_interval(), expected.pvalue)
    )
    (same,) = loss_changes(base, base).values()
    assert (same.estimate.value, *same.estimate.ends, same.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_estimates_without_an_upper_end_are_bounds_and_have_no_difference() -> None:
    rows = [bounded(i, 1.0 + i % 3, 0.5, "qnorm_mc:q=10") for i in range(12)]
    half = [replace(one, upper=None) if i % 2 else one for i, one in enumerate(rows)]
    (change,) = loss_changes(
        run(rows), run([replace(one, value=one.value + 0.1) for one in half])
    ).values()
    assert change.estimate.value == pytest.approx(0.1)
    assert (change.estimate.lower, change.estimate.upper, change.p_value) == (None, None, None)
    (one,) = losses(run(half))
    (result,) = one.results
    assert result.at_least == tuple(0.5 if int(sample.id) % 2 else None for sample in one.worst)
    *_, table = LossesSection().tables([Entry("", run(half), (one,))], SectionRequest())
    shown = {row[0].text: row[1].text for row in table.rows}
    assert shown == {
        sample.id: ">= 0.500" if int(sample.id) % 2 else f"{sample.value:.3f}"
        for sample in one.worst
    }
