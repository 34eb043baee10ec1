"""Relations between the probabilities of failure of an image, for ``robaudit verify``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from robaudit.runs.rows import Row
from robaudit.stats.relations import (
    PROBABILITY,
    BoundingPair,
    Relation,
    Setting,
    approximate,
    failure_claims,
)


def _agreement(rows: Sequence[Row], setting: Setting) -> Iterator[BoundingPair]:
    """Measurements of the same probability by different estimators, except approximations, which
    are known to differ."""
    measured = [
        (row, ends)
        for row in rows
        if not approximate(row) and (ends := failure_claims(row, setting)) is not None
    ]
    for (row, first), (other, second) in itertools.permutations(measured, 2):
        if row.at == other.at:
            yield BoundingPair(f"p_fail at {row.at}", first[0], second[1])


AGREEMENT = Relation(
    "p_robust = 1 - p_fail",
    "estimators of the same probability agree",
    "both are about the same probability",
    PROBABILITY,
    _agreement,
)
