"""Gaussian noise of a known strength for each channel or each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BeforeValidator, Field, field_validator
from torch import Tensor

from robaudit.errors import SpecError
from robaudit.noise.arrays import Placed, read_npy
from robaudit.noise.noise import File, Shape, SigmaNoise
from robaudit.numerics.rowwise import diagonal_gram
from robaudit.spec.fields import Number, as_tuple


def _list_or_path(value: object) -> object:
    """A path as it is, anything else as a tuple: a single number is one channel."""
    return value if isinstance(value, str | Path) else as_tuple(value)


class ScaledGaussian(SigmaNoise):
    """x + sigma s z: independent normal noise; a value's standard deviation is sigma times its
    scale s.

    The level is the standard deviation at scale 1. Scales are numbers >= 0, not all zero: one for
    each channel, written in the spec, or a map from a .npy file of shape (C,), (H, W), (1, H, W) or
    (C, H, W).

    Source: variance maps of sensors: Huang et al. (2013), Nature Methods 10, for cameras whose
        pixels differ in their noise.
    """

    summary = "x + sigma s z, with a scale s for each channel or pixel"
    prefer = "channels or regions of different noise, as calibration frames show"
    source = "Huang et al. 2013 (variance maps of cameras)"

    scale: Annotated[tuple[Number, ...] | File, BeforeValidator(_list_or_path)] = Field(
        description="a number for each channel, or the path of a .npy file of shape (C,), (H, "
        "W), (1, H, W) or (C, H, W)"
    )

    @field_validator("scale")
    @classmethod
    def _not_negative(cls, scale: tuple[float, ...] | Path) -> tuple[float, ...] | Path:
        # A file is checked when it is read.
        if isinstance(scale, tuple):
            if any(s < 0 for s in scale):
                raise ValueError("must not have negative numbers")
            if not any(scale):
                raise ValueError("must have a number above 0")
        return scale

    @property
    def files(self) -> tuple[Path, ...]:
        """The map's file."""
        return (self.scale,) if isinstance(self.scale, Path) else ()

    @cached_property
    def _map(self) -> Placed:
        """The scales, (C, 1, 1) or with the shape of the file's map.

        Raises:
            SpecError: the file is no map of scales.
        """
        if isinstance(self.scale, tuple):
            # Cached, so it must also serve passes with gradients.
            with torch.inference_mode(False):
                of_channels = torch.tensor(self.scale, dtype=torch.float64)
                return Placed(of_channels[:, None, None])
        scales = read_npy(self.scale, "scale")
        if (scales < 0).any() or not scales.any():
            raise SpecError(
                "scale",
                f"{self.scale} has negative numbers, or none above 0",
                "give standard deviations relative to sigma",
            )
        return Placed(scales[:, None, None] if scales.ndim == 1 else scales)

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Check that the scales fit the images.

        Raises:
            SpecError: they do not, or the file is no map of scales.
        """
        channels, height, width = shape
        actual = tuple(self._map.values.shape)
        if isinstance(self.scale, tuple):
            if actual[0] != channels:
                what = f"has {actual[0]} numbers, and the images have {channels} channels"
                raise SpecError("scale", what, "give one for each channel")
            return
        fitting = {(channels, 1, 1), (height, width), (1, height, width), shape}
        if actual not in fitting:
            # A map (C,) was given two dimensions of 1 when it was read.
            shape_in_file = actual[:1] if actual[1:] == (1, 1) else actual
            what = f"{self.scale} has the shape {shape_in_file}, and the images are {shape}"
            remedy = "save a map of shape (C,), (H, W), (1, H, W) or (C, H, W)"
            raise SpecError("scale", what, remedy)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x + sigma s z."""
        return torch.mul(z, self._map.like(x)).mul_(level).add_(x)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """(U s) (U s)^T."""
        scales = self._map.values.expand(x.shape[1:]).reshape(1, -1)
        return diagonal_gram(gradients, scales)
