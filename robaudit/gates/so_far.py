"""The results of an unfinished audit, for its line of progress."""

from __future__ import annotations

import math
from contextlib import suppress

from robaudit.errors import RobauditError
from robaudit.gates.decide import decide
from robaudit.gates.sources import parsed
from robaudit.runs.run import Run
from robaudit.stats.summary import mean_of


def estimate_so_far(run: Run) -> str:
    """The mean of the first result with its interval for these images: ``p_robust 0.873 [0.861,
    0.885]``; empty where no value is finite.

    Args:
        run: with the results so far.
    """
    first = next(iter(run.table.values()), None)
    if first is None or not len(first.finite):
        return ""
    mean = mean_of(first.finite, run.quantities[first.key.quantity]).measured
    text = f"{first.key.quantity} {mean.value:.3f}"
    if mean.bounds is not None and all(map(math.isfinite, mean.bounds)):
        # Rounded outwards, as everywhere.
        lower = math.floor(1000 * mean.bounds[0]) / 1000
        upper = math.ceil(1000 * mean.bounds[1]) / 1000
        text += f" [{lower:.3f}, {upper:.3f}]"
    return text


def first_gate(run: Run) -> str:
    """The first gate of the run's spec and its verdict, ``mean >= 0.9 fail``; empty if there is
    none that can be decided."""
    written = run.info.gates[:1]
    # A gate that cannot be decided is reported at the end.
    with suppress(RobauditError):
        for decision in decide(run, parsed(written, "gates")):
            return f"{written[0]} {decision.verdict}"
    return ""
