"""A row of mc that tests change where they need another, and statistics of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robaudit.quantities import Interval, Quantity
from robaudit.rows import Row
from robaudit.stats import classes, flags, summary
from robaudit.stats.frame import Columns, Frame

ROW = Row(
    sample_id="a",
    label=0,
    predicted=0,
    correct=True,
    noise="gaussian",
    level_name="sigma",
    level=0.1,
    estimator="mc",
    quantity="p_robust",
    value=0.8,
    lower=0.7,
    upper=0.9,
    std_error=0.05,
    flips_to=1,
    forwards=11,
    backwards=0,
    note="",
    interval=Interval.parse("clopper-pearson"),
)


def summarise(rows: Iterable[Row], quantities: Mapping[str, Quantity] | None = None) -> tuple[summary.GroupSummary, ...]:
    return summary.summarise(Frame.of(rows), quantities)


def flag(rows: Iterable[Row], **options: Any) -> flags.Flagged:
    return flags.flag(Columns.of(rows), **options)


def class_bias(rows: Iterable[Row], **options: Any) -> classes.ClassBias:
    return classes.class_bias(Columns.of(rows), **options)
