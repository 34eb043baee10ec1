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
_ORTHOGONAL = 3e-4  # |A A^T - I| that counts as orthogonal
_LAST = 3e-3  # |A A^T - I| below which one more step suffices, as it squares the error
# |A A^T - I| beyond which A is scaled down to a largest singular value of 1.2; the iteration
# converges below sqrt 3.
_FAR = 1.0
_SCALED_TO = 1.2
_POWERS = 12  # power iterations for the largest singular value


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
        # With orthonormal rows: G - (G Q^T + Q G^T) Q / 2; with orthonormal columns its transpose.
        if q.shape[0] <= q.shape[1]:
            inner = gradient @ q.T
            normal_part = ((inner + inner.T) / 2) @ q
        else:
            inner = gradient.T @ q
            normal_part = q @ ((inner + inner.T) / 2)
        projected: Tensor = gradient - normal_part
        return projected


def _nearest(a: Tensor) -> Tensor | None:
    """The nearest orthogonal matrix; None where ``a`` is orthogonal already."""
    wide = a.shape[0] <= a.shape[1]
    for i in range(_ITERATIONS):
        # the smaller of A A^T and A^T A
        gram = a @ a.T if wide else a.T @ a
        unit = torch.eye(len(gram), dtype=a.dtype, device=a.device)
        distance = float((gram - unit).norm())
        if distance <= _ORTHOGONAL:
            return a if i else None
        if distance > _FAR:
            square = _largest_eigenvalue(gram)
            if square > _SCALED_TO**2:
                a = a * (_SCALED_TO / math.sqrt(square))
                gram = gram * (_SCALED_TO**2 / square)
        # Björck and Bowie 1971: A (3/2 I - 1/2 A^T A)
        a = 1.5 * a - 0.5 * (gram @ a if wide else a @ gram)
        if distance <= _LAST:
            break
    return a


def _largest_eigenvalue(gram: Tensor) -> float:
    """The largest eigenvalue by power iteration, slightly underestimated."""
    # Starting at the longest row, which has a part along the leading eigenvector.
    vector = gram[gram.diagonal().argmax()]
    for _ in range(_POWERS):
        vector = gram @ (vector / vector.norm())
    return float(vector.norm())


def orthogonalise(network: nn.Module, where: str) -> nn.Module:
    """Keep the weights of all linear layers orthogonal, from an orthogonal start; the network is
    changed in place.

    Raises:
        ModelError: the network has no linear layer, or other layers with weights.
    """
    with_weights = [part for part in network.modules() if list(part.parameters(recurse=False))]
    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    others = [part for part in with_weights if part not in layers]
    if others or not layers:
        what = "the network has no linear layers"
        if others:
            what = f"the network has a {type(others[0]).__name__} layer"
        remedy = "orthogonal: true is for networks of linear layers alone, such as robaudit:mlp"
        raise ModelError(where, what, remedy)
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
        parametrize.register_parametrization(layer, "weight", Orthogonal())
    return network


def plain_state(network: nn.Module) -> dict[str, Tensor]:
    """The state dict with parametrized weights computed, so that a network without parametrizations
    can load it."""
    state = {
        name: value
        for name, value in network.state_dict().items()
        if "parametrizations." not in name
    }
    with torch.no_grad():
        for path, part in network.named_modules():
            if not parametrize.is_parametrized(part):
                continue
            for name in cast("nn.ModuleDict", part.parametrizations):
                # reading the attribute computes the weight
                state[f"{path}.{name}"] = getattr(part, name)
    return state
