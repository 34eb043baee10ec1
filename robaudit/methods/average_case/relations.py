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
    """Measurements of the same probability by different estimators.

    Approximations are left out, as they are known to differ.
    """
    claims = [(row, failure_claims(row, setting)) for row in rows if not approximate(row)]
    measured = [(row, ends) for row, ends in claims if ends is not None]
    for (row, first), (other, second) in itertools.permutations(measured, 2):
        if row.at == other.at:
            # The lower end of one must not be above the upper end of the other.
            lower, _ = first
            _, upper = second
            yield BoundingPair(f"p_fail at {row.at}", lower, upper)


AGREEMENT = Relation(
    "p_robust = 1 - p_fail",
    "estimators of the same probability agree",
    "both are about the same probability",
    PROBABILITY,
    _agreement,
)
