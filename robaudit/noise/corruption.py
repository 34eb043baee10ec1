"""Common corruptions of photographs at five severities, computed from the image."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import AfterValidator, Field
from torch import Tensor

from robaudit.errors import SpecError, did_you_mean
from robaudit.levels import LevelName
from robaudit.noise import filters
from robaudit.noise.elastic import stretched
from robaudit.noise.fog import fogged, map_side
from robaudit.noise.noise import Noise, Shape
from robaudit.numerics.rowwise import mean_over

SMALL = 64
"""Images of fewer rows get the parameters of CIFAR-10-C unless the spec says otherwise. They were
made for 32 rows, those of ImageNet-C for 224."""

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One corruption.

    Attributes:
        imagenet, cifar: its parameters at severity 1 to 5, in the units of ``apply``.
        apply: from pixels (n, channels, height, width), or (1, ...), and the parameters to pixels.
            A random one takes uniform variables on [-1, 1], (n, variables), after the pixels.
        variables: number of uniform variables for an image. Default: not random.
        channels: the supported numbers of channels. Default: any.
    """

    imagenet: tuple[Numbers, ...]
    cifar: tuple[Numbers, ...]
    apply: Callable[..., Tensor]
    variables: Callable[[Shape], int] | None = None
    channels: tuple[int, ...] | None = None


def _motion(x: Tensor, u: Tensor, radius: float, sigma: float) -> Tensor:
    """Motion blur along a direction between -45 and 45 degrees."""
    degrees = 45.0 * u[:, 0].double()
    return filters.motion_blur(x, degrees, filters.motion_kernel(int(radius), sigma))


def _defocus(x: Tensor, radius: float, alias_sigma: float) -> Tensor:
    """Blur by a disk of this radius in pixels, with a softened rim."""
    return filters.correlated(x, filters.disk_kernel(radius, alias_sigma))


def _elastic(x: Tensor, u: Tensor, strength: float, smoothness: float, jitter: float) -> Tensor:
    """Elastic distortion; all three parameters are relative to the shorter side."""
    side = min(x.shape[2:])
    return stretched(x, u, strength * side, smoothness * side, jitter * side)


def _jpeg(x: Tensor, quality: float) -> Tensor:
    """Encode and decode each image in 8 bits on the CPU, with Pillow as the benchmarks do."""
    bytes_of_pixels = (x * 255).round().clamp(0, 255).to("cpu", torch.uint8)
    images = bytes_of_pixels.movedim(1, -1).contiguous()  # (n, height, width, channels)
    recoded = np.stack([_recoded(image, int(quality)) for image in images.numpy()])
    pixels = torch.from_numpy(recoded).movedim(-1, 1)
    # Divided in float64, so that a byte is the same number in either precision of x.
    return pixels.to(torch.float64).div_(255).to(x).contiguous()


def _recoded(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """A JPEG file of the image, decoded: (height, width, channels)."""
    with io.BytesIO() as file:
        # Pillow takes grey images without the dimension of channels.
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        picture.save(file, "JPEG", quality=quality)
        with Image.open(file, formats=("JPEG",)) as decoded:
            return np.asarray(decoded).reshape(image.shape)


def _brightened(x: Tensor, by: float) -> Tensor:
    """The value V = max over the channels raised to min(V + by, 1), hue and saturation kept; grey
    images just become lighter.

    As the channels are V (1 - S g) with g of the hue alone, that is x V' / V; black becomes the
    grey V'.
    """
    value = x.amax(1, keepdim=True)
    raised = (value + by).clamp(0, 1)
    safe_value = torch.where(value > 0, value, 1.0)
    return torch.where(value > 0, x * (raised / safe_value), raised)


def _saturated(x: Tensor, factor: float, by: float) -> Tensor:
    """The saturation S = (max - min) / max changed to factor S + by within [0, 1], hue and value
    kept.

    The channels are V - S V (V - x) / (max - min). Grey pixels have no hue and are treated as red,
    so ``by`` > 0 colours them.
    """
    value = x.amax(1, keepdim=True)
    spread = value - x.amin(1, keepdim=True)
    saturation = spread / torch.where(value > 0, value, 1.0)
    changed = (saturation * factor + by).clamp(0, 1)
    # (V - x) / (max - min) of each channel: 0 for the largest, 1 for the smallest. Red has hue 0,
    # which HSV gives to grey.
    red = x.new_tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1)
    safe_spread = torch.where(spread > 0, spread, 1.0)
    distance = torch.where(spread > 0, (value - x) / safe_spread, red)
    return value * (1 - changed * distance)


def _flattened(x: Tensor, factor: float) -> Tensor:
    """Contrast: (x - m) factor + m, m the mean of each channel."""
    mean = mean_over(x.flatten(2), 2)[:, :, None, None]
    return (x - mean) * factor + mean


# ImageNet-C's elastic parameters are shares of 244 pixels, on images of 224.
_SHARE_OF_SIDE = 244 / 224


def _shares_of_side(*parameters: Numbers) -> tuple[Numbers, ...]:
    """Published elastic parameters of ImageNet-C as shares of the side."""
    return tuple(tuple(value * _SHARE_OF_SIDE for value in numbers) for numbers in parameters)


