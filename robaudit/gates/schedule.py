"""After how many draws may one look, when the error is split over the looks beforehand?"""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.gates.result import Decision

FIRST, SHARE = 64, 16
"""Draws at the first look: so many, or this part of all."""


def possible_looks(most: int) -> tuple[int, ...]:
    """The draws after which one may look: a sixteenth of all, at least 64, and twice as many each time; last, all. At most five.

    They are fixed beforehand, and the error is split over all of them, those that are passed over included: so an interval holds
    whichever look it is that the looks before have led to.
    """
    looks = [min(most, max(FIRST, -(-most // SHARE)))]
    while looks[-1] < most:
        looks.append(min(most, 2 * looks[-1]))
    return tuple(looks)


def next_draws(draws: int, most: int, decisions: Sequence[Decision]) -> int:
    """Draws at the next look: the first of the possible ones at which the gates probably have what they lack."""
    lacking = max((one.more for one in decisions if one.verdict == "inconclusive" and one.more is not None), default=0)
    return next(look for look in possible_looks(most) if look > draws and (look >= draws + lacking or look == most))
