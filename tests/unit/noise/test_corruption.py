"""Corruptions against independent programs, in [0, 1], and stronger with severity."""

from __future__ import annotations

import colorsys
import io
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError
from scipy import ndimage

from robaudit.errors import SpecError
from robaudit.noise import elastic, filters, fog
from robaudit.noise.corruption import FORMS, Corruption
from tests.golden import Golden
from tests.unit.noise.corrupting import latents, photographs, seeded

ALL = tuple(FORMS)
RANDOM = ("motion_blur", "fog", "elastic")


def run(
    name: str, severity: float, x: torch.Tensor, z: torch.Tensor | None = None, scale: str = "auto"
) -> torch.Tensor:
    kind = Corruption.model_validate({"name": name, "scale": scale})
    shape = (x.shape[1], x.shape[2], x.shape[3])
    z = latents(kind, len(x), shape, dtype=x.dtype) if z is None else z
    return kind.noisy(x, z, severity, ids=["0"] * len(x))


@pytest.mark.parametrize("name", ALL)
def test_random_ones_say_so(name: str) -> None:
    kind = Corruption(name=name)
    x = photographs(1, (3, 32, 32))
    noisy = kind.noisy(x, latents(kind, 5, (3, 32, 32)), 4, ids=["0"])
    assert kind.random == (name in RANDOM) == (kind.latent_shape((3, 32, 32)) != (0,))
    assert kind.random == (not torch.equal(noisy[0], noisy[1]))


@pytest.mark.parametrize("scale", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", [name for name in ALL if name not in ("saturate", "elastic")])
def test_distortion_grows_with_severity(name: str, scale: str) -> None:
    x = photographs(8, (3, 64, 64))
    distances = [
        float((run(name, severity, x, scale=scale) - x).square().mean()) for severity in range(1, 6)
    ]
    assert distances[4] > distances[0] > 0
    # fog's strength and roughness change against each other
    assert name == "fog" or distances == sorted(distances)


def test_saturation_goes_down_twice_and_then_up() -> None:
    x = photographs(24, (3, 32, 32))

    def spread(y: torch.Tensor) -> float:
        return float((y.amax(1) - y.amin(1)).mean())

    found = [spread(run("saturate", severity, x)) for severity in range(1, 6)]
    assert found[1] < found[0] < spread(x) < found[2] < found[3] < found[4]


@pytest.mark.parametrize(("height", "preset"), [(63, "cifar"), (64, "imagenet")])
def test_the_parameters_follow_the_height(height: int, preset: str) -> None:
    for name in ALL:
        for scale in ("auto", preset):
            form = Corruption.model_validate({"name": name, "scale": scale})
            assert form.parameters(4, (3, height, 20)) == getattr(FORMS[name], preset)[3]


# Blurs


def test_gaussian_blur_at_a_severity() -> None:
    x = photographs(2, (1, 28, 28), dtype=torch.float64)
    for severity, sigma in enumerate((0.4, 0.6, 0.7, 0.8, 1.0), 1):
        expected = ndimage.gaussian_filter(
            x.numpy(), (0, 0, sigma, sigma), mode="nearest", truncate=4.0
        )
        np.testing.assert_allclose(run("gaussian_blur", severity, x).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("radius", "alias", "sides"), [(0.3, 0.4, (20, 33)), (4.0, 0.5, (9, 4)), (10.0, 0.5, (20, 33))]
)
def test_defocus_blur_is_a_correlation_with_a_disk(
    radius: float, alias: float, sides: tuple[int, int]
) -> None:
    x = photographs(1, (1, *sides), dtype=torch.float64)
    reach = 8 if radius <= 8 else 10
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = (rows**2 + columns**2 <= radius**2).astype(float)
    taps = (
        np.exp(-0.5 * (np.arange(-1, 2) / alias) ** 2)
        if radius <= 8
        else np.exp(-0.5 * (np.arange(-2, 3) / alias) ** 2)
    )
    taps /= taps.sum()
    kernel = ndimage.correlate1d(
        ndimage.correlate1d(disk / disk.sum(), taps, 0, mode="mirror"), taps, 1, mode="mirror"
    )
    expected = ndimage.correlate(x[0, 0].numpy(), kernel / kernel.sum(), mode="mirror")
    np.testing.assert_allclose(
        filters.correlated(x, filters.disk_kernel(radius, alias))[0, 0].numpy(), expected, atol=1e-8
    )


@pytest.mark.parametrize("degrees", [-45.0, 13.0])
def test_motion_blur_is_a_mean_of_shifted_images(degrees: float) -> None:
    x = photographs(1, (3, 24, 18), dtype=torch.float64)
    kernel = filters.motion_kernel(6, 2.0)
    blurred = filters.motion_blur(x, torch.tensor([degrees], dtype=torch.float64), kernel)[
        0
    ].numpy()
    image = x[0].numpy()
    expected = np.zeros((3, 24, 18))
    for row in range(24):
        for column in range(18):
            for i, weight in enumerate(kernel):
                down = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
                right = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
                expected[:, row, column] += (
                    weight * image[:, min(max(row + down, 0), 23), min(max(column + right, 0), 17)]
                )
    np.testing.assert_allclose(blurred, expected, atol=1e-12)


def test_angles_of_motion_are_uniform() -> None:
    """A bright pixel is smeared by up to 45 degrees to both sides; the share of draws beyond 22.5
    degrees is a half."""
    n = 4000
    kind = Corruption(name="motion_blur")
    x = torch.zeros(1, 1, 48, 48)
    z = latents(kind, n, (1, 48, 48))
    angles = 45 * torch.erf(z[:, 0] / math.sqrt(2))
    assert float(angles.abs().max()) < 45
    assert abs(float((angles.abs() > 22.5).double().mean()) - 0.5) < 5 * 0.5 / math.sqrt(n)
    x[..., 24, 24] = 1
    smeared = kind.noisy(x, z, 5, ids=["0"])
    rows = torch.arange(48.0)[None, :, None]
    centre = (smeared[:, 0] * (rows - 24)).sum((1, 2)) / smeared.sum((1, 2, 3))
    # the pixel at an angle below is read, so the smear goes up
    assert float(torch.corrcoef(torch.stack((centre, angles)))[0, 1]) < -0.99


# Formats and pixels


def eight_bits(x: torch.Tensor) -> NDArray[np.uint8]:
    planes = (x[0] * 255).round().to(torch.uint8).numpy()
    return planes[0] if len(planes) == 1 else np.ascontiguousarray(np.moveaxis(planes, 0, -1))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 41, 30)])
