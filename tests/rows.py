"""A row of mc that tests change where they need another."""

from __future__ import annotations

from robaudit.quantities import Interval
from robaudit.rows import Row

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
