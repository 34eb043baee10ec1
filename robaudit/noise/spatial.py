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

# The largest angle in degrees: beyond, the same rotations come again from the other side.
_STRAIGHT = 180.0


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
            smallest_scale = 1 - self.scale * size
            largest_angle = self.rotation * size
            if self.scale * size >= 1:
                what = f"at size {size:g} the smallest scale is {smallest_scale:g}: nothing is left"
                remedy = f"give sizes below {1 / self.scale:g}, or a smaller scale"
                raise SpecError("size", what, remedy)
            if largest_angle > _STRAIGHT:
                what = (
                    f"at size {size:g} the angle reaches {largest_angle:g} degrees, more than 180"
                )
                remedy = f"give sizes up to {_STRAIGHT / self.rotation:g}, or a smaller rotation"
                raise SpecError("size", what, remedy)
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
        uniform = torch.erf(z.double() * math.sqrt(0.5))  # 2 u - 1: uniform on [-1, 1]; (n, 5)
        zoom = 1 + self.scale * level * uniform[:, 1]
        angle = math.radians(self.rotation * level) * uniform[:, 2]
        pad = self.pad(level)
        # floor(u (2 pad + 1)), less pad; u = 1, which rounding may give, belongs to the last pixel.
        places = 2 * pad + 1
        crop = torch.floor((uniform[:, 3:] + 1) * (0.5 * places)).clamp_max(2 * pad)
        shift_x, shift_y = (crop - pad).unbind(1)
        # A flip depends on the sign alone, so it is the same at every size.
        side = torch.ones_like(zoom)
        if self.flip:
            side = torch.where(uniform[:, 0] < 0, -1.0, 1.0)
        # An output pixel reads the input at the inverse of the map: (n,) each.
        cos = torch.cos(angle) / zoom
        sin = torch.sin(angle) / zoom
        # Distances of output pixels from the middle, (n, width) and (n, height).
        across = _from_middle(width, x.device) + shift_x[:, None]
        down = _from_middle(height, x.device) + shift_y[:, None]
        # From the middle on, the column read is side (cos across - sin down), the row read sin
        # across + cos down; in units of grid_sample, where the outermost pixels are at -1 and 1.
        scale_x = 2 / max(width - 1, 1)
        scale_y = 2 / max(height - 1, 1)
        factors_of_column = (side * cos * scale_x, -side * sin * scale_x)
        factors_of_row = (sin * scale_y, cos * scale_y)
        grid = x.new_empty(len(z), 2, height, width)
        for axis, (by_across, by_down) in enumerate((factors_of_column, factors_of_row)):
            horizontal = (by_across[:, None] * across).to(x.dtype)
            vertical = (by_down[:, None] * down).to(x.dtype)
            torch.add(horizontal[:, None, :], vertical[:, :, None], out=grid[:, axis])
        return sample(x, grid, Mirror.REFLECT)


def _from_middle(side: int, device: torch.device) -> Tensor:
    """Distances of ``side`` pixels in a line from their middle, float64."""
    return torch.arange(side, dtype=torch.float64, device=device) - (side - 1) / 2
