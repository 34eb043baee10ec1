"""Tables of `validate` for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.advice.comparison import Comparison
from robaudit.advice.validate import Validation
from robaudit.advice.verdicts import milliseconds, short, signed
from robaudit.levels import noise_level
from robaudit.report import numbers
from robaudit.report.tables import Table, cells, columns


def validation_tables(found: Validation) -> Iterator[Table]:
    """What was compared, a table, and the recommendation at each noise level."""
    images = len({name for name, _ in found.truths})
    levels = numbers.level_texts(found.levels)
    heads = ("bias +- error", "RMSE +- error", "worst (sample)", "rank", "coverage", "forward", "backward", "per image")
    yield Table(
        f"{images} images against mc with {found.draws:,} draws of independent noise",
        columns(("estimator", "noise"), heads),
        tuple(cells((one.estimator, levels[one.at], *_cells(one))) for one in found.comparisons),
        notes=_VALIDATION_LEGEND,
    )
    for level in found.verdicts():
        at = levels[noise_level(level["noise"], level["level"], level["level_name"])]
        told = (
            *(f"  {estimator} {text}." for estimator, text in level["verdicts"].items()),
            *(f"  Note: {text}." for text in level["remarks"]),
            *(f"  -> {text}." for text in level["advice"]),
        )
        yield Table(f"At {at}:", lines=told)


_VALIDATION_LEGEND = (
    "bias: mean of estimate - reference. RMSE: the reference's own variance is taken out. rank: Spearman's correlation.",
    "+-: one standard error over the images, not a 95 % interval: a few images may miss rare large errors.",
    "coverage: share of 95 % intervals that agree with the reference and its interval. -: does not apply.",
)


def _cells(one: Comparison) -> Iterator[str]:
    error = one.error
    if error is None:
        yield from ("-", "-", "-")
    else:
        yield signed(error.bias) + _spread(one, error.bias_error)
        yield short(error.rmse) + _spread(one, error.rmse_error)
        difference = error.worst_value - error.worst_reference
        yield f"{signed(difference)} ({error.worst})"
    yield "-" if one.rank is None else short(one.rank)
    yield "-" if one.coverage is None else f"{one.coverage.held}/{one.coverage.total}"
    yield f"{one.forwards:,.0f}"
    yield f"{one.backwards:,.0f}"
    yield milliseconds(one.seconds)


def _spread(one: Comparison, error: float | None) -> str:
    """Empty where noise changed no image: its effect on other images is then unknown, not zero."""
    return "" if error is None or not one.touched else f" +- {short(error)}"
