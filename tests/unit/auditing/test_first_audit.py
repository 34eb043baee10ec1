"""The size of a first audit, from the speed of the machine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.auditing.expected import Speed
from robaudit.auditing.first_audit import (
    DRAWS,
    SECONDS,
    AuditSize,
    FirstAudit,
    expected_intervals,
    first_audit,
    largest_size,
)
from robaudit.engine.registry import tasks_of
from robaudit.spec.first_spec import MOST_DRAWS, Given
from robaudit.spec.model import AuditSpec
from tests.specs import digits

FREE = Given(images=False, draws=False)
TWO_LEVELS = [{"mc": {"draws": MOST_DRAWS}}]


def spec_of(estimators: Any = TWO_LEVELS) -> AuditSpec:
    return AuditSpec.model_validate(digits(noise={"sigma": [0.02, 0.05]}, estimators=estimators))


def proposal(images: int, rate: float, numbers: Given = FREE) -> FirstAudit:
    return first_audit(spec_of(), images, Speed(rate, 10), numbers)


def size_at(rate: float, images: int, *, all_images: bool = False) -> AuditSize:
    """At two noise levels, where each needs the clean pass."""
    seconds = {draws: 2 * (draws + 1) / rate for draws in DRAWS}
    return largest_size(seconds, images, all_images=all_images)


@pytest.mark.parametrize(
    ("rate", "images", "size"),
    [
        (100_000.0, 500, (500, 1000)),
        (1669.0, 500, (500, 1000)),  # 1,001,000 passes in 600 s
        (1668.0, 500, (500, 512)),
        (38.0, 500, (500, 16)),
        (38.0, 200, (200, 32)),
        (14.0, 500, (460, 8)),
        (3.0, 500, (100, 8)),
        (2.9, 500, (100, 4)),
        (1.0, 500, (100, 2)),
        (0.01, 500, (100, 1)),
        (0.01, 57, (57, 1)),
    ],
)
def test_draws_are_reduced_then_images_then_draws(
    rate: float, images: int, size: tuple[int, int]
) -> None:
    assert size_at(rate, images) == size


speeds = st.floats(-3, 6).map(lambda exponent: 10.0**exponent)


@given(rate=speeds, images=st.integers(1, 500), all_images=st.booleans())
def test_it_fits_unless_it_is_the_smallest(rate: float, images: int, all_images: bool) -> None:
    size = size_at(rate, images, all_images=all_images)
    fewest = images if all_images else min(images, 100)
    assert fewest <= size.images <= images
    assert size.draws in DRAWS
    if size.images < images:
        assert size.draws <= 8
    fits = size.images * 2 * (size.draws + 1) / rate <= SECONDS
    assert fits or size == (fewest, 1)


@given(rates=st.lists(speeds, min_size=2), images=st.integers(1, 500), all_images=st.booleans())
def test_a_faster_machine_takes_as_many_at_least(
    rates: list[float], images: int, all_images: bool
) -> None:
    sizes = [size_at(rate, images, all_images=all_images) for rate in sorted(rates)]
    for slower, faster in pairwise(sizes):
        assert slower.images <= faster.images
        assert slower.draws <= faster.draws


def test_the_passes_are_those_of_the_estimators() -> None:
    spec = spec_of([{"mc": {"draws": 1000}}, "taylor"])
    found = first_audit(spec, 500, Speed(38.0, 10), FREE)
    tasks = tasks_of(spec_of([{"mc": {"draws": found.draws}}, "taylor"]))
    images = 500 if found.images is None else found.images
    seconds = images * sum(task.cost(10) for task in tasks) / 38.0
    assert seconds <= SECONDS
    assert found.notes[0].startswith(f"about {seconds / 60:.2g} min on this machine")


def test_what_is_said() -> None:
    found = proposal(500, 38.0)
    assert (found.images, found.draws) == (None, 16)
    assert found.notes == (
        "about 7.5 min on this machine: 500 images x 34 passes at 38 passes/s; 1,000 copies of "
        "each: about 7.3 h",
        "if the mean p_robust is near 0.9, expect about +- 0.007 for these 500 images and up to "
        "+- 0.03 for images like these (95 % intervals)",
    )
    assert found.comment == (
        "draws: noisy copies of each image; 16 take about 7.5 min at the speed that robaudit init "
        "measured, 1,000 about 7.3 h"
    )


def test_a_fast_network_takes_all_draws() -> None:
    found = proposal(500, 1e5)
    assert (found.images, found.draws, found.comment) == (None, MOST_DRAWS, "")
    assert found.notes[0] == (
        "about 10 s on this machine: 500 images x 2,002 passes at 100,000 passes/s"
    )


def test_given_numbers_stay() -> None:
    both = proposal(400, 38.0, Given(images=True, draws=True))
    assert (both.images, both.draws) == (None, None)
    assert both.notes[0].endswith("; --budget 10m ends it earlier, with what it has by then")
    images = proposal(500, 2.0, Given(images=True, draws=False))
    assert (images.images, images.draws) == (None, 1)
    draws = proposal(500, 38.0, Given(images=False, draws=True))
    assert (draws.images, draws.draws, draws.comment) == (100, None, "")


def test_other_estimators_have_no_expected_interval() -> None:
    spec = spec_of([{"logit_gaussian": {"draws": 160}}])
    found = first_audit(spec, 500, Speed(1e5, 10), Given(images=False, draws=True))
    assert len(found.notes) == 1


def test_the_intervals_of_a_single_image() -> None:
    assert expected_intervals(AuditSize(1, 100)) == (
        "if the mean p_robust is near 0.9, expect about +- 0.06 for this image and up to +- 0.6 "
        "for images like these (95 % intervals)"
    )
