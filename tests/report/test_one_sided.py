"""Rows that bound a value from one side only, on a scale without a low end: what tables, summaries and flags make of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from rich.console import Console

from robaudit.quantities import LOG10_P_FAIL, Interval
from robaudit.report import numbers
from robaudit.report.class_tables import bias_table
from robaudit.report.summary_tables import overall_tables
from robaudit.report.tables import Table, Terminal
from robaudit.rows import Row
from robaudit.store.serialise import document_json
from tests.rows import class_bias, flag, summarise


def row(name: str, value: float, lower: float | None, upper: float, label: int = 0) -> Row:
    interval = Interval.parse("upper bound" if lower is None else "lognormal:4 repeats")
    error = None if lower is None else 0.1
    return Row(
        sample_id=name,
        label=label,
        predicted=label,
        correct=True,
        noise="gaussian",
        level_name="sigma",
        level=0.1,
        estimator="splitting",
        quantity="log10_p_fail",
        value=value,
        lower=lower,
        upper=upper,
        std_error=error,
        flips_to=1,
        forwards=9,
        backwards=0,
        note="",
        interval=interval,
    )


MEASURED = [row("a", -3.0, -3.2, -2.8), row("b", -6.0, -6.4, -5.6), row("c", -5.0, -5.2, -4.8, 1)]
BOUNDED = [row("d", -12.0, None, -12.0), row("e", -12.0, None, -12.0, 1), row("f", -12.0, None, -12.0, 1)]


def printed(*tables: Table) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(Terminal(tables))
    return captured.get()


def test_a_bound_prints_as_one() -> None:
    low, high = LOG10_P_FAIL.low, LOG10_P_FAIL.high
    assert numbers.with_interval(-12.0, None, -12.0, low, high) == "<= -12.000"
    assert numbers.estimate(-12.0, -math.inf, -11.9999, low, high) == "<= -11.999"
    assert numbers.with_interval(3.0, 2.5, None, 0.0, math.inf) == ">= 3.000 [2.500, ...]"
    assert numbers.with_interval(-6.0, -6.4, -5.6, low, high) == "-6.000 [-6.400, -5.600]"
    assert numbers.with_interval(-6.0, None, None, low, high) == "~-6.000"


def test_a_mean_with_bounds_is_one_and_quantiles_are_what_is_known() -> None:
    (group,) = summarise(MEASURED + BOUNDED)
    assert group.with_interval == 6
    assert group.mean.value == pytest.approx(np.mean([-3, -6, -5, -12, -12, -12]))
    assert group.mean.measured_lower == -math.inf
    assert group.mean.measured_upper is not None
    assert group.mean.value < group.mean.measured_upper < -8
    assert group.p05.measured_lower == -math.inf
    assert group.p05.measured_upper == -12.0
    assert group.median.measured_lower == -math.inf
    assert group.median.measured_upper == pytest.approx(-(12 + 5.6) / 2)
    assert json.loads(document_json(group.document()))["mean"]["measured_lower"] is None


def test_quantiles_among_measured_ones_stay_finite() -> None:
    (group,) = summarise([*MEASURED, *[row(str(i), -4.0, -4.1, -3.9) for i in range(5)], BOUNDED[0]])
    assert group.median.measured_lower == pytest.approx(-4.1)
    assert group.median.measured_upper == pytest.approx(-3.9)


def test_the_table_has_no_shares_below_a_half() -> None:
    text = printed(*overall_tables(summarise(MEASURED + BOUNDED)))
    assert "power of ten" in text
    assert "lower is better" in text
    assert "<= " in text
    assert "< 0.5" not in text
    assert "~" not in text


def test_flags_take_the_side_that_is_known() -> None:
    found = flag(MEASURED + BOUNDED, below=-5.8)
    assert [(one.id, one.certainty) for one in found.samples] == [("a", "confirmed"), ("c", "confirmed")]
    assert found.undecided == 1  # b is undecided; what is below 1e-12 does not
    assert found.with_interval == 6


def test_the_report_by_class() -> None:
    text = printed(bias_table(class_bias(MEASURED + BOUNDED)))
    assert "< 0.9" not in text
    assert "<= " in text