def test_jpeg_is_that_of_pillow(shape: tuple[int, int, int]) -> None:
    x = photographs(1, shape)
    for severity, quality in enumerate((80, 65, 58, 50, 40), 1):
        file = io.BytesIO()
        Image.fromarray(eight_bits(x)).save(file, "JPEG", quality=quality)
        expected = np.asarray(Image.open(file))
        np.testing.assert_array_equal(eight_bits(run("jpeg", severity, x)), expected)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 96, 80)])
def test_pixelate_is_two_resizes(shape: tuple[int, int, int]) -> None:
    """Pillow's, within its rounding to 8 bits: twice in each of its two resizes."""
    x = photographs(1, shape)
    for severity in range(1, 6):
        (share,) = Corruption(name="pixelate").parameters(severity, shape)
        image = Image.fromarray(eight_bits(x))
        small = image.resize((int(shape[2] * share), int(shape[1] * share)), Image.Resampling.BOX)
        expected = np.asarray(small.resize(image.size, Image.Resampling.BOX)).astype(float)
        ours = run("pixelate", severity, x)[0].numpy() * 255
        difference = np.abs((ours[0] if len(ours) == 1 else np.moveaxis(ours, 0, -1)) - expected)
        assert difference.max() <= 1.01


# Colours


def test_contrast_by_its_formula() -> None:
    x = photographs(3, (3, 32, 32), dtype=torch.float64)
    mean = x.mean((2, 3), keepdim=True)
    for severity, factor in enumerate((0.75, 0.5, 0.4, 0.3, 0.15), 1):
        torch.testing.assert_close(
            run("contrast", severity, x), mean + factor * (x - mean), rtol=0, atol=1e-12
        )


def by_pixel(x: torch.Tensor, change: tuple[float, float, float, float]) -> torch.Tensor:
    """Every pixel through the standard library's HSV: saturation * change[0] + change[1], value *
    change[2] + change[3]."""
    out = x.clone()
    for n, i, j in np.ndindex(len(x), x.shape[2], x.shape[3]):
        h, s, v = colorsys.rgb_to_hsv(*x[n, :, i, j].tolist())
        s, v = (min(max(a * b + c, 0.0), 1.0) for a, b, c in ((s, *change[:2]), (v, *change[2:])))
        out[n, :, i, j] = torch.tensor(colorsys.hsv_to_rgb(h, s, v), dtype=x.dtype)
    return out


def coloured() -> torch.Tensor:
    x = photographs(2, (3, 8, 8), dtype=torch.float64)
    # black, white and grey have no hue
    x[0, :, 0, 0] = 0
    x[0, :, 0, 1] = 1
    x[0, :, 0, 2] = 0.5
    x[0, :, 0, 3] = torch.tensor([1.0, 0.0, 0.0])
    return x


def test_brightness_is_the_value_of_hsv() -> None:
    x = coloured()
    for severity, by in enumerate((0.05, 0.1, 0.15, 0.2, 0.3), 1):
        torch.testing.assert_close(
            run("brightness", severity, x), by_pixel(x, (1, 0, 1, by)), rtol=0, atol=1e-12
        )


def test_saturate_is_the_saturation_of_hsv() -> None:
    x = coloured()
    for severity, (factor, by) in enumerate(
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), 1
    ):
        torch.testing.assert_close(
            run("saturate", severity, x), by_pixel(x, (factor, by, 1, 0)), rtol=0, atol=1e-12
        )


# Fog


