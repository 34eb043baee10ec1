"""Spatial transforms: each alone against an independent program, all in their order, and the ranges
at every size."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import ndimage

from robaudit.errors import SpecError
from robaudit.noise.spatial import Spatial
from tests.golden import Golden
from tests.unit.noise.corrupting import latents, photographs, seeded

ONLY = {"flip": False, "scale": 0.0, "rotation": 0.0, "crop": 0.0}
FAR = 40.0  # a normal value whose Phi is 1 to double precision


def state(
    flip: float = FAR, zoom: float = 0.0, angle: float = 0.0, left: float = 0.0, top: float = 0.0
) -> torch.Tensor:
    return torch.tensor([[flip, zoom, angle, left, top]])


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 20)])
def test_the_limit_of_small_sizes_is_the_image(shape: tuple[int, int, int]) -> None:
    x = photographs(6, shape, dtype=torch.float64)
    z = latents(Spatial(), 6, shape, dtype=torch.float64)
    noisy = Spatial(flip=False).noisy(x, z, 1e-6, ids=["0"] * 6)
    torch.testing.assert_close(noisy, x, rtol=0, atol=1e-5)
    mirrored = Spatial().noisy(x, z, 1e-6, ids=["0"] * 6)
    expected = torch.where((z[:, 0] < 0)[:, None, None, None], x.flip(3), x)
    torch.testing.assert_close(mirrored, expected, rtol=0, atol=1e-5)


def test_half_of_the_draws_are_flipped() -> None:
    kind = Spatial(**{**ONLY, "flip": True})
    x = torch.zeros(1, 1, 4, 4)
    x[..., 0] = 1
    n = 20_000
    noisy = kind.noisy(x, latents(kind, n, (1, 4, 4)), 1.0, ids=["0"])
    flipped = float((noisy[:, 0, 0, 3] > 0.5).double().mean())
    assert abs(flipped - 0.5) < 5 * 0.5 / math.sqrt(n)


@pytest.mark.parametrize("z_angle", [-FAR, -0.7, 0.3, FAR])
def test_rotation_is_that_of_scipy(z_angle: float) -> None:
    shape = (1, 33, 24)
    x = photographs(1, shape, dtype=torch.float64)
    kind = Spatial(**{**ONLY, "rotation": 30})
    noisy = kind.noisy(x, state(angle=z_angle).double(), 1.0, ids=["0"])[0, 0].numpy()
    degrees = 30 * math.erf(z_angle / math.sqrt(2))
    expected = ndimage.rotate(x[0, 0].numpy(), degrees, reshape=False, order=1, mode="mirror")
    np.testing.assert_allclose(noisy, expected, atol=1e-6)


@pytest.mark.parametrize("z_zoom", [-FAR, 0.4, FAR])
def test_scale_is_an_affine_map_about_the_middle(z_zoom: float) -> None:
    x = photographs(1, (1, 21, 30), dtype=torch.float64)
    noisy = (
        Spatial(**{**ONLY, "scale": 0.2})
        .noisy(x, state(zoom=z_zoom).double(), 1.0, ids=["0"])[0, 0]
        .numpy()
    )
    zoom = 1 + 0.2 * math.erf(z_zoom / math.sqrt(2))
    middle = np.array([10.0, 14.5])
    expected = ndimage.affine_transform(
        x[0, 0].numpy(), np.eye(2) / zoom, offset=middle - middle / zoom, order=1, mode="mirror"
    )
    np.testing.assert_allclose(noisy, expected, atol=1e-6)


def test_crop_is_that_of_the_reflected_image() -> None:
    x = photographs(1, (3, 16, 12), dtype=torch.float64)
    kind = Spatial(**{**ONLY, "crop": 2})
    pad = 6
    wide = torch.nn.functional.pad(x, (pad,) * 4, mode="reflect")
    z = latents(kind, 60, (3, 16, 12), dtype=torch.float64)
    z[0, 3:] = FAR
    z[1, 3:] = -FAR
    noisy = kind.noisy(x, z, 3.0, ids=["0"])
    seen = set()
    for row, (u_x, u_y) in zip(
        noisy, (0.5 * (1 + torch.erf(z[:, 3:] / math.sqrt(2)))).tolist(), strict=True
    ):
        left, top = (min(int(u * (2 * pad + 1)), 2 * pad) for u in (u_x, u_y))
        torch.testing.assert_close(
            row, wide[0, :, top : top + 16, left : left + 12], rtol=0, atol=1e-9
        )
        seen |= {left, top}
    assert seen == set(range(2 * pad + 1))


def test_crop_offsets_are_uniform() -> None:
    kind = Spatial(**{**ONLY, "crop": 1})
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 2, 2] = 1
    n = 9000
    noisy = kind.noisy(x, latents(kind, n, (1, 5, 5)), 1.0, ids=["0"])
    counts = noisy.round().sum(0)[0, 1:4, 1:4]
    assert int(counts.sum()) == n
    assert float((counts / n - 1 / 9).abs().max()) < 5 * math.sqrt((1 / 9) * (8 / 9) / n)


def test_all_four_in_their_order() -> None:
    """One pixel of a linear ramp: shift, rotation, scale and flip of its coordinates by hand."""
    height = 31
    width = 41
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    x = torch.stack((rows, columns)).double()[None] / 100
    z = torch.randn(50, 5, generator=seeded(4), dtype=torch.float64)
    kind = Spatial(scale=0.1, rotation=10, crop=4)
    noisy = kind.noisy(x, z, 0.5, ids=["0"])
    u = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    for k in range(50):
        flip = float(u[k, 0]) < 0.5
        zoom = 1 + 0.05 * (2 * u[k, 1] - 1)
        turn = torch.deg2rad(5 * (2 * u[k, 2] - 1))
        left = torch.floor(u[k, 3] * 5) - 2
        top = torch.floor(u[k, 4] * 5) - 2
        row = 18 + top - 15
        column = 17 + left - 20
        from_row = (turn.cos() * row + turn.sin() * column) / zoom
        from_column = (turn.cos() * column - turn.sin() * row) / zoom
        expected = (
            torch.stack((15 + from_row, 20 - from_column if flip else 20 + from_column)) / 100
        )
        torch.testing.assert_close(noisy[k, :, 18, 17], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [1, 10]),
        ({"scale": 0}, [1, 20]),
        ({"scale": 0, "rotation": 0}, [2, 7]),
        ({"crop": 28}, [1]),
    ],
)
def test_sizes_that_leave_nothing_are_refused(
    options: dict[str, float], sizes: list[float], golden: Golden
) -> None:
    with pytest.raises(SpecError) as caught:
        Spatial(**options).check((1, 28, 40), sizes)
    golden(caught.value)
    assert caught.value.where == "size"


@pytest.mark.parametrize(
    "options",
    [
        {"scale": -0.1},
        {"rotation": 181},
        {"crop": -1},
        {"crop": True},
        {"shear": 1},
        {"flip": "maybe"},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Spatial.model_validate(options)


def test_an_image_of_one_pixel() -> None:
    x = torch.full((1, 1, 1, 1), 0.25)
    noisy = Spatial(crop=0).noisy(x, torch.randn(4, 5, generator=seeded(2)), 1.0, ids=["0"])
    torch.testing.assert_close(noisy, x.expand(4, 1, 1, 1))
