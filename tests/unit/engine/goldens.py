"""Networks whose q-norms of the loss are known: two classes with logits (0, log(e^l - 1)), so that
the loss against class 0 is l."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp
from scipy.stats import poisson
from torch import Tensor, nn

from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.levels import LevelName, NoiseLevel
from robaudit.models import from_module
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.laplace import Laplace
from robaudit.noise.noise import Noise
from robaudit.noise.process import NoiseProcess
from robaudit.noise.sensor import Sensor
from robaudit.noise.spatial import Spatial
from robaudit.noise.uniform import Uniform

EPS = 0.1
SIDE = 10
MIDDLE = 0.5


class Golden(nn.Module, ABC):
    """A loss l(delta) of noise in the box [-EPS, EPS]^d about a grey image.

    Attributes:
        shape: of the image.
        kind, noise: the noise and its options.
        level: of the noise.
        highest: the largest loss.
    """

    shape = (1, SIDE, SIDE)
    kind = "uniform"
    noise: Noise = Uniform()
    level = NoiseLevel("uniform", EPS, LevelName.EPS)
    highest: float

    @abstractmethod
    def log_loss(self, delta: Tensor) -> Tensor:
        """log l of noise (n, values)."""

    @abstractmethod
    def log_norm(self, q: float) -> float:
        """log Z_q."""

    def image(self) -> Tensor:
        """The clean image."""
        return torch.full(self.shape, MIDDLE, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        loss = self.log_loss(x.flatten(1) - MIDDLE).exp()
        return torch.stack([torch.zeros_like(loss), loss + torch.log(-torch.expm1(-loss))], dim=1)


class Tilt(Golden):
    """log l = log .05 + .5 sum delta."""

    highest = 0.05 * math.exp(0.5 * EPS * SIDE**2)

    def log_loss(self, delta: Tensor) -> Tensor:
        return math.log(0.05) + 0.5 * delta.sum(1)

    def log_norm(self, q: float) -> float:
        x = q * 0.5 * EPS
        return math.log(0.05) + SIDE**2 / q * (x + math.log(-math.expm1(-2 * x) / (2 * x)))


class Peak(Golden):
    """log l = 1 - 20 sum (delta - .05)^2."""

    highest = math.e

    def log_loss(self, delta: Tensor) -> Tensor:
        return 1 - 20 * (delta - 0.05).square().sum(1)

    def log_norm(self, q: float) -> float:
        mass, _ = quad(
            lambda d: math.exp(-20 * q * (d - 0.05) ** 2),
            -EPS,
            EPS,
            points=[0.05],
            epsabs=0,
            limit=200,
        )
        return 1 + SIDE**2 / q * math.log(mass / (2 * EPS))


class Ramp(Golden):
    """l = .5 + 4 delta, of one value."""

    shape = (1, 1, 1)
    highest = 0.9

    def log_loss(self, delta: Tensor) -> Tensor:
        return torch.log(0.5 + 4 * delta[:, 0])

    def log_norm(self, q: float) -> float:
        return (
            math.log(0.9)
            + (math.log(0.9 / 0.8) + math.log1p(-((0.1 / 0.9) ** (q + 1))) - math.log(q + 1)) / q
        )


class Flip(Golden):
    """l = .2, or .9 where the image is flipped."""

    shape = (1, 2, 2)
    kind = "spatial"
    noise = Spatial(scale=0.0, rotation=0.0, crop=0.0)
    level = NoiseLevel("spatial", 1.0, LevelName.SIZE)
    highest = 0.9

    def image(self) -> Tensor:
        return torch.tensor([[[0.0, 1.0], [0.0, 1.0]]], dtype=torch.float64)

    def log_loss(self, delta: Tensor) -> Tensor:
        return torch.where(delta[:, 0] > 0, math.log(0.9), math.log(0.2)).to(delta.dtype)

    def log_norm(self, q: float) -> float:
        return math.log(0.9) + math.log((1 + (0.2 / 0.9) ** q) / 2) / q


class LogNormal(Golden):
    """log l = -3 + .05 u under Gaussian noise, u = sum(delta) / (sigma sqrt d): a linear margin and
    a small loss."""

    kind = "gaussian"
    noise = Gaussian()
    level = NoiseLevel("gaussian", EPS, LevelName.SIGMA)
    highest = math.inf

    def log_of(self, u: Tensor) -> Tensor:
        """log l of u."""
        return -3 + 0.05 * u

    def log_loss(self, delta: Tensor) -> Tensor:
        return self.log_of(delta.sum(1) / (EPS * SIDE))

    def log_norm(self, q: float) -> float:
        return -3 + q * 0.05**2 / 2


class Cliff(LogNormal):
    """log l = -8 + 9 sigmoid(3 (u - 5)): flat, with a plateau of probability 3e-7 that no plain
    copy meets and that decides q >= 2."""

    highest = math.e

    def log_of(self, u: Tensor) -> Tensor:
        return -8 + 9 * torch.sigmoid(3 * (u - 5))

    def log_norm(self, q: float) -> float:
        u = torch.linspace(-12, 50, 2**20 + 1, dtype=torch.float64)
        density = q * self.log_of(u) - u.square() / 2
        return (
            float(torch.logsumexp(density, 0) + math.log((62 / 2**20) / math.sqrt(2 * math.pi))) / q
        )


class Softplus(LogNormal):
    """The loss of a linear margin of two classes: l = softplus(-4 + 3 u)."""

    def log_of(self, u: Tensor) -> Tensor:
        s = -4 + 3 * u
        return torch.where(s < -30, s, torch.nn.functional.softplus(s.clamp_min(-30)).log())

    log_norm = Cliff.log_norm


class Curved(LogNormal):
    """log l = -6 + 4 tanh(u / 3) - |z|^2 / 2000, z the noise over sigma: curved in every
    direction."""

    highest = math.exp(-2)
    curvature = 5e-4

    def log_of(self, u: Tensor) -> Tensor:
        return -6 + 4 * torch.tanh(u / 3)

    def log_loss(self, delta: Tensor) -> Tensor:
        return super().log_loss(delta) - self.curvature * (delta / EPS).square().sum(1)

    def log_norm(self, q: float) -> float:
        narrowed = 1 + 2 * q * self.curvature
        u = torch.linspace(-40, 40, 2**18 + 1, dtype=torch.float64)
        along = torch.logsumexp(q * self.log_of(u) - narrowed * u.square() / 2, 0) + math.log(
            80 / 2**18 / math.sqrt(2 * math.pi)
        )
        return (float(along) - (SIDE**2 - 1) / 2 * math.log(narrowed)) / q


class LaplaceLine(Golden):
    """log l = -4 + slope sum(delta) under Laplace noise of scale b: E[l^q] = e^-4q / (1 - (q slope
    b)^2)^d, q slope b = .5 at q = 1000."""

    kind = "laplace"
    noise = Laplace()
    level = NoiseLevel("laplace", EPS, LevelName.SIGMA)
    highest = math.inf
    at_1000 = 0.5

    def log_loss(self, delta: Tensor) -> Tensor:
        return -4 + self.at_1000 / (1000 * EPS * math.sqrt(0.5)) * delta.sum(1)

    def log_norm(self, q: float) -> float:
        return -4 - SIDE**2 / q * math.log1p(-((self.at_1000 * q / 1000) ** 2))


class LaplaceEdge(LaplaceLine):
    """The same near the q at which E[l^q] is infinite."""

    at_1000 = 0.9


class LaplaceMargin(LaplaceLine):
    """l = softplus(-6 + 3 u) under Laplace noise, u = sum(delta) / (sigma sqrt d)."""

    def log_of(self, u: Tensor) -> Tensor:
        """log l of u."""
        s = -6 + 3 * u
        return torch.where(s < -30, s, torch.nn.functional.softplus(s.clamp_min(-30)).log())

    def log_loss(self, delta: Tensor) -> Tensor:
        return self.log_of(delta.sum(1) / (EPS * SIDE))

    def log_norm(self, q: float) -> float:
        """The density of a sum of n Laplace variables is exp(-|y|) sum_k (n-1+k)! / (k! (n-1-k)!)
        |y|^(n-1-k) 2^-k / (2^n (n-1)!)."""
        n = SIDE**2
        scale = math.sqrt(0.5) / SIDE
        u = torch.linspace(-60, 400, 2**13 + 1, dtype=torch.float64)
        k = torch.arange(n, dtype=torch.float64)
        y = (u.abs() / scale)[:, None]
        terms = (
            torch.lgamma(n + k)
            - torch.lgamma(k + 1)
            - torch.lgamma(n - k)
            - k * math.log(2)
            + torch.special.xlogy(n - 1 - k, y)
        )
        density = (
            torch.logsumexp(terms, 1) - y[:, 0] - n * math.log(2) - math.lgamma(n) - math.log(scale)
        )
        return float(torch.logsumexp(density + q * self.log_of(u), 0) + math.log(460 / 2**13)) / q


class SensorLine(Golden):
    """log l = -3 + slope sum(delta) under a camera's noise: E[l^q] is a power of a sum over photons
    and the 256 values of a pixel."""

    kind = "sensor"
    noise = Sensor()
    level = NoiseLevel("sensor", 200.0, LevelName.PHOTONS)
    slope = 0.05
    highest = math.exp(-3 + slope * MIDDLE * SIDE**2)

    def log_loss(self, delta: Tensor) -> Tensor:
        return -3 + self.slope * delta.sum(1)

    def log_norm(self, q: float) -> float:
        photons = self.level.number
        steps = 255
        number = np.arange(400)
        value = np.arange(steps + 1)
        # of the readings
        edges = (np.append(value - 0.5, np.inf) / steps * photons)[None] - number[:, None]
        edges[:, 0] = -np.inf
        inside = log_ndtr(edges / self.noise.read_noise)
        reading = inside[:, 1:] + np.log(
            -np.expm1(np.minimum(inside[:, :-1] - inside[:, 1:], -1e-300))
        )
        pixel = logsumexp(poisson.logpmf(number, photons * MIDDLE)[:, None] + reading, axis=0)
        return -3 + math.prod(self.shape) / q * float(
            logsumexp(pixel + q * self.slope * (value / steps - MIDDLE))
        )


class SensorSteep(SensorLine):
    """The same, so steep that rounding a pixel is a jump at large q."""

    slope = 0.5
    highest = math.exp(-3 + slope * MIDDLE * SIDE**2)


class SensorPixel(SensorLine):
    """One pixel."""

    shape = (1, 1, 1)
    slope = 4.0
    highest = math.exp(-3 + slope * MIDDLE)


def work_of(
    golden: Golden,
    repetitions: int | Sequence[int],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> ImageBatch:
    """The same image under many names, so that each has noise of its own."""
    numbers = range(repetitions) if isinstance(repetitions, int) else repetitions
    x = golden.image().to(dtype).repeat(len(numbers), 1, 1, 1)
    source = NoiseProcess(golden.noise, golden.kind, seed, torch.device("cpu"), dtype)
    engine = Engine(from_module(golden, dtype=dtype), {golden.level.noise: source}, 2)
    return ImageBatch.from_images(
        engine,
        x,
        golden.level,
        ids=[str(n) for n in numbers],
        labels=torch.zeros(len(x), dtype=torch.int64),
    )
