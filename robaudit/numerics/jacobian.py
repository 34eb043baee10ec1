"""What are a classifier's margins at given points, and their gradients with respect to the input?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def other_classes(target: Tensor, classes: int) -> Tensor:
    """The classes that are not the target, in ascending order: (n,) -> (n, classes - 1)."""
    index = torch.arange(classes - 1, device=target.device)
    return index + (index >= target[:, None]).long()


def margins(logits: Tensor, target: Tensor) -> Tensor:
    """g_i = f_t - f_i for i != t, classes in ascending order: (n, classes) and (n,) -> (n, classes - 1)."""
    others = other_classes(target, logits.shape[1])
    return logits.gather(1, target[:, None]) - logits.gather(1, others)


def margin_gradients(
    f: Callable[[Tensor], Tensor], x: Tensor, target: Tensor | None = None, others: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, margins and margin gradients at x, by one forward and one backward pass for each margin asked for.

    The gradient of the margin itself is taken, not the difference of two logit gradients: nothing cancels and no full
    Jacobian is held. ``f`` must treat the images of a batch independently (a network in eval mode does).

    Args:
        f: (n, channels, height, width) -> logits (n, classes), differentiable.
        x: points (n, channels, height, width).
        target: class t of each point; argmax of the logits when None.
        others: class i of each margin wanted (n, k); -1 for none, whose margin is the constant 1. All but t when None.

    Returns:
        logits (n, classes), margins g (n, k), gradients u_i = grad g_i (n, k, pixels), k = classes - 1 without ``others``.

    Raises:
        ValueError: if the logits do not depend on x through autograd.

    Source: Han et al., "Efficient Estimation of Average-Case Robustness", Propositions 3.1 and 3.3 (c_i and u_i).
    """
    with torch.enable_grad():
        points = x.detach().requires_grad_(True)
        logits = f(points)
        if not logits.requires_grad:
            raise ValueError("the logits have no gradient with respect to the input")
        chosen = logits.detach().argmax(1) if target is None else target
        g = margins(logits, chosen) if others is None else _some_margins(logits, chosen, others)
        wanted = list(range(g.shape[1])) if others is None else (others >= 0).any(0).nonzero()[:, 0].tolist()
        gradients = torch.zeros((len(x), g.shape[1], x[0].numel()), dtype=x.dtype, device=x.device)
        for i in wanted:
            (u,) = torch.autograd.grad(g[:, i].sum(), points, retain_graph=i != wanted[-1])
            gradients[:, i] = u.flatten(1)
    return logits.detach(), g.detach(), gradients


def _some_margins(logits: Tensor, target: Tensor, others: Tensor) -> Tensor:
    g = logits.gather(1, target[:, None]) - logits.gather(1, others.clamp_min(0))
    return torch.where(others >= 0, g, 1.0)
