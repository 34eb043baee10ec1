"""The tables of a validation, for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.plugins import reference
from robaudit.quantities import P_ROBUST
from robaudit.report import numbers
from robaudit.report.tables import Table, cells, columns
from robaudit.validation.against_reference import Validation
from robaudit.validation.deviations import ReferenceComparison
from robaudit.validation.recorded_noise import RecordedComparison
from robaudit.validation.verdicts import milliseconds

_NOTES = (
    "bias: mean of estimate - reference. RMSE: without the reference's own variance. rank: "
    "Spearman's correlation.",
    "+-: one standard error over the images, not a 95 % interval: a few images may miss rare "
    "large errors.",
    "coverage: 95 % intervals that agree with the reference and its interval. -: does not apply.",
)

_NOTES_ON_RECORDED = (
    "means over the images, with 95 % intervals for images like these. minus: paired by image, "
    "Student's t over the images, and at least the error of the draws: a few images may miss rare "
    "large differences.",
)


def validation_tables(validation: Validation) -> Iterator[Table]:
    """A table for each noise level, with a verdict on each estimator and which to use, and one for
    each recorded noise."""
    images = len({name for name, _ in validation.truths})
    draws = f"{validation.draws:,} draws of independent noise"
    yield Table(f"{images} images against {reference()} with {draws}")
    levels = numbers.level_texts(validation.levels)
    head = columns(
        ("estimator",), ("bias +- error", "RMSE +- error", "rank", "coverage", "per image")
    )
    for at, words in zip(validation.levels, validation.verdicts(), strict=True):
        rows = tuple(
            cells((comparison.estimator, *_cells(comparison))) for comparison in validation.at(at)
        )
        verdicts = [f"{estimator} {text}." for estimator, text in words["verdicts"].items()]
        if words["remark"]:
            verdicts.append(f"Note: {words['remark']}.")
        advice = cells((f"-> {text}." for text in words["advice"]), "strong")
        yield Table(f"At {levels[at]}", head, rows, conclusions=(*cells(verdicts), *advice))
    yield Table(notes=_NOTES)
    for recorded in validation.recorded:
        yield _recorded_table(recorded)


def _recorded_table(comparison: RecordedComparison) -> Table:
    """The reference at each noise level, and its difference from that under recorded noise."""
    levels = numbers.level_texts([level.at for level in comparison.levels])
    rows = []
    for level in comparison.levels:
        difference = "-"
        if level.difference is not None:
            difference = numbers.change(level.difference.value, *level.difference.ends)
        mean = numbers.with_interval(level.mean.value, *level.mean.ends)
        rows.append(cells((levels[level.at], mean, difference)))
    recorded = levels[comparison.recorded]
    head = columns(("noise",), (f"mean {P_ROBUST.name}", f"minus {recorded}"))
    heading = f"{P_ROBUST.name} of the reference, under models of noise and under recorded noise"
    return Table(heading, head, tuple(rows), notes=_NOTES_ON_RECORDED)


def _cells(comparison: ReferenceComparison) -> Iterator[str]:
    """The cells of an estimator, after its name."""
    error = comparison.error
    if error is None:
        yield from ("-", "-")
    else:
        # z: an error that rounds to 0 has no sign
        yield f"{error.bias:+z.3f}" + _spread(comparison, error.bias_error)
        yield f"{error.rmse:z.3f}" + _spread(comparison, error.rmse_error)
    yield "-" if comparison.rank is None else f"{comparison.rank:z.3f}"
    coverage = comparison.coverage
    yield "-" if coverage is None else f"{coverage.count}/{coverage.total}"
    yield milliseconds(comparison.seconds)


def _spread(comparison: ReferenceComparison, error: float | None) -> str:
    """The standard error behind a value.

    Empty where noise changed no image: its effect on other images is then unknown, not zero."""
    return "" if error is None or not comparison.touched else f" +- {error:z.3f}"
