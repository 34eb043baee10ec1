"""Networks whose q-norms of the loss are known: two classes with logits (0, log(e^l - 1)), so that the loss against class 0 is l."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from scipy.integrate import quad
from torch import Tensor, nn

from robaudit.estimators.engine import Engine
from robaudit.estimators.work import CleanPass, Work
from robaudit.levels import LevelName, NoiseLevel
from robaudit.models import from_module
from robaudit.noise.base import NoiseKind
from robaudit.noise.draws import NormalDraws
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.registry import NoiseSource
from robaudit.noise.spatial import Spatial
from robaudit.noise.uniform import Uniform

EPS, SIDE = 0.1, 10
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
    noise: NoiseKind = Uniform()
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
        mass, _ = quad(lambda d: math.exp(-20 * q * (d - 0.05) ** 2), -EPS, EPS, points=[0.05], epsabs=0, limit=200)
        return 1 + SIDE**2 / q * math.log(mass / (2 * EPS))


class Ramp(Golden):
    """l = .5 + 4 delta, of one value."""

    shape = (1, 1, 1)
    highest = 0.9

    def log_loss(self, delta: Tensor) -> Tensor:
        return torch.log(0.5 + 4 * delta[:, 0])

    def log_norm(self, q: float) -> float:
        return math.log(0.9) + (math.log(0.9 / 0.8) + math.log1p(-((0.1 / 0.9) ** (q + 1))) - math.log(q + 1)) / q


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
    """log l = -3 + .05 u under Gaussian noise, u = sum(delta) / (sigma sqrt d): a linear margin and a small loss."""

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
    """log l = -8 + 9 sigmoid(3 (u - 5)): flat, with a plateau of probability 3e-7 that no plain copy meets and that decides q >= 2."""

    highest = math.e

    def log_of(self, u: Tensor) -> Tensor:
        return -8 + 9 * torch.sigmoid(3 * (u - 5))

    def log_norm(self, q: float) -> float:
        u = torch.linspace(-12, 50, 2**20 + 1, dtype=torch.float64)
        density = q * self.log_of(u) - u.square() / 2
        return float(torch.logsumexp(density, 0) + math.log((62 / 2**20) / math.sqrt(2 * math.pi))) / q


class Softplus(LogNormal):
    """The loss of a linear margin of two classes: l = softplus(-4 + 3 u)."""

    def log_of(self, u: Tensor) -> Tensor:
        s = -4 + 3 * u
        return torch.where(s < -30, s, torch.nn.functional.softplus(s.clamp_min(-30)).log())

    log_norm = Cliff.log_norm


def work_of(golden: Golden, repetitions: int | Sequence[int], *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Work:
    """The same image under many names, so that each has noise of its own."""
    numbers = range(repetitions) if isinstance(repetitions, int) else repetitions
    x = golden.image().to(dtype).repeat(len(numbers), 1, 1, 1)
    source = NoiseSource(golden.noise, NormalDraws(golden.kind, seed, torch.device("cpu"), dtype))
    engine = Engine(from_module(golden, dtype=dtype), {golden.level.noise: source}, 2)
    return Work([str(n) for n in numbers], x, torch.zeros(len(x), dtype=torch.int64), golden.level, CleanPass.of(engine, x), engine)
