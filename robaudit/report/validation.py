"""The tables of a validation, for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.plugins import reference
from robaudit.report import numbers
from robaudit.report.tables import Table, cells, columns
from robaudit.validation.against_reference import Validation
from robaudit.validation.deviations import ReferenceComparison
from robaudit.validation.verdicts import milliseconds

_NOTES = (
    "bias: mean of estimate - reference. RMSE: without the reference's own variance. rank: "
    "Spearman's correlation.",
    "+-: one standard error over the images, not a 95 % interval: a few images may miss rare "
    "large errors.",
    "coverage: 95 % intervals that agree with the reference and its interval. -: does not apply.",
)


def validation_tables(validation: Validation) -> Iterator[Table]:
    """A table for each noise level, with a verdict on each estimator and which to use."""
    images = len({name for name, _ in validation.truths})
    yield Table(
        f"{images} images against {reference()} with {validation.draws:,} draws of independent "
        "noise"
    )
    levels = numbers.level_texts(validation.levels)
    head = columns(
        ("estimator",), ("bias +- error", "RMSE +- error", "rank", "coverage", "per image")
    )
    for at, words in zip(validation.levels, validation.verdicts(), strict=True):
        rows = tuple(
            cells((comparison.estimator, *_cells(comparison))) for comparison in validation.at(at)
        )
        verdicts = [f"{estimator} {text}." for estimator, text in words["verdicts"].items()]
        verdicts += [f"Note: {words['remark']}."] if words["remark"] else []
        advice = cells((f"-> {text}." for text in words["advice"]), "strong")
        yield Table(f"At {levels[at]}", head, rows, conclusions=(*cells(verdicts), *advice))
    yield Table(notes=_NOTES)


def _cells(comparison: ReferenceComparison) -> Iterator[str]:
    error = comparison.error
    yield "-" if error is None else f"{error.bias:+z.3f}" + _spread(comparison, error.bias_error)
    yield "-" if error is None else f"{error.rmse:z.3f}" + _spread(comparison, error.rmse_error)
    yield "-" if comparison.rank is None else f"{comparison.rank:z.3f}"
    yield (
        "-"
        if comparison.coverage is None
        else f"{comparison.coverage.count}/{comparison.coverage.total}"
    )
    yield milliseconds(comparison.seconds)


def _spread(comparison: ReferenceComparison, error: float | None) -> str:
    """Empty where noise changed no image: its effect on other images is then unknown, not zero."""
    return "" if error is None or not comparison.touched else f" +- {error:z.3f}"
