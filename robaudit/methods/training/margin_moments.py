"""Training objectives on the means and variances of logits under Gaussian noise, propagated through
the layers."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.methods.training.network import Normalised
from robaudit.methods.training.training_objective import Batch, Objective
from robaudit.numerics.normal_moments import relu_moments

_LEAST_VARIANCE = 1e-12  # before a ReLU: the gradient of a standard deviation of 0 is infinite


TargetRadius = Annotated[
    float,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="the radius that counts as large enough, in pixel units",
    ),
]
NetworkConstant = Annotated[
    float,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="Lipschitz constant of the network: 1 where it is orthogonal",
    ),
]


class LogitMoments(NamedTuple):
    """Mean and variance of each image's logits, or of a layer's values, under noise.

    Both are (n, classes), or (n, *shape) in a layer.
    """

    mean: Tensor
    variance: Tensor


class SmoothedObjective(Objective):
    """A closed-form objective of the logits' means and variances under Gaussian noise.

    All values are treated as independent, which they nearly are where the weights are orthogonal.
    """

    sigma: float = Field(
        0.1,
        gt=0,
        allow_inf_nan=False,
        description="standard deviation of the noise, in pixel units ([0, 1])",
    )

    @abstractmethod
    def from_moments(self, logits: LogitMoments, labels: Tensor) -> Tensor:
        """The number to minimise ()."""

    def check(self, batch: Batch) -> None:
        """Refuse networks that moments cannot be propagated through."""
        with torch.no_grad():
            logit_moments(batch.network, batch.images, self.sigma)

    def loss(self, batch: Batch) -> Tensor:
        """The objective at the moments of the batch."""
        return self.from_moments(
            logit_moments(batch.network, batch.images, self.sigma), batch.labels
        )


def logit_moments(network: nn.Module, images: Tensor, sigma: float) -> LogitMoments:
    """Propagate the moments of x + sigma z through the layers: Linear exactly, ReLU by the moments
    of max(X, 0) for normal X.

    Args:
        network: a chain of Flatten, Linear and ReLU layers.
        images: (n, channels, height, width).
        sigma: standard deviation of the noise.

    Raises:
        ModelError: the network has another layer.

    Source: Smoothed robustness analysis, eqs. 16 and 17.
    """
    return _through(network, LogitMoments(images, torch.full_like(images, sigma**2)))


def _through(layer: nn.Module, before: LogitMoments) -> LogitMoments:
    """The moments behind a layer.

    Raises:
        ModelError: they cannot be propagated through it.
    """
    mean, variance = before
    if isinstance(layer, Normalised):
        normalised = LogitMoments(layer.normalise(mean), variance / layer.std.square())
        return _through(layer.network, normalised)
    if isinstance(layer, nn.Sequential):
        after = before
        for part in layer.children():
            after = _through(part, after)
        return after
    if isinstance(layer, nn.Flatten):
        return LogitMoments(layer(mean), layer(variance))
    if isinstance(layer, nn.Linear):
        # Var(sum_j w_j x_j) = sum_j w_j^2 Var(x_j) for independent x_j (section 3.1)
        return LogitMoments(layer(mean), F.linear(variance, layer.weight.square()))
    if isinstance(layer, nn.ReLU):
        deviation = variance.clamp_min(_LEAST_VARIANCE).sqrt()
        return LogitMoments(*relu_moments(mean, deviation))  # eqs. 16 and 17
    what = f"noise cannot be followed through its {type(layer).__name__} layer"
    remedy = "choose a network of Flatten, Linear and ReLU, such as robaudit:mlp"
    raise ModelError("objective", what, remedy)


def ranked_others(logits: Tensor, labels: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The ``most`` largest logits besides the label's, and their classes (n, most)."""
    others = logits.scatter(1, labels[:, None], -torch.inf)
    ranked = others.topk(most, 1)
    return ranked.values, ranked.indices


def value_at_label(values: Tensor, labels: Tensor) -> Tensor:
    """The value at each image's label (n,)."""
    return values.gather(1, labels[:, None])[:, 0]


SQRT2 = math.sqrt(2)
"""The Lipschitz constant in l2 of the margin of a 1-Lipschitz network: z_y - z_i is the inner
product of the logits with e_y - e_i, of length sqrt(2)."""
