"""A camera: shot noise, read noise, saturation and quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from robaudit.levels import LevelName
from robaudit.noise.noise import Noise, Shape
from robaudit.noise.poisson import counts, with_gradient
from robaudit.spec.fields import Number, Whole


class Sensor(Noise):
    """The linear camera of EMVA 1288.

        y = round(m clip((N + read_noise v) / photons)) / m,
        N ~ Poisson(x photons),  v ~ N(0, 1),  m = 2^bits - 1.

    The level is the number of electrons (detected photons) of a white pixel: the exposure. Away
    from black and white, the mean is x and the variance x / photons + (read_noise / photons)^2 + 1
    / (12 m^2): shot noise, read noise, quantisation.

    Each value takes two normal variables, the first half of z for the photons and the second for
    the reading.

    Source: EMVA Standard 1288, release 4 linear, sections 2.1 to 2.4.
    """

    level_name = LevelName.PHOTONS
    least = 1e-2
    most = 1e9
    nearly_normal = quantises = guided = True
    summary = "a camera: (Poisson(x photons) + read noise) / photons, clipped and rounded to bits"
    prefer = "a camera in little light, with numbers from its data sheet"
    source = "EMVA 1288, sections 2.1 to 2.4"

    read_noise: Annotated[Number, Field(ge=0.0, le=1e6)] = Field(
        2.0, description="standard deviation of the reading, in electrons"
    )
    bits: Annotated[Whole, Field(ge=1, le=16)] = Field(
        8, description="of the analogue-to-digital converter"
    )

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """Twice the channels: photons, then readings; the photons alone without read noise."""
        channels, height, width = shape
        return (2 * channels if self.read_noise else channels, height, width)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """Electrons in units of white, quantised. The gradient with respect to z assumes normal
        photons, and is zero in black and white."""
        channels = x.shape[1]
        of_photons = z[:, :channels]
        of_reading = z[:, channels:]
        steps = 2.0**self.bits - 1.0
        pixels = z.new_empty(len(z), *x.shape[1:])
        for rows, electrons in counts(x, of_photons.detach(), level):
            if self.read_noise:
                electrons.add_(of_reading[rows].detach().double() * self.read_noise)
            # Saturated at a full well, then converted to steps of the analogue-to-digital
            # converter (EMVA 1288, section 2.1).
            exposure = electrons.div_(level).clamp_(0.0, 1.0)
            pixels[rows] = exposure.mul_(steps).round_().div_(steps)
        if not z.requires_grad:
            return pixels
        smooth = of_photons * (x / level).sqrt()
        if self.read_noise:
            smooth = smooth + of_reading * (self.read_noise / level)
        within_range = (pixels > 0) & (pixels < 1)
        return with_gradient(pixels, torch.where(within_range, smooth, 0.0))
