"""Random flips, rotations, scales and crops of whole images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from robaudit.errors import SpecError
from robaudit.levels import LevelName
from robaudit.noise.noise import Noise, Shape
from robaudit.noise.warp import Mirror, sample
from robaudit.spec.fields import Number

_STRAIGHT = 180.0  # degrees


class Spatial(Noise):
    """The image flipped, scaled, rotated about its centre and shifted, in one bilinear resampling
    of the reflected image.

    Five uniform variables u = Phi(z): a flip where u_1 < 1/2; the scale 1 + scale * size * (2 u_2 -
    1), above 1 larger; the angle rotation * size * (2 u_3 - 1) degrees, counter-clockwise; and a
    crop after padding by pad = round(crop * size) pixels on each side, which begins floor(u_4 (2
    pad + 1)) pixels from the left and floor(u_5 (2 pad + 1)) from the top.

    Beyond the border, the image is reflected at its outermost pixels. A single resampling does the
    whole transform, so nothing is interpolated twice, and corners that rotate into the picture are
    reflections, too.

    Source: Rice et al. 2021, Robustness between the worst and average case: its spatial transforms
    have the ranges of size 1.
    """

    level_name = LevelName.SIZE
    least = 1e-6
    most = 1e3
    bounded = True
    summary = (
        "flip, scale of 1 +- 0.1 size, rotation by +- 10 size degrees, crop after padding "
        "by 4 size pixels"
    )
    prefer = "another position of the camera or the object"
    source = "Rice et al. 2021, Robustness between the worst and average case"

    flip: bool = Field(
        True, description="left and right change places in half of the draws, at every size"
    )
    scale: Annotated[Number, Field(ge=0)] = Field(
        0.1, description="at size 1, the largest change of scale; 0: none"
    )
    rotation: Annotated[Number, Field(ge=0, le=_STRAIGHT)] = Field(
        10.0, description="at size 1, the largest angle in degrees; 0: none"
    )
    crop: Annotated[Number, Field(ge=0)] = Field(
        4.0, description="at size 1, the largest shift in pixels along each side; 0: none"
    )

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Refuse sizes that leave nothing of the image, or that give the same transforms twice.

        Raises:
            SpecError: at one of the sizes a scale would be zero or negative, an angle beyond 180
                degrees, or a crop outside the padding.
        """
        side = min(shape[1:])
        for size in levels:
            if self.scale * size >= 1:
                remedy = f"give sizes below {1 / self.scale:g}, or a smaller scale"
                raise SpecError(
                    "size",
                    f"at size {size:g} the smallest scale is {1 - self.scale * size:g}: nothing "
                    "is left",
                    remedy,
                )
            if self.rotation * size > _STRAIGHT:
                remedy = f"give sizes up to {_STRAIGHT / self.rotation:g}, or a smaller rotation"
                raise SpecError(
                    "size",
                    f"at size {size:g} the angle reaches {self.rotation * size:g} degrees, more "
                    "than 180",
                    remedy,
                )
            if self.pad(size) >= side:
                what = (
                    f"at size {size:g} the crop shifts by up to {self.pad(size)} pixels, and "
                    f"the images have {shape[1]} x {shape[2]}"
                )
                raise SpecError("size", what, f"shift by less than {side}: a smaller size or crop")

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """Flip, scale, angle, column and row of the crop."""
        return (5,)

    def pad(self, size: float) -> int:
        """The largest shift along a side, in pixels."""
        return round(self.crop * size)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """The transformed images; see the class."""
        height, width = x.shape[2:]
        even = torch.erf(z.double() * math.sqrt(0.5))  # uniform on [-1, 1]; (n, 5)
        zoom = 1 + self.scale * level * even[:, 1]
        angle = math.radians(self.rotation * level) * even[:, 2]
        pad = self.pad(level)
        shift_x, shift_y = (
            torch.floor((even[:, 3:] + 1) * (0.5 * (2 * pad + 1))).clamp_max(2 * pad) - pad
        ).unbind(1)
        side = torch.where(even[:, 0] < 0, -1.0, 1.0) if self.flip else torch.ones_like(zoom)
        cos = torch.cos(angle) / zoom
        sin = torch.sin(angle) / zoom
        middle_x = (width - 1) / 2
        middle_y = (height - 1) / 2
        # (n, width)
        across = (
            torch.arange(width, dtype=torch.float64, device=x.device) - middle_x + shift_x[:, None]
        )
        # (n, height)
        down = (
            torch.arange(height, dtype=torch.float64, device=x.device) - middle_y + shift_y[:, None]
        )
        # the column read for an output pixel is  side (cos across - sin down),  the row  sin across
        # + cos down,  from the middle
        scale_x = 2 / max(width - 1, 1)
        scale_y = 2 / max(height - 1, 1)
        grid = x.new_empty(len(z), 2, height, width)
        for axis, (by_column, by_row) in enumerate(
            ((side * cos * scale_x, -side * sin * scale_x), (sin * scale_y, cos * scale_y))
        ):
            horizontal = (by_column[:, None] * across).to(x.dtype)
            vertical = (by_row[:, None] * down).to(x.dtype)
            torch.add(horizontal[:, None, :], vertical[:, :, None], out=grid[:, axis])
        return sample(x, grid, Mirror.REFLECT)
