"""Exponential tilts of a noise: distributions of its normal variables z, from which E[l^q] is
sampled.

A tilt by the parameters t (d,) has the density p_t(z) = exp(t . s(z) - A(t)) N(z; 0, I), with a
statistic s of every variable. If log l^q rises linearly in s, the distribution l^q N is a tilt
itself. So the statistic follows what the noise makes of z:

- s = z, for noise that adds multiples of z: p_t is N(t, I) (:class:`NormalTilts`).
- s = sqrt(3) (2 Phi(z) - 1), for noise that turns z into uniform variables: p_t is the uniform
  distribution in a box, tilted (:class:`UniformTilts`). Towards an edge of the box normal
  distributions would miss its shape, and of 2,000 copies count 1 where those of this tilt count
  300 (docs/research/intermediate_q.md).

Both statistics have mean 0 and variance 1 without a tilt. Copies of a tilt are made from standard
normal variables e, one for each z.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from robaudit.noise.noise import Noise
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import total

_SQRT_3 = math.sqrt(3.0)
_SQRT_2PI = math.sqrt(2.0 * math.pi)
_LEAST_TILT = 1e-8  # below it the formulae of a tilted box would divide 0 by 0
_MOST_PROBABILITY = 1.0 - 2.0**-53  # below 1, so that the normal quantile is finite


class Tilts(ABC):
    """The tilts of a statistic s. Parameters and statistics are (..., d) tensors."""

    @abstractmethod
    def moved(self, tilt: Tensor, normal: Tensor) -> Tensor:
        """z ~ p_t from standard normal variables e: an increasing map of every variable, of the
        type of e."""

    @abstractmethod
    def rates(self, tilt: Tensor, normal: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """dz/de and ds/de of :meth:`moved`, of the type of e."""

    @abstractmethod
    def statistic(self, z: Tensor) -> Tensor:
        """s(z), float64."""

    @abstractmethod
    def slope(self, z: Tensor, slope: Tensor) -> Tensor:
        """The gradient with respect to s, from the gradient with respect to z, of its type."""

    @abstractmethod
    def log_mass(self, tilt: Tensor) -> Tensor:
        """A(t) = log E[exp(t . s)] (...,), float64."""

    @abstractmethod
    def divergence(self, tilt: Tensor) -> Tensor:
        """The Kullback-Leibler divergence of p_t from N(0, I) (...,), in nats, float64."""


class NormalTilts(Tilts):
    """Tilts of normal variables: N(t, I)."""

    def moved(self, tilt: Tensor, normal: Tensor) -> Tensor:
        """t + e."""
        return tilt + normal

    def rates(self, tilt: Tensor, normal: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """1 and 1."""
        one = torch.ones_like(normal)
        return one, one

    def statistic(self, z: Tensor) -> Tensor:
        """z."""
        return z.double()

    def slope(self, z: Tensor, slope: Tensor) -> Tensor:
        """The gradient itself."""
        return slope

    def log_mass(self, tilt: Tensor) -> Tensor:
        """|t|^2 / 2."""
        return total(tilt.double().square()) / 2

    def divergence(self, tilt: Tensor) -> Tensor:
        """|t|^2 / 2."""
        return self.log_mass(tilt)


class UniformTilts(Tilts):
    """Tilts of uniform variables u = 2 Phi(z) - 1: densities proportional to exp(a u) on [-1, 1],
    a = sqrt(3) t."""

    def moved(self, tilt: Tensor, normal: Tensor) -> Tensor:
        """The quantile of the tilt at Phi(e)."""
        sign, a = _directed(tilt)
        edge = self._to_the_edge(a, normal_cdf(-sign * normal.double()))
        z: Tensor = -sign * torch.special.ndtri(edge.clamp_max(_MOST_PROBABILITY))
        return z.to(normal.dtype)

    def rates(self, tilt: Tensor, normal: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """phi(e) / (p_t phi)(z) and its product with ds/dz; zero where they are not finite."""
        sign, a = _directed(tilt)
        e = normal.double()
        edge = self._to_the_edge(a, normal_cdf(-sign * e))
        # d edge / d Phi(e): the reciprocal of the tilted density, relative to the uniform one
        spread = -torch.expm1(-2 * a) / (2 * a) * torch.exp(2 * a * edge)
        to_uniform = 2 * torch.exp(e.square() / -2) / _SQRT_2PI * spread  # du/de
        to_normal = to_uniform / _uniform_rate(z.double())
        # Dozens of deviations against a tilt, 0 meets infinity. A chain that overshoots as far is
        # rejected, but a NaN would reach the network before that.
        rates = (to_normal.to(normal.dtype), (_SQRT_3 * to_uniform).to(normal.dtype))
        return rates[0].nan_to_num(0.0, 0.0, 0.0), rates[1].nan_to_num(0.0, 0.0, 0.0)

    def statistic(self, z: Tensor) -> Tensor:
        """sqrt(3) (2 Phi(z) - 1)."""
        uniform: Tensor = torch.erf(z.double() * math.sqrt(0.5))
        return _SQRT_3 * uniform

    def slope(self, z: Tensor, slope: Tensor) -> Tensor:
        """The gradient over ds/dz."""
        return (slope.double() / (_SQRT_3 * _uniform_rate(z.double()))).to(slope.dtype)

    def log_mass(self, tilt: Tensor) -> Tensor:
        """The sum of log(sinh a / a)."""
        _, a = _directed(tilt)
        return total(_log_sinh_ratio(a))

    def divergence(self, tilt: Tensor) -> Tensor:
        """The sum of a E[u] - log(sinh a / a), E[u] = coth a - 1 / a."""
        _, a = _directed(tilt)
        # a coth a - 1, which is a^2 / 3 near 0
        gained = torch.where(a < 1e-4, a.square() / 3, a / torch.tanh(a) - 1)
        return total(gained - _log_sinh_ratio(a))

    @staticmethod
    def _to_the_edge(a: Tensor, upper: Tensor) -> Tensor:
        """(1 - u) / 2 for a tilt towards u = 1, where the tilted probability above u is ``upper``:
        precise next to the edge, where large tilts crowd."""
        return torch.log1p(upper * torch.expm1(-2 * a)) / (-2 * a)


def tilts_of(noise: Noise) -> Tilts:
    """The tilts that suit a kind of noise."""
    return UniformTilts() if noise.uniform_variables else NormalTilts()


def _directed(tilt: Tensor) -> tuple[Tensor, Tensor]:
    """The sign of t, and a = sqrt(3) |t|, which is not 0; float64."""
    t = tilt.double()
    sign = torch.where(t < 0, -1.0, 1.0).to(t)
    return sign, (_SQRT_3 * t.abs()).clamp_min(_LEAST_TILT)


def _uniform_rate(z: Tensor) -> Tensor:
    """du/dz = 2 phi(z), above 0."""
    return (2 / _SQRT_2PI * torch.exp(z.square() / -2)).clamp_min(1e-300)


def _log_sinh_ratio(a: Tensor) -> Tensor:
    """log(sinh a / a) for a > 0."""
    # sinh a / a = e^a (1 - e^-2a) / 2a, and 1 + a^2 / 6 near 0
    return torch.where(a < 1e-4, a.square() / 6, a + torch.log(-torch.expm1(-2 * a) / (2 * a)))
