"""Linear layers whose weights stay orthogonal, by Björck's iteration."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from robaudit.errors import ModelError

_ITERATIONS = 30
_NEAR = 1e-5  # largest entry of A A^T - I
_SAFE = 2.0  # bound of |A|^2 up to which the iteration converges without scaling


class Orthogonal(nn.Module):
    """A -> A (3/2 I - 1/2 A^T A), from an A that has been brought to the nearest matrix with orthonormal rows (or columns, if fewer).

    The iterations that bring it there change the stored weight itself and are not differentiated: at an orthogonal A one iteration has
    the derivative of infinitely many, the projection onto the tangent space.

    Source: Björck and Bowie 1971; Anil et al. 2019; Smoothed robustness analysis, section 3.2.
    """

    def forward(self, weight: Tensor) -> Tensor:
        """The orthogonal weight."""
        with torch.no_grad():
            if (nearest := _orthogonal(weight)) is not None:
                weight.copy_(nearest)
        return _bjorck(weight)


def orthogonalise(network: nn.Module, where: str) -> nn.Module:
    """Keep the weights of all linear layers orthogonal, from an orthogonal start; the network, changed in place.

    Raises:
        ModelError: it has none, or other layers with weights.
    """
    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    others = [part for part in network.modules() if part not in layers and any(True for _ in part.parameters(recurse=False))]
    if others or not layers:
        what = f"the network has a {type(others[0]).__name__} layer" if others else "the network has no linear layers"
        raise ModelError(where, what, "orthogonal: true is for networks of linear layers alone, such as robaudit:mlp")
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
        parametrize.register_parametrization(layer, "weight", Orthogonal())
    return network


def plain_state(network: nn.Module) -> dict[str, Tensor]:
    """The state dict with weights as parametrizations make them: a network without parametrizations can load it."""
    with torch.no_grad():
        state = {name: value for name, value in network.state_dict().items() if "parametrizations." not in name}
        for path, part in network.named_modules():
            if parametrize.is_parametrized(part):
                for name in cast("nn.ModuleDict", part.parametrizations):
                    state[f"{path}.{name}"] = getattr(part, name)
    return state


def _bjorck(a: Tensor) -> Tensor:
    rows, columns = a.shape
    return 1.5 * a - 0.5 * (a @ a.T @ a if rows <= columns else a @ (a.T @ a))


def _orthogonal(a: Tensor) -> Tensor | None:
    """The nearest orthogonal matrix; None where it is one already."""
    rows, columns = a.shape
    for i in range(_ITERATIONS):
        gram = a @ a.T if rows <= columns else a.T @ a
        far = gram - torch.eye(len(gram), dtype=a.dtype, device=a.device)
        if float(far.abs().max()) <= _NEAR:
            return a if i else None
        bound = float(gram.abs().sum(1).max())  # of |A|^2
        if bound > _SAFE:
            a = a / bound**0.5
        a = _bjorck(a)
    return a