# Hendrycks & Dietterich 2019: the parameter lists published with ImageNet-C and CIFAR-10-C, and
# docs/noise.md for their meaning.
FORMS: Mapping[str, Form] = {
    "gaussian_blur": Form(
        imagenet=((1,), (2,), (3,), (4,), (6,)),
        cifar=((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
        apply=filters.gaussian_blur,
    ),
    "motion_blur": Form(
        imagenet=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        cifar=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        apply=_motion,
        variables=lambda _: 1,  # the angle
    ),
    "defocus_blur": Form(
        imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        apply=_defocus,
    ),
    "jpeg": Form(
        imagenet=((25,), (18,), (15,), (10,), (7,)),
        cifar=((80,), (65,), (58,), (50,), (40,)),
        apply=_jpeg,
        channels=(1, 3),
    ),
    "brightness": Form(
        imagenet=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
        cifar=((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        apply=_brightened,
    ),
    "contrast": Form(
        imagenet=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
        cifar=((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        apply=_flattened,
    ),
    # Less colour at severity 1 and 2, more from 3 on.
    "saturate": Form(
        imagenet=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        cifar=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        apply=_saturated,
        channels=(3,),
    ),
    "fog": Form(
        imagenet=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        cifar=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        apply=fogged,
        # Every point of the fractal but its corner, which is 0.
        variables=lambda shape: map_side(*shape[1:]) ** 2 - 1,
    ),
    "pixelate": Form(
        imagenet=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
        cifar=((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        apply=filters.pixelated,
    ),
    "elastic": Form(
        imagenet=_shares_of_side(
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        ),
        cifar=(
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        apply=_elastic,
        # Columns and rows of three points, then of every pixel.
        variables=lambda shape: 6 + 2 * shape[1] * shape[2],
    ),
}
"""The corruptions by name."""


def _known(name: str) -> str:
    """The name of a corruption; ValueError: there is no such corruption."""
    if name == "corruption":  # the default label
        raise ValueError("the key name says which corruption: " + ", ".join(FORMS))
    if name not in FORMS:
        raise ValueError(did_you_mean(name, FORMS))
    return name


class Corruption(Noise):
    """A corruption as in ImageNet-C and CIFAR-10-C, with their parameters at each severity;
    ``name`` says which.

    Pixels are clipped to [0, 1] afterwards, as in the benchmarks, and not rounded to 8 bits (except
    by ``jpeg``). Motion blur, fog and elastic distortions are random; the others have one result
    for each image.

    The numbers are the published ones; docs/noise.md says how the results differ from the published
    files.

    Source: Hendrycks & Dietterich 2019, Benchmarking neural network robustness to common
        corruptions and perturbations.
    """

    level_name = LevelName.SEVERITY
    least = 1
    most = 5
    whole = quantises = True
    summary = (
        "blur, JPEG, brightness, contrast, saturation, fog, pixels or distortion at severity 1 to 5"
    )
    prefer = (
        "what happens to photographs between the scene and the file; results comparable to "
        "the literature's"
    )
    source = "Hendrycks & Dietterich 2019, ImageNet-C and CIFAR-10-C"

    name: Annotated[str, AfterValidator(_known)] = Field(
        description="the corruption: " + ", ".join(FORMS)
    )
    scale: Literal["auto", "imagenet", "cifar"] = Field(
        "auto",
        description=f"whose parameters: auto is cifar for images of fewer than {SMALL} rows, "
        "else imagenet",
    )

    @property
    def form(self) -> Form:
        """The corruption called ``name``."""
        return FORMS[self.name]

    @property
    def random(self) -> bool:
        """Whether there are several results for an image."""
        return self.form.variables is not None

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Refuse corruptions of colour on grey images.

        Raises:
            SpecError: the corruption is not defined for this number of channels.
        """
        defined = self.form.channels
        if defined is not None and shape[0] not in defined:
            wanted = " or ".join(map(str, defined))
            what = f"{self.name} is defined for {wanted} channels, and the images have {shape[0]}"
            raise SpecError("name", what, "leave it out")

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """One dimension, of as many variables as the corruption takes; 0 if it is not random."""
        if self.form.variables is None:
            return (0,)
        return (self.form.variables(shape),)

    def parameters(self, level: float, shape: Shape) -> Numbers:
        """The corruption's numbers at a severity, for images of this shape."""
        small = self.scale == "cifar" or (self.scale == "auto" and shape[1] < SMALL)
        severities = self.form.cifar if small else self.form.imagenet
        return severities[int(level) - 1]

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """The corrupted images, in [0, 1]."""
        channels, height, width = x.shape[1:]
        parameters = self.parameters(level, (channels, height, width))
        if self.random:
            uniform = torch.erf(z * math.sqrt(0.5))  # 2 Phi(z) - 1: uniform on [-1, 1]
            corrupted = self.form.apply(x, uniform, *parameters)
        else:
            corrupted = self.form.apply(x, *parameters)
        corrupted = corrupted.clamp_(0, 1)
        # A corruption that is not random has one copy for all draws of one image.
        return corrupted if len(corrupted) == len(z) else corrupted.repeat(len(z), 1, 1, 1)
