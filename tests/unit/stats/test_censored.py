"""Censored values and upper bounds: what summaries, tables, flags, classes and gates make of
them."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from robaudit.gates.decide import Decision, decide
from robaudit.quantities import LOG10_P_FAIL, LOSS, P_ROBUST, RADIUS, TOLERANCE
from robaudit.report import numbers
from robaudit.report.classes_section import bias_table
from robaudit.report.flagged_section import flags_table
from robaudit.report.summary_section import overall_tables
from robaudit.report.tables import Table, Terminal
from robaudit.runs.rows import Row
from robaudit.spec.gate_grammar import QUANTITIES, parse_gate
from robaudit.stats.flags import usual_threshold
from robaudit.stats.summary import GroupSummary
from tests.radius_rows import beyond, found, radius, run_of
from tests.rows import class_bias, flag, summarise
from tests.unit.engine.tools import known

LENGTHS = {"radius": RADIUS}


def summary(rows: list[Row]) -> GroupSummary:
    (one,) = summarise(rows, LENGTHS)
    return one


def exact_beyond(index: int, cap: float, **others: Any) -> Row:
    """A radius that is known to be larger: no search that failed."""
    return beyond(index, cap, lower=None, estimator="radius_exact:norm=l2", **others)


def printed(*tables: Table) -> str:
    console = Console(file=io.StringIO(), width=120, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(Terminal(tables))
    return captured.get()


def decided(rows: list[Row], text: str, *, population: bool = False) -> Decision:
    (one,) = decide(run_of(rows), [parse_gate(text, QUANTITIES, "--gate")], population=population)
    return one


THREE = [
    radius(0, 1.0),
    radius(1, 2.0),
    exact_beyond(2, 4.2),
    exact_beyond(3, 4.2),
    exact_beyond(4, 4.2),
]


def test_they_are_counted_and_the_mean_is_a_lower_end() -> None:
    one = summary(THREE)
    assert (one.censored, one.cap, one.upper_bounds) == (3, 4.2, 0)
    assert one.document()["censored"] == 3
    assert (
        one.mean.value,
        one.mean.measured.lower,
        one.mean.measured.upper,
        known(one.mean.population.upper),
    ) == pytest.approx((3.12, 3.12, math.inf, math.inf))
    assert one.median.censored
    assert not one.p05.censored
    text = printed(*overall_tables([one]))
    assert ">= 3.120 [" in text
    assert "> 4.200" in text
    assert (
        "radius_exact:norm=l2: 3 of 5 images beyond 4.2; their mean counts them as that and is a "
        "lower bound." in text
    )
    assert "< 0.5" not in text
    assert "inf" not in text


def test_upper_bounds_give_a_mean_of_at_most() -> None:
    one = summary([found(i, 1.0 + i) for i in range(4)])
    assert (one.upper_bounds, one.censored, one.cap) == (4, 0, None)
    assert (known(one.mean.population.lower), one.mean.measured.upper) == (-math.inf, 2.5)
    text = printed(*overall_tables([one]))
    assert "<= 2.500 [..., " in text
    assert "<= radius_attack: upper bounds; the true value of an image may be smaller." in text


def test_a_search_that_failed_leaves_the_mean_of_what_was_found() -> None:
    """Its rows have 0 below and no end above; the lower end is that of the radii as they were
    found."""
    one = summary([found(0, 1.0), found(1, 2.0), beyond(2, 3.0)])
    assert (one.mean.measured.lower, one.mean.measured.upper) == (2.0, math.inf)
    assert numbers.mean_estimate(one.mean, 0.0, math.inf).startswith(">= 2.000 [")
    assert one.p95.measured.upper == math.inf
    assert one.p95.measured.lower == one.p95.value
    assert (one.censored, one.not_found, one.upper_bounds, one.of_search) == (1, 1, 2, True)
    text = " ".join(printed(*overall_tables([one])).split())
    assert (
        "1 of 3 images not found up to 3; their mean counts them as that and is a lower bound of "
        "the radii that the search finds," in text
    )
    assert "<= radius_attack: upper bounds" in text


def test_a_search_that_found_nothing_at_all_is_one_of_upper_bounds() -> None:
    one = summary([beyond(i, 3.0) for i in range(3)])
    assert (one.censored, one.not_found, one.upper_bounds, one.of_search) == (3, 3, 0, True)
    assert "upper bounds" in printed(*overall_tables([one]))
    assert not summary([exact_beyond(i, 3.0) for i in range(3)]).of_search
    assert not summary([beyond(i, 3.0, lower=3.0) for i in range(3)]).of_search


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0.01, 9), st.booleans()), min_size=1, max_size=15),
    st.sampled_from([0.05, 0.5, 0.95]),
)
def test_quantiles_hold_whatever_the_censored_values_are(
    images: list[tuple[float, bool]], q: float
) -> None:
    """With a common cap, as a run has it; the true values behind it are larger."""
    cap = 5.0
    rows = [
        radius(i, value) if value < cap else exact_beyond(i, cap)
        for i, (value, _) in enumerate(images)
    ]
    true = [
        radius(i, value if value < cap else value + 10 * later)
        for i, (value, later) in enumerate(images)
    ]
    name = {0.05: "p05", 0.5: "median", 0.95: "p95"}[q]
    quantile = getattr(summary(rows), name)
    real = getattr(summary(true), name).value
    assert quantile.measured.lower - 1e-9 <= real <= quantile.measured.upper + 1e-9
    if quantile.censored:
        assert (quantile.value, quantile.measured.upper) == (cap, math.inf)
        assert numbers.quantile_estimate(quantile, 0.0, math.inf) == "> 5.000"


def test_flags() -> None:
    rows = [found(0, 1.0), found(1, 3.0), beyond(2, 4.0), beyond(3, 4.0, lower=4.0)]
    flagged = flag(rows, below=2.0, bottom=4, quantity=RADIUS)
    certainty = {one.id: one.certainty for one in flagged.samples}
    # a failed search proves nothing
    assert certainty == {
        "0": "confirmed",
        "1": "undecided",
        "2": "undecided",
        "3": "no",
    }
    assert [one.censored for one in flagged.samples] == [False, False, True, True]
    text = printed(flags_table(flagged))
    assert "> 4.000" in text
    assert "<= 1.000" in text
    assert "> 2 of 4 values are only known to be larger." in text


def test_only_probabilities_have_a_usual_threshold() -> None:
    assert usual_threshold(P_ROBUST) == 0.5
    assert usual_threshold(LOG10_P_FAIL) == math.log10(0.5)
    assert usual_threshold(LOSS) == math.log(2)
    for quantity in (RADIUS, TOLERANCE):
        assert usual_threshold(quantity) == -math.inf
    flagged = flag(THREE, below=-math.inf, bottom=2, quantity=RADIUS)
    assert (flagged.beyond, flagged.confirmed, flagged.undecided, flagged.has_threshold) == (
        0,
        0,
        0,
        False,
    )
    assert flagged.document()["threshold"] is None
    text = printed(flags_table(flagged))
    assert (
        "5 samples; radius has no usual threshold, so none is flagged: --threshold gives one."
        in text
    )
    assert "?" not in text


def test_classes() -> None:
    rows = [
        radius(0, 1.0, label=1),
        radius(1, 2.0, label=1),
        exact_beyond(2, 4.2),
        exact_beyond(3, 4.2),
    ]
    bias = class_bias(rows, quantity=RADIUS)
    assert bias.threshold is None
    assert all(one.below is None for one in bias.classes)
    assert bias.gap is not None
    assert bias.of_bounds
    text = printed(bias_table(bias))
    assert "Gap 2.700 [0.000, " in text
    assert "] of the bounds: not significant" in text
    assert (
        "differences and gap are between the bounds, and the true ones may be smaller or larger."
        in text
    )
    assert "radius has no usual threshold: --threshold adds the share of images below one." in text
    with_share = class_bias(rows, quantity=RADIUS, threshold=1.5)
    assert [one.below.count for one in with_share.classes if one.below is not None] == [0, 1]


# --- gates


@pytest.mark.parametrize("population", [False, True])
@pytest.mark.parametrize("quantity", ["mean", "median", "p05"])
@pytest.mark.parametrize("first", [found(0, 3.0), beyond(0, 4.0)], ids=["found", "beyond"])
def test_a_search_never_passes_from_below(first: Row, quantity: str, population: bool) -> None:
    """Neither what was found nor what was not is a lower end, however many images there are."""
    decision = decided(
        [first, *(beyond(i, 4.0) for i in range(1, 40))],
        f"{quantity} >= 0.1",
        population=population,
    )
    assert (decision.verdict, decision.more) == ("inconclusive", None)
    assert "censored at 4; upper bounds" in decision.evidence
    found_ = decided(
        [found(i, 3.0 + i / 40) for i in range(40)], f"{quantity} >= 0.1", population=population
    )
    assert (found_.verdict, found_.more) == ("inconclusive", None)


@pytest.mark.parametrize("population", [False, True])
def test_a_mean_with_censored_images_passes_from_below_only(population: bool) -> None:
    many = [radius(i, 2.0 + i / 100) for i in range(40)] + [
        exact_beyond(100 + i, 4.2) for i in range(20)
    ]
    assert decided(many, "mean >= 1.5", population=population).verdict == "pass"
    assert decided(many, "mean <= 4", population=population).verdict == "inconclusive"
    assert decided(many, "mean <= 1", population=population).verdict == "fail"
    assert (
        "20 of 60 images censored at 4.2"
        in decided(many, "mean <= 4", population=population).evidence
    )


@pytest.mark.parametrize("population", [False, True])
def test_a_mean_of_upper_bounds_passes_from_above_only(population: bool) -> None:
    many = [found(i, 2.0 + i / 100) for i in range(60)]
    # a rare image that was not drawn may carry the mean of an unbounded quantity
    wide = "inconclusive" if population else None
    assert decided(many, "mean <= 4", population=population).verdict == (wide or "pass")
    assert decided(many, "mean >= 1", population=population).verdict == "inconclusive"
    assert decided(many, "mean >= 4", population=population).verdict == (wide or "fail")
    assert "upper bounds" in decided(many, "mean >= 1", population=population).evidence
