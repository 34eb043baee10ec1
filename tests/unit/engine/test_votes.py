"""Votes that are counted in rounds until an image is decided."""

from __future__ import annotations

from itertools import pairwise

import pytest

from robaudit.engine.votes import next_look


@pytest.mark.parametrize("most", [16, 17, 10_000])
def test_looks_are_a_fixed_ladder(most: int) -> None:
    """Steps of at most an eighth, so that no image takes many more draws than it needs."""
    looks = [next_look(0, most)]
    while looks[-1] < most:
        looks.append(next_look(looks[-1], most))
    assert (looks[0], looks[-1]) == (16, most)
    assert all(0 < after - before <= max(8, before // 8) for before, after in pairwise(looks))