def test_a_fractal_by_loops() -> None:
    """The diamond-square algorithm point by point."""
    side = 16
    decay = 1.75
    u = torch.rand(1, side * side - 1, generator=seeded(3), dtype=torch.float64) * 2 - 1
    values = np.zeros((side, side))
    moves = iter(u[0].tolist())
    step = side
    reach = 1.0
    while step > 1:
        half = step // 2
        for i, j in ((i, j) for i in range(0, side, step) for j in range(0, side, step)):
            corners = [values[(i + a) % side, (j + b) % side] for a in (0, step) for b in (0, step)]
            values[i + half, j + half] = np.mean(corners) + reach * next(moves)
        for di, dj in ((0, half), (half, 0)):
            for i, j in (
                (i + di, j + dj) for i in range(0, side, step) for j in range(0, side, step)
            ):
                around = [
                    values[(i + a) % side, (j + b) % side]
                    for a, b in ((half, 0), (-half, 0), (0, half), (0, -half))
                ]
                values[i, j] = np.mean(around) + reach * next(moves)
        step = half
        reach = reach / decay**2
    expected = (values - values.min()) / (values.max() - values.min())
    np.testing.assert_allclose(fog.plasma(u, decay)[0].numpy(), expected, atol=1e-12)


def test_fog_by_its_formula() -> None:
    x = photographs(2, (3, 20, 28), dtype=torch.float64)
    u = torch.rand(2, 1023, generator=seeded(6), dtype=torch.float64) * 2 - 1
    fractal = fog.plasma(u, 2.0)[:, None, :20, :28]
    largest = x.amax((1, 2, 3)).view(2, 1, 1, 1)
    torch.testing.assert_close(
        fog.fogged(x, u, 0.75, 2.0), (x + 0.75 * fractal) * largest / (largest + 0.75)
    )


# Elastic distortions


def test_an_affine_distortion_maps_the_three_points() -> None:
    """The grid reads the old points at the places where the moved ones are."""
    moves = torch.tensor([[1.0, -2.0, 0.5, 1.5, -1.0, 2.0]], dtype=torch.float64)
    height = 31
    width = 41
    reach = 10
    grid = elastic.affine_grid(moves, height, width)[0]
    columns = (grid[0] + 1) * (width - 1) / 2
    rows = (grid[1] + 1) * (height - 1) / 2
    old = [(20 + reach, 15 + reach), (20 + reach, 15 - reach), (20 - reach, 15 - reach)]
    for (column, row), (right, down) in zip(old, moves.view(3, 2).tolist(), strict=True):
        at_column = column + right
        at_row = row + down
        i = int(at_row)
        j = int(at_column)
        # the map is affine, so interpolation between four pixels is exact
        a = at_row - i
        b = at_column - j
        for found, wanted in ((columns, column), (rows, row)):
            corners = found[i : i + 2, j : j + 2]
            value = (1 - a) * ((1 - b) * corners[0, 0] + b * corners[0, 1]) + a * (
                (1 - b) * corners[1, 0] + b * corners[1, 1]
            )
            assert float(value) == pytest.approx(wanted, abs=1e-9)


def test_displacements_are_those_of_scipy() -> None:
    x = photographs(1, (1, 24, 30), dtype=torch.float64)
    u = torch.rand(1, 6 + 2 * 24 * 30, generator=seeded(8), dtype=torch.float64) * 2 - 1
    u[:, :6] = 0
    ours = elastic.stretched(x, u, 5.0, 1.3, 0.0)[0, 0].numpy()
    across, down = (
        ndimage.gaussian_filter(part, 1.3, mode="reflect", truncate=3) * 5
        for part in u[0, 6:].view(2, 24, 30).numpy()
    )
    rows, columns = np.mgrid[:24, :30]
    expected = ndimage.map_coordinates(
        x[0, 0].numpy(), (rows + down, columns + across), order=1, mode="reflect"
    )
    np.testing.assert_allclose(ours, expected, atol=1e-9)


def test_points_nearly_in_line_are_survived() -> None:
    x = photographs(1, (1, 12, 12))
    u = torch.zeros(1, 6 + 2 * 144)
    u[0, :6] = torch.tensor([0.0, -0.5, 0.0, 0.5, 0.0, 0.5])  # the first two points meet
    assert torch.isfinite(elastic.stretched(x, u, 0.0, 0.0, 8.0)).all()


# Options


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fogg", "did you mean 'fog'"),
        ("corruption", "the key name says which corruption: gaussian_blur, "),
        ("jpeg_compression", "jpeg"),
    ],
)
def test_unknown_corruptions_are_refused(name: str, hint: str) -> None:
    with pytest.raises(ValidationError, match=hint):
        Corruption(name=name)


@pytest.mark.parametrize(("name", "channels"), [("saturate", 1), ("jpeg", 2), ("saturate", 4)])
def test_colours_are_needed_where_they_are_changed(
    name: str, channels: int, golden: Golden
) -> None:
    with pytest.raises(SpecError) as caught:
        Corruption(name=name).check((channels, 28, 28), [1.0])
    golden(caught.value)
    assert caught.value.where == "name"
