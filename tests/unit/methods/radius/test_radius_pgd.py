"""The first radius on a grid at which projected gradient ascent succeeds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from robaudit.methods.radius.radius_exact import RadiusExact
from robaudit.methods.radius.radius_pgd import RadiusPgd
from robaudit.quantities import IntervalKind
from tests.unit.engine.tools import SHAPE, curved, known, linear, values, work_on


def test_on_linear_networks_the_second_class_is_reached_in_the_first_ball_that_can() -> None:
    """Two classes: the exact radius, rounded up to the grid. More: never less, as the target may
    not be the nearest."""
    for classes in (2, 6):
        work = work_on(linear(classes), images=8)
        found = values(RadiusPgd(step=0.1, cap=4, steps=40), work)
        exact = values(RadiusExact(), work)
        for image, truth in zip(found, exact, strict=True):
            for one, other in zip(image, truth, strict=True):
                assert one.interval.kind is IntervalKind.UPPER_BOUND
                assert one.upper == one.value
                assert one.value >= other.value - 1e-6
                if classes == 2:
                    assert one.value - 0.1 < other.value + 1e-6
                    assert one.flips_to == other.flips_to


def test_rows() -> None:
    work = work_on(curved(), images=6)
    estimator = RadiusPgd(steps=20, restarts=2)
    for image in values(estimator, work):
        for one, (norm, step) in zip(image, (("l2", 0.32), ("linf", 0.025)), strict=True):
            assert known(one.search).step == step == estimator.spacing(norm)
            assert known(one.clean).difficulty is not None
            assert math.isclose(one.value / step, round(one.value / step), rel_tol=1e-9)
            assert one.value == round(one.value, 12), "0.075, not 0.07500000000000001"
            assert one.lower == 0


def test_beyond_the_cap() -> None:
    work = work_on(linear(3), images=4)
    for image in values(RadiusPgd(step=1e-5, cap=3.05e-5, steps=3, restarts=2), work):
        for one in image:
            assert (one.value, one.interval.kind, one.flips_to, one.upper) == (
                3e-5,
                IntervalKind.CENSORED,
                None,
                None,
            )
            assert one.backwards == 2 * 3 * 2 * 3
    estimator = RadiusPgd(step=1e-5, cap=3.05e-5, steps=3, restarts=2)
    assert estimator.limit("l2", SHAPE) == 3e-5


def test_nothing_finite() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = x.flatten(1)[:, :2] * torch.tensor([0.0, 0.0]) + torch.tensor([1.0, 0.0])
            moved = (x - x.round(decimals=2)).abs().flatten(1).amax(1, keepdim=True) > 1e-4
            return torch.where(moved, torch.nan, z)

    work = work_on(curved(), images=2)
    x = work.x.round(decimals=2)
    work = type(work).from_images(work_on(Broken(), images=2).engine, x, work.at)
    for image in values(RadiusPgd(steps=2, restarts=1, cap=0.64, norm="l2"), work):
        assert image[0].interval.kind is IntervalKind.CENSORED
        assert image[0].numbers["not_finite"] == 2 * 3
        assert image[0].note == "6 points gave non-finite logits, counted as no flips"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cap": 0.1}, "cap 0.1 is below the first radius of the grid"),
        ({"step": 1e-6, "cap": 1}, "more than 100,000 radii"),
    ],
)
def test_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RadiusPgd.model_validate(options)


def test_fractions_are_numbers() -> None:
    assert (
        RadiusPgd.model_validate({"step": "8/255", "cap": "16/255", "norm": "linf"}).balls("linf")
        == 2
    )
