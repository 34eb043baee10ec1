"""Rows that bound a value from one side only, on a scale without a low end: what summaries and tables make of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from robaudit.quantities import Interval
from robaudit.report.classes import bias_table
from robaudit.report.summary import overall_tables
from robaudit.rows import Row
from tests.rows import ROW, class_bias, summarise
from tests.unit.report.test_tables import shown


def row(name: str, value: float, lower: float | None, upper: float, label: int = 0) -> Row:
    interval = Interval.parse("upper bound" if lower is None else "lognormal:4 repeats")
    about = {"estimator": "splitting", "quantity": "log10_p_fail", "label": label, "predicted": label, "votes": None}
    return replace(ROW, sample_id=name, value=value, lower=lower, upper=upper, std_error=None, interval=interval, **about)  # type: ignore[arg-type]


MEASURED = [row("a", -3.0, -3.2, -2.8), row("b", -6.0, -6.4, -5.6), row("c", -5.0, -5.2, -4.8, 1)]
BOUNDED = [row("d", -12.0, None, -12.0), row("e", -12.0, None, -12.0, 1), row("f", -12.0, None, -12.0, 1)]


def test_a_mean_with_bounds_is_one_and_quantiles_are_what_is_known() -> None:
    (group,) = summarise(MEASURED + BOUNDED)
    assert group.with_interval == 6
    assert group.mean.value == pytest.approx(np.mean([-3, -6, -5, -12, -12, -12]))
    assert group.mean.measured_lower == -math.inf
    assert group.mean.measured_upper is not None
    assert group.mean.value < group.mean.measured_upper < -8
    assert (group.p05.measured_lower, group.p05.measured_upper) == (-math.inf, -12.0)
    assert group.median.measured_lower == -math.inf
    assert group.median.measured_upper == pytest.approx(-(12 + 5.6) / 2)
    (group,) = summarise([*MEASURED, *[row(str(i), -4.0, -4.1, -3.9) for i in range(5)], BOUNDED[0]])
    assert (group.median.measured_lower, group.median.measured_upper) == pytest.approx((-4.1, -3.9))


def test_tables_have_bounds_and_no_shares_below_a_half() -> None:
    text = "\n".join(shown(overall_tables(summarise(MEASURED + BOUNDED)), 120))
    assert "power of ten" in text
    assert "lower is better" in text
    assert "<= " in text
    assert "< 0.5" not in text
    assert "~" not in text
    text = "\n".join(shown(bias_table(class_bias(MEASURED + BOUNDED)), 120))
    assert "< 0.9" not in text
    assert "<= " in text
