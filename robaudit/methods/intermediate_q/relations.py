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
    norms = []
    for row in rows:
        if row.quantity != LOSS.name:
            continue
        name = ResultName.parse(row.estimator)
        if name.part is not None and name.part.name is PartName.Q:
            norms.append((name.estimator, name.part.number, row))
    for (estimator, q, row), (other_estimator, other_q, other) in itertools.permutations(norms, 2):
        if row.at != other.at or _target(row) != _target(other):
            continue
        same = estimator == other_estimator
        if q < other_q if same else q == other_q:
            # Norms of one estimator come from the same copies: they rise with q even if they are
            # biased.
            least = interval_ends(row)[0]
            most = interval_ends(other)[1]
            yield BoundingPair(
                f"loss at {row.at}",
                Claim(row, least, True, not same and approximate(row)),
                Claim(other, most, True, not same and approximate(other)),
            )


def _target(row: Row) -> int | None:
    """The class that the loss of a row is against."""
    return None if row.loss is None else row.loss.target


# (E[l^q])^(1/q) does not fall as q rises; losses agree up to the rounding of their passes.
NORMS_RISE = Relation(
    "Z_q rises with q",
    "norms of the same losses rise with their order, and estimators of the same norm agree",
    "Lyapunov's inequality",
    (ROUNDING, 0.0),
    _orders,
)
