"""`mc` that stops: when, with which draws, and the same however a run is cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from robaudit.engine.votes import Counts, next_look
from robaudit.methods.average_case.mc import StoppingRule, draw_until_stopped
from robaudit.numerics.intervals import clopper_pearson
from tests.unit.engine.tools import build, curved, known, linear, work_on

OPTIONS: list[dict[str, Any]] = [
    {"tolerance": 0.03},
    {"decide": 0.9},
    {"tolerance": 0.02, "decide": 0.75},
    {"tolerance": 0.001, "max_draws": 17},
]


def ladder(most: int) -> list[int]:
    found = [0]
    while found[-1] < most:
        found.append(next_look(found[-1], most))
    return found[1:]


def coin(p: float, seed: Sequence[int]) -> Callable[[Sequence[int], int, int], Counts]:
    """Images that keep their class 0 with probability p, independently at each draw."""
    generator = np.random.default_rng(seed)

    def count(images: Sequence[int], start: int, draws: int) -> Counts:
        kept = generator.binomial(draws, p, len(images))
        return np.stack([kept, draws - kept, np.zeros_like(kept)], axis=1)

    return count


def test_looks_are_a_fixed_ladder() -> None:
    """Steps of at most an eighth, so that no image takes many more draws than it needs."""
    for most in (16, 17, 10_000):
        steps = ladder(most)
        assert (steps[0], steps[-1]) == (16, most)
        assert all(0 < b - a <= max(8, a // 8) for a, b in pairwise(steps))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_image_stops_when_it_has_what_was_asked_and_no_earlier(
    options: dict[str, Any],
) -> None:
    rule = StoppingRule(
        options.get("tolerance"), options.get("decide"), options.get("max_draws", 100_000)
    )
    rows = build("mc", **options).estimate(work_on(curved(), images=15))
    for row in rows:
        draws = row.forwards - 1
        assert row.votes is not None
        assert row.lower is not None
        assert row.upper is not None
        assert row.std_error is not None
        assert row.votes.draws == draws
        assert row.interval.text == "confidence-sequence"
        assert row.lower <= row.value <= row.upper
        assert row.std_error == pytest.approx(
            math.sqrt(row.value * (1 - row.value) / draws), rel=0.3, abs=1 / draws
        )
        decided = rule.decide is not None and (row.lower >= rule.decide or row.upper < rule.decide)
        narrow = rule.tolerance is not None and row.upper - row.lower <= 2 * 1.96 * rule.tolerance
        assert decided or narrow or draws == rule.most
        assert row.note.startswith("undecided") == (
            not decided if rule.decide is not None else not narrow
        )
        assert draws in ladder(rule.most)
    assert len({row.forwards for row in rows}) > 1 or options.get("max_draws") == 17


def test_its_draws_are_the_first_of_a_fixed_number() -> None:
    work = work_on(curved(), images=6)
    for i, row in enumerate(build("mc", decide=0.9).estimate(work)):
        alone = work_on(curved(), images=1, first=i)
        fixed = build("mc", draws=row.forwards - 1).estimate(alone)[0]
        assert fixed.votes is not None
        assert row.votes is not None
        assert fixed.votes.counts == row.votes.counts
        assert (fixed.value, fixed.flips_to) == (row.value, row.flips_to)


@pytest.mark.parametrize("p", [0.001, 0.5, 0.9])
@pytest.mark.parametrize(
    "rule",
    [StoppingRule(0.02, None, 4000), StoppingRule(None, 0.9, 4000), StoppingRule(0.02, 0.95, 4000)],
    ids=str,
)
def test_intervals_of_images_that_stopped_cover(rule: StoppingRule, p: float) -> None:
    images = 400
    found = draw_until_stopped(rule, [0] * images, coin(p, [3, round(1000 * p)]))
    covered = sum(known(one.lower) <= p <= known(one.upper) for one in found)
    assert covered / images >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / images)


@pytest.mark.parametrize("p", [0.86, 0.94])
def test_decisions_are_right_and_cheap(p: float) -> None:
    images = 400
    found = draw_until_stopped(
        StoppingRule(None, 0.9, 100_000), [0] * images, coin(p, [4, round(100 * p)])
    )
    assert not any(one.note for one in found)
    wrong = sum((known(one.lower) >= 0.9) != (p > 0.9) for one in found)
    assert wrong / images <= 0.05
    # Clopper-Pearson with this many draws decides no more than 19 in 20
    fixed = next(n for n in range(50, 10_000, 10) if not _straddles(p, n))
    assert np.mean([one.forwards - 1 for one in found]) < 4 * fixed


def _straddles(p: float, n: int) -> bool:
    """Whether the interval at the count a 20th of the images are beyond, towards .9, still holds
    it."""
    sign = 1 if p < 0.9 else -1
    lower, upper = clopper_pearson(round(n * p + sign * 1.645 * math.sqrt(n * p * (1 - p))), n)
    return bool(lower <= 0.9 <= upper)


def test_logits_that_are_not_finite_are_flips() -> None:
    network = linear(3)

    def broken(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = network(x)
        return torch.where(x.flatten(1).sum(1, keepdim=True) > 13.5, out * torch.nan, out)

    rows = build("mc", decide=0.999, max_draws=200).estimate(work_on(broken, images=4))
    assert any(known(row.votes).lost for row in rows)
    for row in rows:
        lost = known(row.votes).lost
        assert row.votes is not None
        assert sum(row.votes.counts) + lost == row.forwards - 1
        assert ("non-finite" in row.note) == bool(lost)
