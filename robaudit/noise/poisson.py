"""Shot noise: light arrives in photons, and their number varies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from robaudit.levels import LevelName
from robaudit.noise.noise import AdditiveNoise, Shape
from robaudit.numerics.poisson_counts import poisson_quantile
from robaudit.numerics.rowwise import diagonal_gram

# Values of one operation: 512 KiB of float64 fit the CPU's cache, 128 MiB keep a GPU busy.
_VALUES_ON_CPU = 1 << 16
_VALUES_ELSEWHERE = 1 << 24


class Poisson(AdditiveNoise):
    """N / photons with independent counts N ~ Poisson(x photons): mean x, variance x / photons;
    black stays black.

    The level is the number of photons detected at a white pixel (1). The count is the quantile of
    its distribution at Phi(z), so brighter pixels and other levels are driven by the same z. Values
    may exceed 1: use ``clip`` where a sensor would saturate.

    Source: EMVA 1288, release 4, section 2.1; quantile: Giles (2016), ACM Trans. Math. Softw. 42.
    """

    level_name = LevelName.PHOTONS
    least = 1e-2
    most = 1e9
    guided = True
    summary = "Poisson(x photons) / photons, independent on every value"
    prefer = "little light, where shot noise is all there is"
    source = "EMVA 1288, section 2.1"

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """Poisson counts of mean x photons, divided by photons.

        The gradient with respect to z is the one of x + sqrt(x / photons) z.
        """
        pixels = z.new_empty(len(z), *x.shape[1:])
        for rows, count in counts(x, z.detach(), level):
            pixels[rows] = count.div_(level)
        if not z.requires_grad:
            return pixels
        return with_gradient(pixels, z * (x / level).sqrt())

    def amplitude(self, level: float, shape: Shape) -> float:
        """The standard deviation of white, 1 / sqrt(photons)."""
        return 1.0 / math.sqrt(level)

    def shrunk(self, level: float, factor: float) -> float:
        """1 / factor^2 times as many photons."""
        # The deviation of white is 1 / sqrt(photons).
        return level / factor**2

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """(U sqrt x) (U sqrt x)^T."""
        return diagonal_gram(gradients, x.double().sqrt().flatten(1))


def with_gradient(pixels: Tensor, smooth: Tensor) -> Tensor:
    """The pixels, with the gradient of a smooth map."""
    # The difference is exactly 0, and has the gradient of ``smooth``.
    return pixels + (smooth - smooth.detach())


def counts(x: Tensor, z: Tensor, photons: float) -> Iterator[tuple[slice, Tensor]]:
    """Photons detected, Poisson(x photons), for some rows at a time.

    Counts are float64; the rows of one step fit the processor's cache.

    Args:
        x: pixels (n, channels, height, width), or (1, ...) for all rows.
        z: standard normal variables (n, channels, height, width).
        photons: of white.

    Yields:
        The rows, and their counts (rows, channels, height, width), float64.
    """
    if not len(z):
        return
    values = _VALUES_ON_CPU if z.device.type == "cpu" else _VALUES_ELSEWHERE
    step = max(1, values // max(1, z[0].numel()))
    for start in range(0, len(z), step):
        rows = slice(start, min(start + step, len(z)))
        images = x if len(x) == 1 else x[rows]
        rate = images.double().mul(photons)
        yield rows, poisson_quantile(rate, z[rows])
