"""Tables of `validate` for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.advice.comparison import ReferenceComparison
from robaudit.advice.validate import Validation
from robaudit.advice.verdicts import milliseconds, short, signed
from robaudit.report import numbers
from robaudit.report.tables import Table, cells, columns

_NOTES = (
    "bias: mean of estimate - reference. RMSE: without the reference's own variance. rank: Spearman's correlation.",
    "+-: one standard error over the images, not a 95 % interval: a few images may miss rare large errors.",
    "coverage: 95 % intervals that agree with the reference and its interval. -: does not apply.",
)


def validation_tables(found: Validation) -> Iterator[Table]:
    """A table for each noise level, with a verdict on each estimator and which to use."""
    images = len({name for name, _ in found.truths})
    yield Table(f"{images} images against mc with {found.draws:,} draws of independent noise")
    levels = numbers.level_texts(found.levels)
    head = columns(("estimator",), ("bias +- error", "RMSE +- error", "rank", "coverage", "per image"))
    for at, words in zip(found.levels, found.verdicts(), strict=True):
        rows = tuple(cells((one.estimator, *_cells(one))) for one in found.at(at))
        said = [f"{estimator} {text}." for estimator, text in words["verdicts"].items()]
        said += [f"Note: {text}." for text in words["remarks"]]
        advice = cells((f"-> {text}." for text in words["advice"]), "strong")
        yield Table(f"At {levels[at]}", head, rows, conclusions=(*cells(said), *advice))
    yield Table(notes=_NOTES)


def _cells(one: ReferenceComparison) -> Iterator[str]:
    error = one.error
    yield "-" if error is None else signed(error.bias) + _spread(one, error.bias_error)
    yield "-" if error is None else short(error.rmse) + _spread(one, error.rmse_error)
    yield "-" if one.rank is None else short(one.rank)
    yield "-" if one.coverage is None else f"{one.coverage.held}/{one.coverage.total}"
    yield milliseconds(one.seconds)


def _spread(one: ReferenceComparison, error: float | None) -> str:
    """Empty where noise changed no image: its effect on other images is then unknown, not zero."""
    return "" if error is None or not one.touched else f" +- {short(error)}"
