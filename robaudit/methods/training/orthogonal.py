"""Linear layers whose weights stay orthogonal, by Björck's iteration."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrize

from robaudit.errors import ModelError

_ITERATIONS = 30
# |A A^T - I| that counts as orthogonal; below which one more step suffices, as it squares the error
_ORTHOGONAL = 3e-4
_LAST = 3e-3
# |A A^T - I| beyond which A is scaled down to this norm; the iteration converges below sqrt 3
_FAR = 1.0
_TO = 1.2
_POWERS = 12


class Orthogonal(nn.Module):
    """The nearest matrix with orthonormal rows (or columns, if fewer), by Björck's iteration A <- A
    (3/2 I - 1/2 A^T A).

    The stored weight itself is replaced, and the gradient is projected onto the tangent space: the
    derivative of infinitely many iterations at an orthogonal matrix.

    Source: Björck and Bowie 1971; Anil et al. 2019; Smoothed robustness analysis, section 3.2.
    """

    def forward(self, weight: Tensor) -> Tensor:
        """The orthogonal weight."""
        with torch.no_grad():
            if (nearest := _nearest(weight)) is not None:
                weight.copy_(nearest)
        orthogonal: Tensor = _Tangent.apply(weight)
        return orthogonal


class _Tangent(torch.autograd.Function):
    """The identity on orthogonal matrices, whose gradient G becomes G - (G Q^T + Q G^T) Q / 2."""

    @staticmethod
    def forward(ctx: Any, q: Tensor) -> Tensor:
        copy = q.clone()
        ctx.save_for_backward(copy)
        return copy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (q,) = ctx.saved_tensors
        wide = q.shape[0] <= q.shape[1]
        inner = gradient @ q.T if wide else gradient.T @ q
        inner = (inner + inner.T) / 2
        projected: Tensor = gradient - (inner @ q if wide else q @ inner)
        return projected


def _nearest(a: Tensor) -> Tensor | None:
    """The nearest orthogonal matrix; None where ``a`` is orthogonal already."""
    wide = a.shape[0] <= a.shape[1]
    for i in range(_ITERATIONS):
        gram = a @ a.T if wide else a.T @ a
        far = float((gram - torch.eye(len(gram), dtype=a.dtype, device=a.device)).norm())
        if far <= _ORTHOGONAL:
            return a if i else None
        if far > _FAR and (square := _largest(gram)) > _TO**2:
            a = a * (_TO / math.sqrt(square))
            gram = gram * (_TO**2 / square)
        a = 1.5 * a - 0.5 * (gram @ a if wide else a @ gram)
        if far <= _LAST:
            break
    return a


def _largest(gram: Tensor) -> float:
    """The largest eigenvalue by power iteration, slightly underestimated."""
    v = gram[gram.diagonal().argmax()]
    for _ in range(_POWERS):
        v = gram @ (v / v.norm())
    return float(v.norm())


def orthogonalise(network: nn.Module, where: str) -> nn.Module:
    """Keep the weights of all linear layers orthogonal, from an orthogonal start; the network is
    changed in place.

    Raises:
        ModelError: the network has no linear layer, or other layers with weights.
    """
    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    others = [
        part
        for part in network.modules()
        if part not in layers and any(True for _ in part.parameters(recurse=False))
    ]
    if others or not layers:
        what = (
            f"the network has a {type(others[0]).__name__} layer"
            if others
            else "the network has no linear layers"
        )
        raise ModelError(
            where,
            what,
            "orthogonal: true is for networks of linear layers alone, such as robaudit:mlp",
        )
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
        parametrize.register_parametrization(layer, "weight", Orthogonal())
    return network


def plain_state(network: nn.Module) -> dict[str, Tensor]:
    """The state dict with parametrized weights computed, so that a network without parametrizations
    can load it."""
    with torch.no_grad():
        state = {
            name: value
            for name, value in network.state_dict().items()
            if "parametrizations." not in name
        }
        for path, part in network.named_modules():
            if parametrize.is_parametrized(part):
                for name in cast("nn.ModuleDict", part.parametrizations):
                    state[f"{path}.{name}"] = getattr(part, name)
    return state
