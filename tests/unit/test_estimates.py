"""Values with intervals, and that one type holds them."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import robaudit
from robaudit.estimates import Covers, Estimate

PACKAGE = Path(robaudit.__file__).parent
STORED = {
    "estimates.py",
    "results.py",  # the row of an estimator, which samples.csv has column by column
    "runs/info.py",  # run.json, whose keys these are
    "methods/average_case/level_search.py",  # numbers of a search on their way to a row
    "methods/average_case/logit_gaussian.py",
}
"""Files with another class that has a value and the ends of its interval, and why."""


def test_an_interval_has_both_ends_or_none() -> None:
    alone = Estimate.measured(0.5, None, "mover")
    whole = Estimate.measured(0.5, (0.25, 1.0), "mover")
    assert (alone.bounds, alone.has_interval, alone.method, alone.covers) == (
        None,
        False,
        "none",
        Covers.NOTHING,
    )
    assert (whole.bounds, whole.ends, whole.below, whole.above) == (
        (0.25, 1.0),
        (0.25, 1.0),
        0.25,
        0.5,
    )
    assert (alone.below, alone.above) == (math.inf, math.inf)


def test_other_signs_and_scales() -> None:
    one = Estimate.population(2.0, (1.0, math.inf), "over images")
    assert one.negated() == Estimate.population(-2.0, (-math.inf, -1.0), "over images")
    assert one.negated().negated() == one
    assert one.over(2.0) == Estimate.population(1.0, (0.5, math.inf), "over images")
    assert Estimate(2.0).negated() == Estimate(-2.0)
    assert math.copysign(1.0, Estimate(0.0).negated().value) == 1.0


def test_what_intervals_say() -> None:
    exact = Estimate(1.0, 1.0, 1.0)
    open_ = Estimate(1.0, 0.5, math.inf)
    assert (exact.is_exact, open_.is_exact, Estimate(1.0).is_exact) == (True, False, False)
    assert (exact.is_finite, open_.is_finite, Estimate(1.0).is_finite) == (True, False, False)
    assert open_.with_bounds(None) == Estimate(1.0)


def fields_of(path: Path) -> Iterator[set[str]]:
    """The annotated names of each class of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield {
                line.target.id
                for line in node.body
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            }


def test_no_other_type_holds_a_value_with_its_interval() -> None:
    files = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any({"value", "lower", "upper"} <= fields for fields in fields_of(path))
    }
    assert files == STORED
