"""Tables of `validate` for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from robaudit.advice.comparison import Comparison
from robaudit.advice.validate import Validation
from robaudit.advice.verdicts import milliseconds, short, signed
from robaudit.levels import noise_level
from robaudit.report import numbers
from robaudit.report.tables import base_table, legend, plain


def validation_tables(found: Validation) -> Iterator[RenderableType]:
    """What was compared, a table, and the recommendation at each noise level."""
    images = len({name for name, _ in found.truths})
    yield plain(f"{images} images against mc with {found.draws:,} draws of independent noise", "bold")
    table = base_table(narrow=False)
    for name in ("estimator", "noise"):
        table.add_column(name, no_wrap=True)
    for name in ("bias +- error", "RMSE +- error", "worst (sample)", "rank", "coverage", "forward", "backward", "per image"):
        table.add_column(name, justify="right", no_wrap=name not in ("worst (sample)", "RMSE +- error"))
    levels = numbers.level_texts(found.levels)
    for one in found.comparisons:
        table.add_row(*map(plain, (one.estimator, levels[one.at], *_cells(one))))
    yield table
    yield from legend(_VALIDATION_LEGEND)
    for level in found.verdicts():
        yield plain(f"At {levels[noise_level(level['noise'], level['level'], level['level_name'])]}:", "bold")
        for estimator, text in level["verdicts"].items():
            yield plain(f"  {estimator} {text}.")
        for text in level["remarks"]:
            yield plain(f"  Note: {text}.")
        for text in level["advice"]:
            yield plain(f"  -> {text}.")


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
