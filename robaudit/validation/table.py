"""How does a validation read in a terminal?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from robaudit.report import numbers
from robaudit.report.tables import base_table, legend, plain
from robaudit.validation.comparison import Comparison
from robaudit.validation.study import Validation
from robaudit.validation.words import milliseconds, short, signed


def tables(found: Validation) -> Iterator[RenderableType]:
    """What was compared, a table, and the recommendation at each noise level."""
    images = len({name for name, _ in found.truths})
    yield plain(f"{images} images against mc with {found.draws:,} draws of noise of its own", "bold")
    table = base_table(narrow=False)
    for name in ("estimator", "sigma"):
        table.add_column(name, no_wrap=True)
    for name in ("bias +- error", "RMSE +- error", "worst (sample)", "rank", "coverage", "forward", "backward", "an image"):
        table.add_column(name, justify="right", no_wrap=name not in ("worst (sample)", "RMSE +- error"))
    sigmas = numbers.sigmas(found.sigmas)
    for one in found.comparisons:
        table.add_row(*map(plain, (one.estimator, sigmas[one.sigma], *_cells(one))))
    yield table
    yield from legend(_LEGEND)
    for words in found.words():
        yield plain(f"At sigma {sigmas[words['sigma']]}:", "bold")
        for estimator, text in words["verdicts"].items():
            yield plain(f"  {estimator} {text}.")
        for text in words["remarks"]:
            yield plain(f"  Note: {text}.")
        for text in words["advice"]:
            yield plain(f"  -> {text}.")


_LEGEND = (
    "bias: mean of estimate - reference. RMSE: the reference's own variance is taken out. rank: Spearman's correlation.",
    "+-: one standard error over the images; no 95 % interval: what rare large errors would add, few images do not show.",
    "coverage: share of the 95 % intervals that agree with the reference and its interval. -: does not apply.",
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
    """Where noise touches no image, what it does to others is unknown, and not nothing."""
    return "" if error is None or not one.touched else f" +- {short(error)}"
