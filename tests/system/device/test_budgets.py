"""Budgets: how often an estimator may wait for a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.device.count import measure

# Synchronisations of a chunk of 16 images with ten classes, for each image. noise_tolerance waits
# once a round of its search.
PER_IMAGE = {"logit_gaussian": 1.5, "mmse": 3.0, "taylor": 3.0, "noise_tolerance": 4.0}
LAUNCHES = {"logit_gaussian": 40, "mmse": 30, "noise_tolerance": 100}
"""Of a chunk of 64 images, for each; most are for the noise, image by image."""
OPTIONS: dict[str, dict[str, Any]] = {"noise_tolerance": {"tolerance": 1.0}}


@pytest.mark.parametrize("name", ["mc", "certified_radius"])
def test_none_a_pass(name: str) -> None:
    few, many = (measure(name, 4, draws=number) for number in (400, 2000))
    assert many.passes > few.passes
    assert many.card.syncs == few.card.syncs <= 5, many.card.text()


@pytest.mark.parametrize("name", PER_IMAGE)
def test_few_an_image(name: str) -> None:
    found = measure(name, **OPTIONS.get(name, {}))
    assert found.card.syncs <= PER_IMAGE[name] * found.images, found.card.text()


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_chunk_is_one_piece_of_work(name: str) -> None:
    found = measure(name, 64)
    assert found.card.launches <= LAUNCHES[name] * found.images, found.card.text()
    assert found.card.syncs <= 1.5 * found.images, found.card.text()


def test_a_gradient_pass_of_a_search() -> None:
    """The host waits once a pass, for one table."""
    found = measure("radius_attack", norm="l2")
    assert found.card.launches <= 60 * found.gradient_passes, found.card.text()
    assert found.card.syncs <= 1.1 * found.passes, found.card.text()
