"""Copies of a mixture: E[l^t] without bias wherever the centres are, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.numerics.shifted_copies import AT_ONCE, copied, starts

IMAGES = 200


def linear(_: Tensor, z: Tensor) -> Tensor:
    """log l = z_1: log E[l^t] = t^2 / 2."""
    return z[:, 0].double()


@pytest.mark.parametrize("centre", [(2.0, 0.0), (-1.0, 3.0)])
def test_masses_are_unbiased_and_errors_are_what_they_say(centre: tuple[float, float]) -> None:
    generator, centres = torch.Generator().manual_seed(0), torch.tensor(centre).expand(1, IMAGES, 2)
    copies = copied(linear, lambda: torch.randn(IMAGES * AT_ONCE, 2, generator=generator), IMAGES, 500, 500, centres)
    for t in (0.0, 1.0, 1.5):
        log_mass, std_error, _ = copies.log_mass(t)
        relative = log_mass.exp() / math.exp(t * t / 2) - 1
        assert abs(float(relative.mean())) < 4 * float(relative.std()) / math.sqrt(IMAGES)
        assert float(std_error.square().mean().sqrt()) == pytest.approx(float(relative.std()), rel=0.25)


def test_copies_reach_as_far_as_they_are_enough() -> None:
    """Those about the tilted distribution at t = 4 reach it; plain ones do not."""
    generator, far = torch.Generator().manual_seed(0), torch.tensor((4.0, 0.0)).expand(1, IMAGES, 2)
    reached = []
    for centres in (far, None):
        copies = copied(linear, lambda: torch.randn(IMAGES * AT_ONCE, 2, generator=generator), IMAGES, 500, 500, centres)
        (start,) = starts(copies, (0.0, 1.0, 2.0, 4.0), (4.0,))
        reached.append(start.temperature)
    assert (reached[0] == 4).all()
    assert (reached[1] < 4).all()
