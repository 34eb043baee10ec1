"""Linear corruption: gamma x + (1 - gamma) n."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from robaudit.noise.linear import LinearCorruption
from tests.unit.noise.kinds import images, normal

SHAPE = (1, 3, 4)
N = 20_000


def noisy(form: LinearCorruption, x: torch.Tensor, z: torch.Tensor, share: float) -> torch.Tensor:
    return form.noisy(x, z, share, ids=["a"] * len(x))


@given(share=st.floats(1e-6, 1.0), mean=st.floats(0, 1), std=st.floats(0, 1), x=st.floats(0, 1), z=st.floats(-5, 5))
def test_the_formula(share: float, mean: float, std: float, x: float, z: float) -> None:
    form = LinearCorruption(mean=mean, std=std)
    pixel, draw = (torch.full((1, 1, 1, 1), value, dtype=torch.float64) for value in (x, z))
    assert noisy(form, pixel, draw, share).item() == pytest.approx((1 - share) * x + share * (mean + std * z), abs=1e-12)


def test_without_deviation_it_does_the_same_every_time() -> None:
    assert LinearCorruption().random
    grey = LinearCorruption(std=0)
    assert not grey.random
    x = images(4, SHAPE)
    assert torch.equal(noisy(grey, x, normal(4, SHAPE, 3), 0.3), noisy(grey, x, normal(4, SHAPE, 4), 0.3))


def test_fractions_and_bad_options() -> None:
    assert LinearCorruption.model_validate({"std": "6/255"}) == LinearCorruption()
    for options in ({"mean": 2}, {"std": -1}, {"mean": True}, {"std": math.inf}):
        with pytest.raises(ValidationError):
            LinearCorruption.model_validate(options)
