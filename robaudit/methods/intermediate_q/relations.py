"""Relations between the loss norms of an image, for ``robaudit verify``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from robaudit.methods.intermediate_q.losses_by_q import ROUNDING
from robaudit.names import PartName, ResultName
from robaudit.quantities import LOSS
from robaudit.runs.rows import Row
from robaudit.stats.relations import (
    BoundingPair,
    Claim,
    Relation,
    Setting,
    approximate,
    interval_ends,
)


def _orders(rows: Sequence[Row], _: Setting) -> Iterator[BoundingPair]:
    """Norms of one estimator by ascending order, and norms of the same order by two estimators,
    which may have missed a bad region."""
    named = [(ResultName.parse(row.estimator), row) for row in rows if row.quantity == LOSS.name]
    norms = [
        (name, name.part.number, row)
        for name, row in named
        if name.part is not None and name.part.name is PartName.Q
    ]
    for (first, q, low), (second, order, high) in itertools.permutations(norms, 2):
        same = first.estimator == second.estimator
        about = [(row.at, row.loss and row.loss.target) for row in (low, high)]
        if about[0] == about[1] and (q < order if same else q == order):
            least = interval_ends(low)[0]
            most = interval_ends(high)[1]
            loose = [not same and approximate(row) for row in (low, high)]
            yield BoundingPair(
                f"loss at {low.at}",
                Claim(low, least, True, loose[0]),
                Claim(high, most, True, loose[1]),
            )


NORMS_RISE = Relation(
    "Z_q rises with q",
    "norms of the same losses rise with their order, and estimators of the same norm agree",
    "Lyapunov's inequality",
    (ROUNDING, 0.0),
    _orders,
)
