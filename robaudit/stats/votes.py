"""Results as gates and comparisons take them: the votes of the copies, where the value is an approximation made of the same copies."""

from __future__ import annotations

import math
from dataclasses import replace

from robaudit.numerics.intervals import antithetic_share, clopper_pearson, share_variance
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.rows import Row


def by_votes(row: Row) -> Row:
    """The row with the share of its votes as its value, and their interval, where its own interval leaves out a bias.

    Votes have no bias, whatever the network, and their interval holds for every p. Rows that have none, and rows whose interval covers
    all of their error, stay as they are.
    """
    draws = row.draws
    if row.interval.covers_bias or row.quantity != P_ROBUST.name or not row.votes or not draws or row.predicted >= len(row.votes):
        return row
    return of_votes(row, row.votes[row.predicted], draws, row.split)


def of_votes(row: Row, kept: int, draws: int, split: int | None) -> Row:
    """The row as so many copies make it, of which ``kept`` kept the class and, of antithetic pairs, ``split`` pairs disagree."""
    kind = IntervalKind.CLOPPER_PEARSON if split is None else IntervalKind.ANTITHETIC
    lower, upper = clopper_pearson(kept, draws) if split is None else antithetic_share(kept, split, draws)
    value = kept / draws
    error = math.sqrt(share_variance(value, draws, split))
    return replace(
        row,
        value=value,
        lower=min(value, float(lower)),
        upper=max(value, float(upper)),
        std_error=error,
        interval=Interval(kind),
        split=split,
    )
