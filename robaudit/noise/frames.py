"""Recorded noise: differences of shots of a still scene, at random places and signs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from robaudit.errors import SpecError
from robaudit.levels import LevelName
from robaudit.noise.arrays import Placed, read_npz
from robaudit.noise.noise import File, Noise, Shape

_STEPS = 16 * 255
"""Steps of the brightness from black to white in the table of deviations.

Pixels of 8 bits lie on steps. Between steps the nearest one counts, which changes a deviation by at
most its slope / 8160."""
# The mean square of normalised frames is 1 up to a poor fit of the variance. That of differences
# of pixels in [0, 1], or of grey levels, is far away.
_LEAST_SQUARE = 0.25
_MOST_SQUARE = 4.0
_ARRAYS = ("frames", "brightness", "variance")


@dataclass(frozen=True, eq=False)
class _Recording:
    """The arrays of a file, ready for use.

    Attributes:
        bank: the frames with their rows written out nearly twice, (n, C, H', 2 W' - 1), so that a
            cut that wraps around is contiguous; in the precision of the file.
        columns: W'.
        deviations: s_c at each step of the brightness, (C, _STEPS + 1).
    """

    bank: Placed
    columns: int
    deviations: Placed


class Frames(Noise):
    """x + level * s_c(x) * g * e[f, c, (i + a) mod H', (j + b) mod W']: the measured noise of a
    camera itself, not a model of it.

    e are normalised frames, each the noise of one shot, of H' x W' pixels. The frame f, the shifts
    a and b, and the sign g = +-1 are uniform, and the same for all channels and pixels. So
    correlations between neighbours and channels are the measured ones. s_c(x) is the standard
    deviation of channel c at the brightness x of a pixel: the square root of the measured variance,
    linear between the measured brightnesses and constant beyond them. The level is a multiple: at 1
    the noise is as strong as measured.

    The .npz file has

    - ``frames``: e, (n, C, H', W'), of mean 0 and variance 1. They may be smaller or larger than
      the images, and wrap around;
    - ``brightness``: (k,), ascending, in [0, 1];
    - ``variance``: (C, k), of the noise of each channel at these brightnesses.

    Four normal variables z make a draw: f, a and b are uniform by erf(|z| / sqrt 2), and g is the
    sign of the last one. So -z is the same noise with the other sign.

    Source: EMVA Standard 1288, release 4 linear: temporal noise from the difference of two shots.
    """

    level_name = LevelName.LEVEL
    least = 1e-6
    most = 1e3
    # There are finitely many draws at each level.
    bounded = True
    # Each draw is one of a few recorded frames: margins inherit whatever tails and patterns these
    # have, so nothing says that they are jointly normal.
    nearly_normal = False
    empirical = True
    summary = "x + level s(x) e, with e a recorded frame at a random place and sign"
    prefer = "the noise of your own camera as measured, to judge models of it"
    source = "EMVA 1288: temporal noise from the difference of two shots"

    file: File = Field(
        description="an .npz file with frames, (n, C, H, W), brightness, (k,), and variance, (C, k)"
    )

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of the frames."""
        return (self.file,)

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Check the arrays, and that they have the channels of the images.

        Raises:
            SpecError: the file is missing or damaged, lacks an array, or does not fit.
        """
        channels = self._recording.bank.values.shape[1]
        if channels != shape[0]:
            what = f"frames in {self.file} have {channels} channels, and the images have {shape[0]}"
            raise SpecError("file", what, "measure the noise of such images as the network gets")

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """Frame, row, column and sign."""
        return (4,)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x + level s(x) g e; see the class."""
        noise = self._placed_frames(z, x.shape[2], x.shape[3]).to(x.dtype)
        noise.mul_(self._deviations(x, level))
        sign = torch.where(z[:, 3] < 0, -1.0, 1.0).to(x.dtype)
        noise.mul_(sign[:, None, None, None])
        return noise.add_(x)

    def _placed_frames(self, z: Tensor, height: int, width: int) -> Tensor:
        """A frame for each draw, cut at its place and wrapped around: (n, C, height, width)."""
        bank = self._recording.bank.on(z.device)
        columns = self._recording.columns
        frames, channels, rows = bank.shape[:3]
        # |z| and not z: the mirrored draw -z is the same frame at the same place.
        uniform = torch.erf(z[:, :3].abs().double() * math.sqrt(0.5))
        frame = _place(uniform[:, 0], frames)
        top = _place(uniform[:, 1], rows)
        left = _place(uniform[:, 2], columns)
        row = (torch.arange(height, device=z.device) + top[:, None]) % rows  # (n, height)
        channel = torch.arange(channels, device=z.device)
        cut = min(width, columns)
        # Each row of a cut is contiguous in the bank, whose rows are written out nearly twice. Only
        # the beginnings of rows are looked up: ten times as fast as an index for each value.
        windows = bank.unfold(3, cut, 1)  # (frames, C, H', W', cut), a view
        pieces = windows[
            frame[:, None, None], channel[:, None], row[:, None, :], left[:, None, None]
        ]
        if cut < width:
            # The frames have a period of W' columns.
            pieces = pieces.repeat(1, 1, 1, -(-width // cut))[..., :width]
        return pieces

    def _deviations(self, x: Tensor, level: float) -> Tensor:
        """level s_c(x), of the shape of x."""
        table = self._recording.deviations.like(x) * level  # (C, _STEPS + 1)
        channels, size = table.shape
        step = x.clamp(0.0, 1.0).mul_(_STEPS).add_(0.5).to(torch.int32)
        step += size * torch.arange(channels, dtype=torch.int32, device=x.device)[:, None, None]
        # A search for the neighbouring knots would take forty times as long.
        return table.flatten().index_select(0, step.flatten()).view_as(x)

    def _arrays(self) -> dict[str, Tensor]:
        """The arrays of the file by name, checked on their own and against each other."""
        arrays = read_npz(self.file, "file", *_ARRAYS, short=["frames"])
        for name in _ARRAYS:
            if name not in arrays:
                raise SpecError(
                    "file",
                    f"{self.file} has no array {name}",
                    "write it with robaudit measure-noise, or numpy.savez(path, frames=..., "
                    "brightness=..., variance=...)",
                )
        self._check_shapes(arrays)
        self._check_values(arrays)
        return arrays

    def _check_shapes(self, arrays: dict[str, Tensor]) -> None:
        """Refuse arrays of wrong or empty shapes."""
        frames = arrays["frames"]
        if frames.ndim != 4 or not frames.numel():
            self._refuse_shape("frames", frames, "(n, C, H, W), with at least one of each")
        brightness = arrays["brightness"]
        if brightness.ndim != 1 or not brightness.numel():
            self._refuse_shape("brightness", brightness, "(k,), with at least one")
        variance = arrays["variance"]
        shape = (frames.shape[1], len(brightness))
        if variance.shape != shape:
            self._refuse_shape("variance", variance, f"(C, k) = {shape}")

    def _refuse_shape(self, name: str, array: Tensor, wanted: str) -> None:
        what = f"{name} in {self.file} has the shape {tuple(array.shape)}"
        raise SpecError("file", what, f"save it as {wanted}")

    def _check_values(self, arrays: dict[str, Tensor]) -> None:
        """Refuse brightnesses out of order or range, negative variances, and frames that are not
        normalised."""
        brightness = arrays["brightness"]
        if brightness.min() < 0 or brightness.max() > 1 or (brightness.diff() <= 0).any():
            what = f"brightness in {self.file} is not ascending within [0, 1]"
            raise SpecError("file", what, "sort it, each once, in units of white")
        if (arrays["variance"] < 0).any():
            what = f"variance in {self.file} has negative numbers"
            raise SpecError("file", what, "it holds the variance of the noise, not its logarithm")
        # One frame at a time, which bounds the float64 copies.
        squares = [float(frame.double().square().mean()) for frame in arrays["frames"]]
        square = sum(squares) / len(squares)
        if not _LEAST_SQUARE <= square <= _MOST_SQUARE:
            what = f"frames in {self.file} have the mean square {square:.3g}, which should be 1"
            remedy = "divide the noise of each pixel by the standard deviation at its brightness"
            raise SpecError("file", what, remedy)

    @cached_property
    def _recording(self) -> _Recording:
        """The arrays of the file as :meth:`noisy` needs them; only these stay in memory."""
        arrays = self._arrays()
        frames = arrays["frames"]
        knots: NDArray[np.float64] = arrays["brightness"].numpy()
        deviations: NDArray[np.float64] = arrays["variance"].sqrt().numpy()
        steps = np.linspace(0.0, 1.0, _STEPS + 1)
        table = np.stack([np.interp(steps, knots, row) for row in deviations])
        with torch.inference_mode(False):
            bank = torch.cat([frames, frames[..., :-1]], dim=3)
            return _Recording(Placed(bank), frames.shape[3], Placed(torch.from_numpy(table)))


def _place(uniform: Tensor, count: int) -> Tensor:
    """A uniform place among 0 ... count - 1 for each number on [0, 1]."""
    # u = 1, which rounding may give, belongs to the last one.
    return (uniform * count).long().clamp_max(count - 1)
