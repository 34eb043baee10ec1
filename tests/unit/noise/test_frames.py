"""Recorded noise: the formula pixel by pixel, its variance by brightness, its correlations, uniform
places and signs, and files that do not fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robaudit.errors import SpecError
from robaudit.noise.arrays import read_npz
from robaudit.noise.frames import Frames
from tests.golden import Golden
from tests.unit.noise.kinds import images, made, normal

KNOTS = np.array([0.1, 0.4, 0.9])
VARIANCE = np.array([[0.01, 0.04, 0.09], [0.0, 0.01, 0.01]])


def frames(folder: Path, noise: Any, **arrays: Any) -> Frames:
    """A kind of a file with these frames (n, C, H, W); by default of deviation 1 everywhere."""
    e = np.asarray(noise)
    flat = {"brightness": [0.5], "variance": np.ones((e.shape[1], 1))}
    np.savez(folder / "noise.npz", frames=e, **{**flat, **arrays})
    form = made(Frames, folder, file="noise.npz")
    assert isinstance(form, Frames)
    return form


def recorded(n: int, *shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(seed).normal(size=(n, *shape))


def noise_of(form: Frames, z: torch.Tensor, *shape: int, level: float = 1.0) -> torch.Tensor:
    """The noise on a grey image (n, *shape), float64."""
    x = torch.full((1, *shape), 0.5, dtype=torch.float64)
    return form.noisy(x, z.double(), level, ids=["0"]) - x


@pytest.mark.parametrize("side", [4, 7, 19], ids=["smaller", "like the images", "larger"])
def test_the_formula_pixel_by_pixel(side: int, tmp_path: Path) -> None:
    """Images of 7 x 9, frames of side x (side + 2); float64 frames are kept as they are."""
    e = recorded(3, 2, side, side + 2)
    form = frames(tmp_path, e, brightness=KNOTS, variance=VARIANCE)
    x = images(20, (2, 7, 9)).double()
    z = normal(20, (4,)).double()
    noisy = form.noisy(x, z, 1.5, ids=[str(i) for i in range(20)])
    for n in range(20):
        u = [math.erf(abs(float(value)) / math.sqrt(2)) for value in z[n]]
        f, a, b = (int(u[0] * 3), int(u[1] * side), int(u[2] * (side + 2)))
        sign = math.copysign(1, float(z[n, 3]))
        for c in range(2):
            s = np.interp(x[n, c].numpy(), KNOTS, np.sqrt(VARIANCE[c]))
            rows = (np.arange(7) + a) % side
            columns = (np.arange(9) + b) % (side + 2)
            expected = x[n, c].numpy() + 1.5 * s * sign * e[f, c][np.ix_(rows, columns)]
            # Between two steps of the table a deviation is off by at most slope / 8160, where the
            # slope is at most .1 / .3.
            tolerance = 1.5 * np.abs(e).max() * (0.1 / 0.3) / 8160
            np.testing.assert_allclose(noisy[n, c].numpy(), expected, rtol=0, atol=tolerance)


def test_pixels_of_8_bits_have_the_exact_deviation(tmp_path: Path) -> None:
    form = frames(tmp_path, np.ones((1, 2, 1, 1)), brightness=KNOTS, variance=VARIANCE)
    x = (torch.arange(256) / 255).view(256, 1, 1, 1).repeat(1, 2, 1, 1)
    noise = form.noisy(x.double(), torch.ones(256, 4).double(), 1.0, ids=["0"] * 256) - x
    for c in range(2):
        expected = np.interp(np.arange(256) / 255, KNOTS, np.sqrt(VARIANCE[c]))
        np.testing.assert_allclose(noise[:, c, 0, 0].numpy(), expected, rtol=0, atol=1e-7)


def test_the_variance_is_the_measured_one_at_each_brightness(tmp_path: Path) -> None:
    n = 4000
    form = frames(tmp_path, recorded(50, 2, 8, 8), brightness=KNOTS, variance=VARIANCE)
    # The mean square of these frames, which stands in for 1.
    square = read_npz(tmp_path / "noise.npz", "file", "frames")["frames"].square()
    for k, brightness in enumerate(KNOTS):
        x = torch.full((1, 2, 1, 1), float(brightness), dtype=torch.float64)
        noise = form.noisy(x, normal(n, (4,), seed=k).double(), 2.0, ids=["0"]) - x
        for c in range(2):
            variance = 4 * VARIANCE[c, k] * float(square[:, c].mean())
            # Squares of normal noise have twice the square of its variance as their variance.
            error = variance * math.sqrt(2 / n)
            assert abs(float(noise[:, c].square().mean()) - variance) <= 5 * error


def test_correlations_of_neighbours_and_channels_stay(tmp_path: Path) -> None:
    """White noise, summed with its right neighbour and shared between channels by a half."""
    white = recorded(40, 3, 16, 16)
    smooth = (white + np.roll(white, 1, axis=3)) / math.sqrt(2)
    mixed = (smooth + smooth[:, :1]) / math.sqrt(2)
    mixed[:, 0] = smooth[:, 0]
    noise = noise_of(frames(tmp_path, mixed), normal(3000, (4,)), 3, 4, 4)
    pairs = {
        "right": (noise[:, 0, :, 1:], noise[:, 0, :, :-1], 0.5),
        "below": (noise[:, 0, 1:], noise[:, 0, :-1], 0.0),
        "channels": (noise[:, 0], noise[:, 1], 1 / math.sqrt(2)),
        "other channels": (noise[:, 1], noise[:, 2], 0.5),
    }
    # 40 frames of 16 x 16 stand behind all draws; correlated pixels count as a quarter of them.
    error = 1 / math.sqrt(40 * 16 * 16 / 4)
    for name, (one, other, expected) in pairs.items():
        correlation = float(
            (one * other).mean() / (one.square().mean() * other.square().mean()) ** 0.5
        )
        assert abs(correlation - expected) < 4 * error, name


def test_frames_shifts_and_signs_are_uniform_and_independent(tmp_path: Path) -> None:
    """Frames with a single bright pixel show where each draw was cut."""
    count, height, width = 3, 4, 5
    e = np.zeros((count, 1, height, width))
    for f in range(count):
        e[f, 0, 0, 0] = math.sqrt(height * width * (1 + f / 4))
    n = 24_000
    noise = noise_of(frames(tmp_path, e), normal(n, (4,)), 1, height, width).flatten(1)
    peak, place = noise.abs().max(1)
    frame = ((peak.square() / (height * width) - 1) * 4).round().long()
    negative = (noise.sum(1) < 0).long()
    cell = (frame * height * width + place) * 2 + negative
    cells = count * height * width * 2
    observed = torch.bincount(cell, minlength=cells).double()
    chi_square = float(((observed - n / cells) ** 2 / (n / cells)).sum())
    # Mean cells - 1 and variance 2 (cells - 1).
    assert abs(chi_square - (cells - 1)) < 5 * math.sqrt(2 * (cells - 1))


def test_the_other_half_of_an_antithetic_pair_has_the_other_sign(tmp_path: Path) -> None:
    form = frames(tmp_path, recorded(5, 1, 6, 6))
    z = normal(200, (4,))
    black = torch.zeros(1, 1, 4, 4)
    first = form.noisy(black, z, 1.0, ids=["0"])
    assert torch.equal(first, -form.noisy(black, -z, 1.0, ids=["0"]))
    assert first.std() > 0.5


def test_frames_wrap_around(tmp_path: Path) -> None:
    """An image of several periods repeats its frame."""
    noise = noise_of(frames(tmp_path, recorded(2, 1, 3, 4)), normal(10, (4,)), 1, 7, 13)
    assert torch.equal(noise[:, :, 3:6], noise[:, :, :3])
    assert torch.equal(noise[..., 4:8], noise[..., :4])
    assert torch.equal(noise[..., 12:], noise[..., :1])
    assert noise.flatten(1).std(1).min() > 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.dtype(">f4")], ids=str)
def test_frames_stay_short(dtype: Any, tmp_path: Path) -> None:
    form = frames(tmp_path, recorded(2, 1, 3, 4).astype(dtype))
    assert form._recording.bank.values.element_size() == np.dtype(dtype).itemsize
    bank = form._recording.bank
    assert bank.on(torch.device("cpu")) is bank.values
    assert noise_of(form, normal(3, (4,)), 1, 3, 4).std() > 0.1


GOOD: dict[str, Any] = {
    "frames": recorded(3, 2, 5, 5),
    "brightness": KNOTS,
    "variance": VARIANCE,
}
BAD: dict[str, dict[str, Any]] = {
    "no frames": {"frames": None},
    "no variance": {"variance": None},
    "one frame": {"frames": GOOD["frames"][0]},
    "empty": {"frames": np.zeros((0, 2, 5, 5))},
    "text": {"frames": np.full((1, 2, 2, 2), "a")},
    "objects": {"frames": np.full((1, 2, 2, 2), None)},
    "not finite": {"frames": np.full((1, 2, 2, 2), np.inf, dtype=np.float16)},
    "not normalised": {"frames": GOOD["frames"] * 0.02},
    "descending": {"brightness": KNOTS[::-1]},
    "twice": {"brightness": [0.1, 0.1, 0.9]},
    "of 255": {"brightness": KNOTS * 255},
    "a number": {"brightness": 0.5},
    "another number of brightnesses": {"brightness": KNOTS[:2]},
    "another number of channels": {"variance": VARIANCE[:1]},
    "negative": {"variance": -VARIANCE},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=list(BAD))
def test_damaged_files_are_refused(changes: dict[str, Any], tmp_path: Path, golden: Golden) -> None:
    arrays = {**GOOD, **changes}
    np.savez(tmp_path / "x.npz", **{k: v for k, v in arrays.items() if v is not None})
    with golden.raises(SpecError):
        made(Frames, tmp_path, file="x.npz").check((2, 8, 8), [1.0])


def test_other_files_are_refused(tmp_path: Path, golden: Golden) -> None:
    np.savez(tmp_path / "good.npz", **GOOD)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "good.npz").read_bytes()[:300])
    for name, channels in (("good.npz", 3), ("cut.npz", 2), ("none.npz", 2)):
        with golden.raises(SpecError):
            made(Frames, tmp_path, file=name).check((channels, 8, 8), [1.0])
    made(Frames, tmp_path, file="good.npz").check((2, 8, 8), [1.0])
