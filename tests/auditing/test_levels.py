"""Levels that cannot be meant are told whatever the size of the images, and whosever kind the noise is."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robaudit import plugins
from robaudit.auditing.checks import InputCheck, level_warnings
from robaudit.errors import NoiseError
from robaudit.noise import registry
from robaudit.noise.gaussian import Gaussian
from robaudit.spec.model import AuditSpec
from tests.specs import digits


class Raises(Gaussian):
    """Somebody's kind, which fails."""

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str], out: Tensor | None = None) -> Tensor:
        raise ValueError("no")


IN_RANGE = InputCheck(10, 1, 1, 1, (), {"a": ("", 0)}, (0.0, 1.0))


def told(noise: dict[str, object], image: torch.Tensor, check: InputCheck = IN_RANGE) -> list[str]:
    spec = AuditSpec.model_validate(digits(noise=noise))
    return list(level_warnings(registry.build(spec.noise, Path()), image, check))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 8, 8), (3, 512, 512)])
def test_of_images_of_any_size(shape: tuple[int, int, int]) -> None:
    (line,) = told({"sigma": [0.5, 8]}, torch.full(shape, 0.5))
    assert "sigma 8 is 8 times" in line
    assert told({"kind": "gaussian_correlated", "length": 1.5, "sigma": 8}, torch.full(shape, 0.5))


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([0.02, 0.05, 8], "sigma 8 is 8 times"),
        ([8, 4, 2, 1], "sigma 2 and 2 more levels are more than the whole range of pixels in [0, 1]; 2/255 = 0.00784 was probably meant"),
        ([0.5, 1.0], ""),
        ([1.0, 1.5], "sigma 1.5 is 1.5 times"),
        ([0.32 * step for step in range(1, 40)], ""),  # a curve
        ([0.25, 0.5, 1.0, 2.0], ""),
        ([0.5, 30], "sigma 30 is 30 times"),
    ],
    ids=str,
)
def test_levels_that_smaller_ones_lead_up_to_are_meant(levels: list[float], says: str) -> None:
    found = told({"sigma": levels}, torch.full((1, 8, 8), 0.5))
    assert len(found) == bool(says)
    assert says in "".join(found)


def test_other_pixels_have_another_warning() -> None:
    check = InputCheck(10, 1, 1, 1, ("pixels run from 0 to 255",), {"a": ("", 0)}, (0.0, 255.0))
    assert told({"sigma": 8}, torch.full((1, 8, 8), 100.0), check) == []


def test_a_plugin_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [*entry_points(group=registry.GROUP), EntryPoint("raises", "tests.auditing.test_levels:Raises", registry.GROUP)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == registry.GROUP else entry_points(group=group))
    with pytest.raises(NoiseError, match="noise raises"):
        told({"kind": "raises", "sigma": 8}, torch.zeros(1, 8, 8))
